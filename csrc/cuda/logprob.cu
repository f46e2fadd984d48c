/* logprob.cu - log-probabilities, entropy, argmax and rank of each row (api/logprob.h), and their
 * gradient. A block takes a row tile by tile. If rows are few, the blocks of a cluster share each
 * row in parts (sm_90 and later). The first block merges the moments of all parts and writes the
 * results. Moves 1 read of N; any N.
 *
 * logprob_gradient: blocks share a row in parts, as in split.cu. Moves 1 read + 1 write of N. */
#include "../api/logprob.h"
#include "kernel/parts_of_rows.cuh"
#include "statistic/moments.cuh"
#include "team/arrivals.cuh"

template <typename Real>
constexpr int CHUNKS = sizeof(Real) == sizeof(float) ? LOGPROB_CHUNKS : TILE_CHUNKS;

/* The most threads of a block, and the blocks of this size that fit a multiprocessor. Aligned
 * 16-bit rows take fewer registers than others. */
template <typename Rows>
constexpr int THREADS = LOGPROB_THREADS;
template <typename Rows>
constexpr int BLOCKS = 1;
template <>
constexpr int THREADS<contiguous_rows<any_16_bit, alignment::ALL>> = LOGPROB_THREADS_16_BIT;
template <>
constexpr int BLOCKS<contiguous_rows<any_16_bit, alignment::ALL>> = 2;

/* Loads index i of a row. value() waits for the load; the constructor does not. */
struct read_index {
    int low, high;

    __device__ read_index(const ons_logprob &of, int64_t row, int64_t i) : high(0) {
        const int *const at = (const int *)of.index + ((row * of.count + i) << (int)of.wide_index);
        low = at[0];
        if (of.wide_index) high = at[1];
    }
    /* The index, or -1 if it is out of range. */
    __device__ int64_t value(const ons_logprob &of, int64_t N) const {
        const int64_t index =
            of.wide_index ? (int64_t)((uint64_t)high << 32 | (unsigned)low) : (int64_t)low;
        return index >= 0 && index < N ? index : -1;
    }
};

/* Reads element j of a row of this launch. */
template <typename Rows>
struct elements {
    template <typename Index>
    __device__ static auto at(const typename Rows::arguments &args, Index row, int64_t j) {
        const ons_operand &x = args.problem.operand[ONS_X];
        return read_as<typename Rows::Real>(
            row_address(args, row).x + j * x.stride[args.problem.dims - 1], x.dtype);
    }
};
template <typename X, alignment ALIGNED>
struct elements<contiguous_rows<X, ALIGNED>> {
    using Rows = contiguous_rows<X, ALIGNED>;
    template <typename Index>
    __device__ static auto at(const typename Rows::arguments &args, Index row, int64_t j) {
        const X *const x = args.x + (row + args.launch.first_row) * args.x_pitch + j;
        return args.format.with(
            [&](auto type) { return to_real<typename Rows::Real>(*(const decltype(type) *)x); });
    }
};
template <typename Rows, typename Index>
__device__ inline auto element_at(const typename Rows::arguments &args, Index row, int64_t j) {
    return j < 0 ? arithmetic<typename Rows::Real>::nan() : elements<Rows>::at(args, row, j);
}

/* Returns the index of the first element of a tile that equals m. All lanes of the warp call it. */
template <int K, typename Row, typename Real>
__device__ inline int64_t first_of(const Row &row, int tile, Real m) {
    constexpr int V = Row::V;
    const int64_t chunk = (int64_t)tile * K * WARP + threadIdx.x % WARP;
    Real x[K * V];
    int first = INT_MAX;
    known(row, [&](const auto &row) { converted(row.template load<K, WARP>(chunk)).take(x); });
#pragma unroll
    for (int e = K * V - 1; e >= 0; e--)
        if (x[e] == m || (isnan(m) && isnan(x[e])))
            first = (int)(threadIdx.x % WARP) * V + place<WARP, V>(e);
    return (int64_t)tile * K * WARP * V + min_over_warp(first);
}

template <typename Real>
__device__ inline void set_real(void *array, int64_t at, double value) {
    if (array) ((Real *)array)[at] = (Real)value;
}

/* Merges the moments of all warps that share a row, in a fixed order. The first of these warps gets
 * the result. The others get their own moments back. */
template <typename Real>
class warps_of_row {
   public:
    __device__ explicit warps_of_row(int blocks_) : blocks(blocks_) {
#if __CUDA_ARCH__ >= 900
        if (blocks == 1) return;
        arrived().make_ready();
        arrivals::say_ready();
#endif
    }

