/* digits.cu - finds the state of each row, or of a part of it, without rounding (api/digits.h).
 * It works like the first kernel of `split`, with digits in place of a sum. Blocks share a row in
 * parts of a fixed length, and write each part's state to the workspace. The second kernel merges
 * the parts of a row.
 *
 * Moves 1 read of N; any N. Arithmetic limits its speed: a digit takes four additions in double. */
#include "../api/digits.h"
#include "kernel/parts_of_rows.cuh"

/* The sum of the elements that one thread has seen so far. */
template <typename Real>
struct sum_in_digits {
    using A = arithmetic<Real>;
    static constexpr Real FAR_BELOW = (Real)ONS_FAR_BELOW, NEAR = (Real)LARGEST;

    Real m = -A::infinity();
    double digit[ONS_DIGITS] = {};

    __device__ ons_packed packed() const { return {m, {digit[0], digit[1], digit[2], digit[3]}}; }

    /* Raises the maximum to `to`, which is not smaller. */
    __device__ void raise(Real to) {
        if (!(to <= same_place)) move(to);
        m = to;
    }

    template <typename Tile>
    __device__ void add(const Tile &tile) {
        raise(larger(m, tile.largest()));
        if (__all_sync(~0u, m <= NEAR && m >= FAR_BELOW - NEAR))
            add_near(tile);
        else if (m > -A::infinity())
            add_any(tile);
    }

   private:
    exponentials<Real> near{A::MAGIC};
    Real same_place = -A::infinity(); /* the digits keep their place up to this maximum */

    __device__ void move(Real to) {
        const ons_packed raised = ons_packed_raise(packed(), to);
#pragma unroll
        for (int k = 0; k < ONS_DIGITS; k++) digit[k] = raised.digit[k];
        const double c = ons_digits_power(to), most = (double)NEAR * ONS_LOG2_E + 200;
        near = exponentials<Real>(A::MAGIC + (Real)(c < most ? c : most));
        const double last = c * (1 / ONS_LOG2_E);
        same_place = ons_has_place(to) ? (Real)(last - fabs(last) * 0x1p-20) : to;
    }

    template <typename Tile>
    __device__ void add_near(const Tile &tile) {
        Real x[Tile::K * Tile::V];
        tile.take(x);
#pragma unroll
        for (int e = 0; e < Tile::K * Tile::V; e++) add_lifted(near(x[e]));
    }

    template <typename Tile>
    __device__ void add_any(const Tile &tile) {
        const double c = ons_digits_power(m), base = ons_digits_base(m);
        const bool has_near = m <= NEAR + FAR_BELOW;
        Real x[Tile::K * Tile::V];
        tile.take(x);
#pragma unroll
        for (int e = 0; e < Tile::K * Tile::V; e++) {
            if (!(fabs(x[e]) <= NEAR))
                ons_add_digits(digit, ons_far_exponential(x[e] - base, c), 1.0);
            else if (has_near)
                add_lifted(near(x[e]));
        }
    }

    __device__ void add_lifted(Real e) {
        ons_add_digits(digit, (double)e * (double)A::LOWERED, 1.0);
    }
};

template <typename Form>
constexpr int EXACT_THREADS = Form::ROWS == 1 ? SPLIT_THREADS : PASS_THREADS;

/* Row form. Finds the block's maximum first, so that the digits of all threads have the same
 * place. */
template <typename Real>
__device__ inline void merge_digits_of_row(sum_in_digits<Real> mine, ons_packed *row) {
    constexpr int WARPS = SPLIT_THREADS / WARP;
    __shared__ Real largest[WARPS];
    __shared__ double digits[ONS_DIGITS][WARPS];
    const int lane = threadIdx.x % WARP;
    Real m = max_over_lanes<WARP>(mine.m);
    if (lane == 0) largest[warp_of_block()] = m;
    __syncthreads();
    for (int warp = 0; warp < warps_of_block(); warp++) m = larger(m, largest[warp]);
    if (m != mine.m) mine.raise(m);
#pragma unroll
    for (int k = 0; k < ONS_DIGITS; k++) {
#pragma unroll
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
            mine.digit[k] += __shfl_xor_sync(~0u, mine.digit[k], lanes);
        if (lane == 0) digits[k][warp_of_block()] = mine.digit[k];
    }
    __syncthreads();
    if (threadIdx.x == 0) row->m = m;
    if (threadIdx.x >= ONS_DIGITS) return;
    double digit = 0;
    for (int warp = 0; warp < warps_of_block(); warp++) digit += digits[threadIdx.x][warp];
    row->digit[threadIdx.x] = digit;
}

/* Column form: a lane of each warp has a row. */
template <typename Real>
__device__ inline void merge_digits_of_columns(const sum_in_digits<Real> &mine, ons_packed *row) {
    using Form = block_of_columns;
    __shared__ ons_packed parts[PASS_THREADS / WARP * Form::ROWS];
    parts[Form::slot(warp_of_block())] = mine.packed();
    __syncthreads();
    if (warp_of_block() > 0) return;
    ons_packed all = mine.packed();
#pragma unroll 1
    for (int warp = 1; warp < warps_of_block(); warp++)
        all = ons_packed_merge(all, parts[Form::slot(warp)]);
    *row = all;
}

template <typename Rows, typename Form>
__global__ void __launch_bounds__(EXACT_THREADS<Form>, Form::ROWS == 1 ? 2 : 1)
    digits_kernel(const __grid_constant__ typename Rows::arguments args, int parts,
                  int64_t chunks_a_part, ons_packed *states) {
    await_earlier_work();
    using Real = typename Rows::Real;
    const part_of_rows<Rows, Form> part(args, parts, chunks_a_part);
    const auto row = part.row(args);
    sum_in_digits<Real> sum;
    for_each_tile<Form, TILE_CHUNKS>(row, part.begin, part.end,
                                     [&](int64_t, const auto &tile) { sum.add(tile); });
    states = part.of_part(states, args, parts);
    if constexpr (Form::ROWS == 1)
        merge_digits_of_row(sum, states);
    else
        merge_digits_of_columns(sum, states);
}

static __global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    exact_merge_kernel(const __grid_constant__ problem_arguments args, int parts, int width,
                       const ons_packed *states) {
    await_earlier_work();
    for_each_row(args, [&](int64_t row) {
        auto merge = [](const ons_packed &a, const ons_packed &b) {
            return ons_packed_merge(a, b);
        };
        const ons_packed all = merged_parts(states, row, parts, width, merge);
        *(ons_packed *)row_address(args, row).y = ons_packed_of_digits(all.m, all.digit);
    });
}

ons_status launch_digits(const launch_request &request) {
    return with_rows_or_columns<ONS_FAMILY_digits>(request, [&](auto ops, auto rows, auto form) {
        using Rows = typename decltype(rows)::Rows;
        using Form = decltype(form);
        const ons_plan *plan = request.plan;
        if constexpr (!decltype(ops)::ONE_A_ROW) {
            return ONS_E_OPERAND;
        } else {
            const int parts = (int)plan->blocks_a_row;
            auto *states = (ons_packed *)request.workspace;
            ons_status status =
                launch_strips(request, {parts, plan->threads}, digits_kernel<Rows, Form>,
                              rows.arguments, parts, plan->tile / Rows::V, states);
            if (status != ONS_OK || request.facts) return status;
            return launch_thread_a_row(request, exact_merge_kernel, parts, (int)Form::ROWS, states);
        }
    });
}
