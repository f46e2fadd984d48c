/* exact.cu - the exact values, rounded once (api/rounding.h): the maximum, the sum of e^(x - m) in
 * double, and results in double. If a result lies too close to the middle of two numbers, the
 * threads of its row add up the row once more, in two doubles.
 *
 * Some lanes of a warp, a block or a cluster hold a row in registers, which moves 1 read + 1 write
 * of N. softmax keeps its exponentials in double, so a thread holds few elements. exact_kernel
 * reads longer rows: twice, or three times if y is x, or once for logsumexp. */
#include "kernel/exact_passes.cuh"
#include "rows/contiguous.cuh"
#include "rows/result_type.cuh"
#include "team/lanes.cuh"
#include "team/whole_cluster.cuh"

/* logsumexp, NaN if a double cannot decide. */
__device__ inline float value_of(double m, double log, ons_dtype to) {
    const double value = m + log;
    return (float)ons_decided(value, result_error(true) * (log + fabs(value)), ons_rounding_to(to));
}

/* Decides the results that are marked. Returns whether a double cannot, and leaves NaN there. Whole
 * warps call it. */
template <int n, typename Elements>
__device__ __forceinline__ bool decide_in_double(const row_in_double &row, ons_dtype to, bool log,
                                                 bool marked, const unsigned (&marks)[n / 2],
                                                 float (&y)[n], Elements elements) {
    if (!__any_sync(~0u, marked)) return false;
    float x[n];
    elements(x);
    in_memory<float, n> results(y);
    const bool undecided =
        marked && decide_in_double(row.exponential, row.m, row.second, in_memory<float, n>(x).x,
                                   results.x, in_memory<unsigned, n / 2>(marks).x, n, to, log);
    results.to(y);
    return undecided;
}
template <int n>
__device__ __forceinline__ void decide_in_two(const ons_two_row &row, ons_dtype to, bool log,
                                              const float (&x)[n], float (&y)[n]) {
    in_memory<float, n> results(y);
    decide_in_two(row, in_memory<float, n>(x).x, results.x, n, to, log);
    results.to(y);
}

/* The walk of a row that is held from its load to its store. The three kernels after it differ in
 * who shares a row. */
template <typename Ops, typename Rows, int K, typename Team>
__device__ __forceinline__ void exact_held(const typename Rows::arguments &args, const Team &team) {
    constexpr int N = K * Rows::V, STRIDE = Team::STRIDE;
    const ons_dtype to = type_of_results(args);
    const auto index = team.row();
    const auto row = Rows::template row<Team::CHECK_ROW>(args, index);
    const int chunk = team.template chunk<K>();
    const auto tile = row.template load<K, STRIDE>(chunk);
    sixteenths::ready();
    __syncthreads();
    float x[N], excluded = 0;
    const float largest_of_row = team.near(largest{tile.largest()});
    if constexpr (Team::FETCHES) Rows::template ahead<K>(args, index, team.warp());
    const bool finite = isfinite(largest_of_row);
    const float m = finite ? largest_of_row : 0;
    /* Loads the row once more, so that x need not be kept. This warp has not written results yet.
     */
    auto elements = [&](float(&again)[N]) { row.template load<K, STRIDE>(chunk).take(again); };
    auto two_doubles = [&](const float(&again)[N]) {
        return whole_in_two(team,
                            add_in_two(ons_two_row_of((double)m), in_memory<float, N>(again).x, N));
    };
    row_in_double whole = {exponentials_in_double(m), m, 0};
    auto sums_apart = [&](double top) {
        float again[N];
        elements(again);
        return add_apart(whole.exponential, top, {}, in_memory<float, N>(again).x, N);
    };
    /* Takes x, and keeps exponentials in e. */
    auto sum_of_tile = [&](double(&e)[N]) {
        tile.take(x);
        if (whole.exponential.base != 0) {
#pragma unroll
            for (int i = 0; i < N; i++) x[i] -= whole.exponential.base;
        }
        return sum_as_tree<N>(0,
                              [&](int i) { return e[i] = whole.exponential.of_difference(x[i]); });
    };
    double e[N];
    if constexpr (Ops::ONE_A_ROW) {
        const double log = whole_sum<true>(team, whole.exponential, m, sum_of_tile(e), sums_apart);
        float value = finite ? value_of(m, log, to) : largest_of_row;
        const bool undecided = finite && isnan(value);
        if (team.any(undecided)) {
            elements(x);
            const ons_two_row in_two = two_doubles(x);
            if (undecided) value = value_in_two(in_two, to);
        }
        if (team.writes() && (!Team::CHECK_ROW || index + args.launch.first_row < args.rows))
            row.put(value);
    } else {
        bool log = false, undecided = false;
        unsigned marks[N / 2];
        with_operation<Ops>(args.operation(), [&](auto op) {
            using Op = decltype(op);
            constexpr bool LOG = Op::KEEPS == ONS_KEEP_ELEMENTS;
            excluded = Op::EXCLUDED, log = LOG;
            const double d = whole_sum<LOG>(team, whole.exponential, m, sum_of_tile(e), sums_apart);
            whole.second = LOG ? d : 1 / d;
            if (LOG) {
                tile.take(x);
#pragma unroll
                for (int i = 0; i < N; i++) e[i] = log_result(x[i], m, d);
            }
            undecided = rounded<LOG>(to, e, LOG ? 1 : whole.second, x, marks) && finite;
        });
        undecided = decide_in_double(whole, to, log, undecided, marks, x, elements);
        if (team.any(undecided)) {
            float again[N];
            elements(again);
            decide_in_two(two_doubles(again), to, log, again, x);
        }
        if (!finite) {
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = CUDART_NAN_F;
        }
        row.template store<K, STRIDE, Team::STREAM>(chunk, x, tile.allowed(), excluded);
    }
}

