/* exact.cu - the exact values, rounded once (api/rounding.h): the maximum, the sum of e^(x - m) in
 * double, and results in double. If one lies too close to the middle of two numbers, the block adds
 * up its row once more, in two doubles. One block a row. exact_held_kernel holds the row in
 * registers, as floats, and moves 1 read + 1 write of N. exact_kernel reads longer rows three
 * times. */
#include "kernel/passes.cuh"
#include "rows/contiguous.cuh"
#include "statistic/rounded.cuh"
#include "team/block.cuh"

using team_of_row = block<WARP>;

/* The row's sums, from this thread's. `sums` adds those apart, if the first show that they are
 * needed. */
template <typename SumsApart>
__device__ inline ons_rounded_row whole_row(float m, ons_dtype to, double sum, bool log,
                                            SumsApart sums_apart) {
    ons_rounded_row row = ons_rounded_row_of((double)m, to);
    row.s.high = team_of_row::near(sum_in_double<float>(sum)).d;
    if (log) {
        row.top = exponentials_in_double(row)(m);
        /* log(d) of a d near 1 needs all digits of d - 1 */
        if (row.s.high < 2 * row.top) {
            const sum_apart all = team_of_row::near(sums_apart(row));
            row.s.high = all.s, row.n = all.n;
        }
    }
    row.second = log ? ons_rounded_log(&row) : ons_rounded_inverse(&row);
    return row;
}

template <int n>
__device__ __forceinline__ double sum_of(const exponentials_in_double &exponential,
                                         const float (&x)[n]) {
    double sum = 0;
#pragma unroll
    for (int i = 0; i < n; i++) sum += exponential(x[i]);
    return sum;
}
template <int n>
__device__ __forceinline__ void add_apart(const ons_rounded_row &row, const float (&x)[n],
                                          sum_apart *sum) {
    const exponentials_in_double exponential(row);
#pragma unroll
    for (int i = 0; i < n; i++) {
        const double e = exponential(x[i]);
        if (e >= row.top)
            sum->n += 1;
        else
            sum->s += e;
    }
}
__device__ inline ons_two_row whole_row_in_two(ons_two_row mine) {
    sum_in_two sum;
    sum.s = mine.s, sum.n = mine.n, sum.below = mine.below;
    sum = team_of_row::near(sum);
    mine.s = sum.s, mine.n = sum.n, mine.below = sum.below != 0;
    ons_two_row_end(&mine);
    return mine;
}

/* Replaces the results that are NaN. */
template <bool LOG, int n>
__device__ __forceinline__ void decide(const ons_two_row &row, ons_dtype to, const float (&x)[n],
                                       float (&y)[n]) {
    float results[n];
#pragma unroll
    for (int i = 0; i < n; i++) results[i] = y[i];
    decide_in_two(row, x, results, n, to, LOG);
#pragma unroll
    for (int i = 0; i < n; i++) y[i] = results[i];
}

template <typename Ops, typename Rows, int K>
__global__ void __launch_bounds__(1024)
    exact_held_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    constexpr int N = K * Rows::V;
    const ons_dtype to = type_of_results(args);
    const auto row = Rows::template row<false>(args, blockIdx.x);
    const int chunk = team_of_row::chunk<K>();
    const auto tile = row.template load<K, WARP>(chunk);
    float x[N], excluded = 0;
    tile.take(x);
    const float m = team_of_row::near(largest{tile.largest()});
    Rows::template ahead<K>(args, blockIdx.x, team_of_row::warp());
    const bool log = args.operation() != ONS_OPERATION_softmax;
    /* Loads the row once more, so that x need not be kept. The block has not written results yet.
     */
    float again[N];
    auto two_doubles = [&] {
        row.template load<K, WARP>(chunk).take(again);
        return whole_row_in_two(add_in_two(ons_two_row_of((double)m), again, N));
    };
    ons_rounded_row whole = {};
    if (isfinite(m)) {
        const ons_rounded_row empty = ons_rounded_row_of((double)m, to);
        whole =
            whole_row(m, to, sum_of(exponentials_in_double(empty), x), log, [&](const auto &row) {
                sum_apart sum;
                add_apart(row, x, &sum);
                return sum;
            });
    }
    if constexpr (Ops::ONE_A_ROW) {
        float value = isfinite(m) ? (float)ons_rounded_logsumexp(&whole) : m;
        if (isfinite(m) && isnan(value)) {
            value = value_in_two(two_doubles(), to);
        }
        if (team_of_row::writes()) row.put(value);
    } else {
        with_operation<Ops>(args.operation(), [&](auto op) {
            using Op = decltype(op);
            constexpr bool LOG = Op::KEEPS == ONS_KEEP_ELEMENTS;
            excluded = Op::EXCLUDED;
            if (!isfinite(m)) {
#pragma unroll
                for (int i = 0; i < N; i++) x[i] = CUDART_NAN_F;
            } else if (__syncthreads_or(rounded_results<LOG>(whole, to, x))) {
                const ons_two_row in_two = two_doubles();
                decide<LOG>(in_two, to, again, x);
            }
        });
        row.template store<K, WARP, false>(chunk, x, tile.allowed(), excluded);
    }
}