    __device__ bool is_first() const { return warp() == 0; }

    __device__ moments<Real> merge(const moments<Real> &of_thread, bool counts) const {
        __shared__ moments<Real> parts[LARGEST_CLUSTER * LOGPROB_THREADS / WARP];
        const int warps = blocks * warps_of_block();
        const moments<Real> mine = merge_of_one_m(of_thread, counts);
        if (warps == 1) return mine;
        if (blocks == 1) {
            if (threadIdx.x % WARP == 0) parts[warp()] = mine;
            __syncthreads();
        } else {
#if __CUDA_ARCH__ >= 900
            arrivals::await_ready();
            if (threadIdx.x % WARP == 0) arrived().send(parts + warp(), 0, mine);
            if (!is_first()) return mine;
            arrived().announce(warps * sizeof mine);
            arrived().await();
#endif
        }
        if (!is_first()) return mine;
        const int lane = threadIdx.x % WARP;
        moments<Real> all = lane < warps ? parts[lane] : moments<Real>::empty();
#pragma unroll 1
        for (int i = lane + WARP; i < warps; i += WARP) all = merged(all, parts[i]);
        return merge_over_lanes(all, counts);
    }

   private:
    __device__ int warp() const {
#if __CUDA_ARCH__ >= 900
        if (blocks > 1) return (int)cluster_rank() * warps_of_block() + warp_of_block();
#endif
        return warp_of_block();
    }
#if __CUDA_ARCH__ >= 900
    __device__ static arrivals &arrived() {
        __shared__ arrivals of_row;
        return of_row;
    }
#endif

    const int blocks;
};

/* Writes the results of a row. A whole warp calls it. `first` is the first chosen element. If its
 * index is out of range, it is NaN and is_element is false. */
template <typename Rows, typename Index, typename Row, typename Real>
__device__ inline void write_results(const typename Rows::arguments &args, const ons_logprob &of,
                                     Index index, const Row &row, bool is_element, Real first,
                                     const moments<Real> &all) {
    const int lane = threadIdx.x % WARP;
    const int64_t number = args.launch.first_row + index;
    const bool is_nan = isinf(all.m) || isnan(all.m);
    const Real nan = arithmetic<Real>::nan(), log_d = is_nan ? nan : log(all.d);
    const Real mean = is_nan ? nan : all.w / all.d;
    for (int64_t i = lane; i < of.count; i += WARP) {
        if (i > 0)
            first = element_at<Rows>(args, index, read_index(of, number, i).value(of, args.N));
        set_real<Real>(of.chosen, number * of.count + i, (first - all.m) - log_d);
        if (of.rank && i == 0) of.rank[number] = is_element ? all.above : -1;
    }
    if (of.argmax) {
        const int64_t largest = first_of<CHUNKS<Real>>(row, all.tile, all.m);
        if (lane == 0) of.argmax[number] = largest;
    }
    if (lane > 0) return;
    set_real<Real>(of.entropy, number, log_d - mean);
    set_real<Real>(of.lse, number, isinf(all.m) ? all.m : all.m + log_d);
    if (!of.moments) return;
    ((ons_pair *)of.moments)[number] = ons_pair_of_sum((double)all.m, (double)all.d);
    of.moments[2 * args.rows + number] = (double)mean;
}

template <typename Rows>
__global__ void __launch_bounds__(THREADS<Rows>, BLOCKS<Rows>)
    logprob_kernel(const __grid_constant__ typename Rows::arguments args,
                   const __grid_constant__ ons_logprob of, int parts, int64_t chunks_a_part) {
    using Real = typename Rows::Real;
    constexpr int K = CHUNKS<Real>;
    const warps_of_row<Real> warps(parts);
    await_earlier_work();
    const part_of_rows<Rows, block_a_row> part(args, parts, chunks_a_part);
    const auto index = part.index();
    const auto row = part.row(args);
    const read_index at(of, args.launch.first_row + index, 0);
    Real chosen = of.rank ? element_at<Rows>(args, index, at.value(of, args.N)) : 0;
    running_moments<Real> so_far;
    for_each_tile<block_a_row, K>(row, part.begin, part.end, [&](int64_t chunk, const auto &tile) {
        const int number = (int)(chunk / (K * WARP));
        const bool is_whole = (number + 1ll) * (K * WARP * Rows::V) <= args.N;
        so_far.add(tile, number, is_whole, of.rank, chosen);
    });
    if (!of.rank && warps.is_first()) chosen = element_at<Rows>(args, index, at.value(of, args.N));
    const moments<Real> all = warps.merge(so_far.rounded(), of.rank);
    if (warps.is_first())
        write_results<Rows>(args, of, index, row, at.value(of, args.N) >= 0, chosen, all);
}