/* Blocks of EXACT_BLOCK_THREADS with K chunks that fit a multiprocessor. */
template <int K>
constexpr int MIN_BLOCKS = 2 * EXACT_CHUNKS / K;

template <typename Ops, typename Rows>
__global__ void __launch_bounds__(EXACT_BLOCK_THREADS, MIN_BLOCKS<EXACT_CHUNKS>)
    exact_block_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    exact_held<Ops, Rows, EXACT_CHUNKS>(args, block<WARP>());
}

/* With few chunks a thread needs fewer registers, so more blocks fit a multiprocessor. */
template <typename Ops, typename Rows, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS, K < EXACT_CHUNKS ? 10 : 8)
    exact_warp_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    exact_held<Ops, Rows, K>(args, lanes<LANES>());
}

template <typename Ops, typename Rows, int K>
__global__ void __launch_bounds__(EXACT_BLOCK_THREADS, MIN_BLOCKS<K>)
    exact_cluster_kernel(const __grid_constant__ typename Rows::arguments args) {
#if __CUDA_ARCH__ >= 900
    const whole_cluster team;
    await_earlier_work();
    exact_held<Ops, Rows, K>(args, team);
#endif
}

/* The results of a row that is not held. `passes` are exact_passes or exact_given. */
template <typename Ops, typename Arguments, typename Row, typename Passes>
__device__ __forceinline__ void exact_results(const Arguments &args, const Row &row,
                                              const Passes &passes) {
    constexpr int N = Passes::N;
    const ons_dtype to = type_of_results(args);
    const float m = passes.m;
    if constexpr (Ops::ONE_A_ROW) {
        float value = m;
        if (isfinite(m)) {
            value = value_of(m, passes.template sum<true>(), to);
            if (isnan(value)) value = value_in_two(passes.in_two(), to);
        }
        if (passes.team.writes()) row.put(value);
    } else {
        with_operation<Ops>(args.operation(), [&](auto op) {
            using Op = decltype(op);
            constexpr bool LOG = Op::KEEPS == ONS_KEEP_ELEMENTS;
            const row_in_double whole = in_double<LOG>(passes);
            /* in_two: NULL while all results may be decided. Without `stores` it only asks */
            auto results = [&](const ons_two_row *in_two, bool stores) {
                bool any = false;
                passes.for_each([&](int64_t chunk, const auto &tile, const auto &x) {
                    float y[N];
                    if (isfinite(m)) {
                        double v[N];
                        unsigned marks[N / 2];
#pragma unroll
                        for (int i = 0; i < N; i++)
                            v[i] =
                                LOG ? log_result(x[i], m, whole.second) : whole.exponential(x[i]);
                        const bool marked = rounded<LOG>(to, v, LOG ? 1 : whole.second, y, marks);
                        any |= decide_in_double(whole, to, LOG, marked, marks, y,
                                                [&](float(&again)[N]) {
#pragma unroll
                                                    for (int i = 0; i < N; i++) again[i] = x[i];
                                                });
                        if (in_two) decide_in_two(*in_two, to, LOG, x, y);
                    } else {
#pragma unroll
                        for (int i = 0; i < N; i++) y[i] = CUDART_NAN_F;
                    }
                    if (stores)
                        row.template store<TILE_CHUNKS, WARP, true>(chunk, y, tile.allowed(),
                                                                    Op::EXCLUDED);
                });
                return passes.team.any(any);
            };
            const bool in_place = is_in_place(args);
            if constexpr (Passes::GIVEN) {
                const ons_two_row in_two = passes.in_two();
                results(&in_two, true);
            } else if (results(NULL, !in_place)) {
                /* in place, the elements are needed until all results are known to be decided */
                const ons_two_row in_two = passes.in_two();
                results(&in_two, true);
            } else if (in_place) {
                results(NULL, true);
            }
        });
    }
}