template <typename Ops, typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    exact_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    constexpr int N = TILE_CHUNKS * Rows::V;
    const ons_dtype to = type_of_results(args);
    const auto row = Rows::template row<false>(args, blockIdx.x);
    const bool log = args.operation() != ONS_OPERATION_softmax;
    auto for_each = [&](auto visit) {
        for_each_tile<block_a_row, TILE_CHUNKS>(row, 0, chunks_of(row),
                                                [&](int64_t chunk, const auto &tile) {
                                                    float x[N];
                                                    tile.take(x);
                                                    visit(chunk, tile, x);
                                                });
    };
    float own = -CUDART_INF_F;
    for_each([&](int64_t, const auto &tile, const auto &) { own = larger(own, tile.largest()); });
    const float m = team_of_row::near(largest{own});
    auto two_doubles = [&] {
        ons_two_row mine = ons_two_row_of((double)m);
        for_each([&](int64_t, const auto &, const auto &x) {
            float elements[N];
#pragma unroll
            for (int i = 0; i < N; i++) elements[i] = x[i];
            mine = add_in_two(mine, elements, N);
        });
        return whole_row_in_two(mine);
    };
    ons_rounded_row whole = {};
    if (isfinite(m)) {
        long_sum<double> sum;
        const exponentials_in_double exponential(ons_rounded_row_of((double)m, to));
        for_each([&](int64_t, const auto &, const auto &x) { sum.add(sum_of(exponential, x)); });
        whole = whole_row(m, to, sum.rounded(), log, [&](const auto &row) {
            sum_apart all;
            for_each([&](int64_t, const auto &, const auto &x) { add_apart(row, x, &all); });
            return all;
        });
    }
    if constexpr (Ops::ONE_A_ROW) {
        float value = isfinite(m) ? (float)ons_rounded_logsumexp(&whole) : m;
        if (isfinite(m) && isnan(value)) {
            value = value_in_two(two_doubles(), to);
        }
        if (team_of_row::writes()) row.put(value);
    } else {
        with_operation<Ops>(args.operation(), [&](auto op) {
            using Op = decltype(op);
            constexpr bool LOG = Op::KEEPS == ONS_KEEP_ELEMENTS;
            /* in_two: NULL while all results may be decided. Without `stores` it only asks */
            auto results = [&](const ons_two_row *in_two, bool stores) {
                bool undecided = false;
                for_each([&](int64_t chunk, const auto &tile, const auto &x) {
                    float y[N];
#pragma unroll
                    for (int i = 0; i < N; i++) y[i] = isfinite(m) ? x[i] : CUDART_NAN_F;
                    if (isfinite(m)) undecided |= rounded_results<LOG>(whole, to, y);
                    if (in_two) {
                        float elements[N];
#pragma unroll
                        for (int i = 0; i < N; i++) elements[i] = x[i];
                        decide<LOG>(*in_two, to, elements, y);
                    }
                    if (stores)
                        row.template store<TILE_CHUNKS, WARP, true>(chunk, y, tile.allowed(),
                                                                    Op::EXCLUDED);
                });
                return (bool)__syncthreads_or(undecided);
            };
            /* in place, the elements are needed until all results are known to be decided */
            const bool in_place = is_in_place(args);
            if (results(NULL, !in_place)) {
                const ons_two_row in_two = two_doubles();
                results(&in_two, true);
            } else if (in_place) {
                results(NULL, true);
            }
        });
    }
}

/* Calls body(operations, rows) if the arithmetic's elements are floats. */
template <ons_family FAMILY, typename Body>
static ons_status with_float_rows(const launch_request &request, Body body) {
    return with_rows<FAMILY>(request, [&](auto ops, auto rows) -> ons_status {
        if constexpr (std::is_same_v<typename decltype(rows)::Rows::Real, float>)
            return body(ops, rows);
        else
            return ONS_E_OPERAND;
    });
}

ons_status launch_exact(const launch_request &request) {
    return with_float_rows<ONS_FAMILY_exact>(request, [&](auto ops, auto rows) {
        return launch_strips(request, {1, request.plan->threads},
                             exact_kernel<decltype(ops), typename decltype(rows)::Rows>,
                             rows.arguments);
    });
}

ons_status launch_exact_held(const launch_request &request) {
    return with_float_rows<ONS_FAMILY_exact_held>(request, [&](auto ops, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return with_constant<1, 2, 4>(request.plan->elements_a_thread / Rows::V, [&](auto K) {
            return launch_strips(request, {1, request.plan->threads},
                                 exact_held_kernel<decltype(ops), Rows, decltype(K)::value>,
                                 rows.arguments);
        });
    });
}