ons_status launch_logprob(const launch_request &request) {
    return with_rows<ONS_FAMILY_logprob>(request, [&](auto, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        const ons_plan *plan = request.plan;
        launch_shape shape = {plan->blocks_a_row, plan->threads};
        shape.cluster = (int)plan->blocks_a_row;
        return launch_strips(request, shape, logprob_kernel<Rows>, rows.arguments,
                             *request.problem->logprob, (int)plan->blocks_a_row,
                             plan->tile / Rows::V);
    });
}

/* ------- The gradient ------- */

template <typename Real>
__device__ inline Real real_at(const void *array, int64_t at) {
    return array ? ((const Real *)array)[at] : 0;
}

/* The gradient of an element x is p (all - slope (x - m)). A chosen element gets its own gradient
 * in addition. */
template <typename Real>
struct gradient_of_logprob {
    const ons_logprob &of;
    int64_t row, N;
    Real m, all, slope;

    __device__ gradient_of_logprob(const ons_logprob &of_, int64_t row_, int64_t N_, Real m_,
                                   Real mean)
        : of(of_), row(row_), N(N_), m(m_), slope(real_at<Real>(of_.of_entropy, row_)) {
        all = real_at<Real>(of.of_lse, row);
        if (slope != 0) all = fma(slope, mean, all);
        for (int64_t i = 0; i < of.count; i++)
            all -= index(i) < 0 ? arithmetic<Real>::nan() : more(i);
    }

    /* Turns the softmax of a tile, which begins at element `first`, into its gradient. */
    template <int V, typename Tile, int n>
    __device__ __forceinline__ void finish(int64_t first, const Tile &tile, Real (&y)[n]) const {
        constexpr Real FAR = -1000; /* e^FAR is 0 */
        Real x[n];
        tile.take(x);
#pragma unroll
        for (int e = 0; e < n; e++) y[e] *= fma(-slope, fmax(x[e] - m, FAR), all);
#pragma unroll 1
        for (int64_t i = 0; i < of.count; i++) {
            const int64_t apart = index(i) - first;
            if (apart < 0 || apart > place<WARP, V>(n - 1)) continue;
            const Real own = more(i);
#pragma unroll
            for (int e = 0; e < n; e++)
                if ((int)apart == place<WARP, V>(e)) y[e] += own;
        }
    }

   private:
    __device__ int64_t index(int64_t i) const { return read_index(of, row, i).value(of, N); }
    __device__ Real more(int64_t i) const {
        return real_at<Real>(of.of_chosen, row * of.count + i);
    }
};

template <typename Rows>
__global__ void __launch_bounds__(SPLIT_THREADS)
    logprob_gradient_kernel(const __grid_constant__ typename Rows::arguments args,
                            const __grid_constant__ ons_logprob of, int parts,
                            int64_t chunks_a_part) {
    await_earlier_work();
    using Real = typename Rows::Real;
    constexpr int K = TILE_CHUNKS, V = Rows::V;
    const part_of_rows<Rows, block_a_row> part(args, parts, chunks_a_part);
    const auto row = part.row(args);
    const int64_t number = args.launch.first_row + part.index();
    const state<Real> whole = state_of<Real>(((const ons_pair *)of.moments)[number]);
    const gradient_of_logprob<Real> gradient(of, number, args.N, whole.m,
                                             (Real)of.moments[2 * args.rows + number]);
    const auto constants = constants_of<softmax>(whole);
    const reference<Real> to(whole.m);
    known(row, [&](const auto &row) {
        for_each_tile<block_a_row, K>(
            row, part.begin, part.end, [&](int64_t chunk, const auto &tile) {
                Real y[K * V];
                finish_tile<softmax>(tile, to, constants, y);
                gradient.template finish<V>(chunk * V, tile, y);
                row.template store<K, WARP, true>(chunk, y, tile.allowed(), 0);
            });
    });
}

ons_status launch_logprob_gradient(const launch_request &request) {
    return with_rows<ONS_FAMILY_logprob_gradient>(request, [&](auto, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        const ons_plan *plan = request.plan;
        return launch_strips(request, {plan->blocks_a_row, plan->threads},
                             logprob_gradient_kernel<Rows>, rows.arguments,
                             *request.problem->logprob, (int)plan->blocks_a_row,
                             plan->tile / Rows::V);
    });
}