/* A block reads its row twice, since the row is longer than what a cluster holds. */
template <typename Ops, typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    exact_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    const auto row = Rows::template row<false>(args, blockIdx.x);
    exact_results<Ops>(args, row, exact_passes(row));
}

/* Reads a row, or a part of it, once. */
template <typename Ops, typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    exact_given_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    const auto row = Rows::template row<false>(args, blockIdx.x);
    const double *const state = (const double *)row_address(args, blockIdx.x, ONS_STATISTIC).x;
    exact_results<Ops>(args, row, exact_given(row, state));
}

/* Finds the state of each row, or of a part of it. A block reads its row twice. */
template <typename Rows>
__global__ void __launch_bounds__(PASS_THREADS)
    exact_states_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work();
    const auto row = Rows::template row<false>(args, blockIdx.x);
    const exact_passes passes(row);
    const ons_two_row whole =
        isfinite(passes.m) ? passes.in_two() : ons_two_row_of_none((double)passes.m);
    if (passes.team.writes()) ons_two_row_to(&whole, (double *)row_address(args, blockIdx.x).y);
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

ons_status launch_exact_given(const launch_request &request) {
    return with_float_rows<ONS_FAMILY_exact_given>(request, [&](auto ops, auto rows) {
        return launch_strips(request, {1, request.plan->threads},
                             exact_given_kernel<decltype(ops), typename decltype(rows)::Rows>,
                             rows.arguments);
    });
}

ons_status launch_exact_states(const launch_request &request) {
    return with_float_rows<ONS_FAMILY_exact_states>(request, [&](auto, auto rows) {
        return launch_strips(request, {1, request.plan->threads},
                             exact_states_kernel<typename decltype(rows)::Rows>, rows.arguments);
    });
}

ons_status launch_exact_held(const launch_request &request) {
    return with_float_rows<ONS_FAMILY_exact_held>(request, [&](auto ops, auto rows) {
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        const ons_plan *plan = request.plan;
        const launch_shape shape = {1, plan->threads};
        ons_status status = ONS_E_OPERAND;
#define ONS_EXACT_SHAPE(L, K)                                       \
    if (plan->lanes == L && plan->elements_a_thread == K * Rows::V) \
        status = launch_strips(request, shape, exact_warp_kernel<Ops, Rows, L, K>, rows.arguments);
#include "kernels.def"
#undef ONS_EXACT_SHAPE
        if (plan->lanes == 0)
            status = launch_strips(request, shape, exact_block_kernel<Ops, Rows>, rows.arguments);
        return status;
    });
}

ons_status launch_exact_in_cluster(const launch_request &request) {
    return with_float_rows<ONS_FAMILY_exact_in_cluster>(request, [&](auto ops, auto rows) {
        launch_shape shape = {request.plan->blocks_a_row, request.plan->threads};
        shape.cluster = (int)request.plan->blocks_a_row;
        using Ops = decltype(ops);
        using Rows = typename decltype(rows)::Rows;
        return with_constant<EXACT_CHUNKS, LONG_EXACT_CHUNKS>(
            request.plan->elements_a_thread / Rows::V, [&](auto K) {
                return launch_strips(request, shape,
                                     exact_cluster_kernel<Ops, Rows, decltype(K)::value>,
                                     rows.arguments);
            });
    });
}
