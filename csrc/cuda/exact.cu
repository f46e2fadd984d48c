/* exact.cu - the exact values, rounded once (api/rounding.h): the sum of exponentials in double,
 * and results in double. If a double cannot decide a result, the threads of its row walk the row
 * again: by its maximum, and then in two doubles.
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
__device__ inline float value_of(const row_in_double &row, ons_dtype to) {
    const double log = row.second, value = row.m + log,
                 error = row.relative * (fabs(log) + fabs(value)) + row.error;
    return (float)ons_decided(value, error, ons_rounding_to(to));
}

/* Whether the thread's row is one of the array's rows. */
template <typename Rows, typename Team>
__device__ bool has_row(const typename Rows::arguments &args, const Team &team) {
    return !Team::CHECK_ROW || team.row() + args.launch.first_row < args.rows;
}

/* Whether the operation is log_softmax. Gives the result of an excluded element. */
template <typename Ops, typename Arguments>
__device__ bool takes_log(const Arguments &args, float *excluded) {
    bool log = false;
    with_operation<Ops>(args.operation(), [&](auto op) {
        using Op = decltype(op);
        log = Op::KEEPS == ONS_KEEP_ELEMENTS, *excluded = Op::EXCLUDED;
    });
    return log;
}

/* What a walk did. If it did not store the row, the maximum may help or may not. */
enum class outcome { STORED, NEEDS_MAXIMUM, NEEDS_TWO_DOUBLES };

/* The walk of a held row from its load to its store. It stores nothing if it cannot decide a
 * result.
 *
 * BY_MAXIMUM: the exponentials are relative to m, and the elements that are equal to m are counted
 * apart. Otherwise the walk adds up e^x. So it needs no maximum, and the threads of the row meet
 * once less. But exponentials may overflow, and a d near e^m has lost digits of its logarithm. */
template <bool BY_MAXIMUM, typename Ops, typename Rows, int K, typename Team>
__device__ __forceinline__ outcome exact_in_double(const typename Rows::arguments &args,
                                                   Team &team) {
    constexpr int N = K * Rows::V, STRIDE = Team::STRIDE;
    const ons_dtype to = type_of_results(args);
    const auto row = Rows::template row<Team::CHECK_ROW>(args, team.row());
    const int chunk = team.template chunk<K>();
    const auto tile = row.template load<K, STRIDE>(chunk);
    const powers_of_lanes powers;
    float x[N], largest_of_row = 0, excluded = 0;
    double e[N];
    if constexpr (BY_MAXIMUM)
        largest_of_row = team.near(largest{tile.largest()});
    else if constexpr (Team::FETCHES)
        Rows::template ahead<K>(args, team.row(), team.warp());
    const bool finite = isfinite(largest_of_row);
    row_in_double whole;
    if (BY_MAXIMUM) whole = row_in_double(finite ? largest_of_row : 0);
    bool summed = true;
    /* Takes x, keeps exponentials in e, and gives 1 / d, or log(d). */
    auto add_up = [&](bool log) {
        tile.take(x);
        if constexpr (BY_MAXIMUM) {
            const double top = whole.exponential(whole.m);
            sum_apart sum;
#pragma unroll
            for (int i = 0; i < N; i++) sum.n += x[i] == whole.m;
            sum.s = sum_as_tree<N>(0, [&](int i) {
                e[i] = whole.exponential(x[i], powers);
                return x[i] == whole.m ? 0 : e[i];
            });
            sum = team.near(sum);
            whole.second =
                log ? log_of_1_and((sum.n - 1) + sum.s / top) : 1 / (sum.n * top + sum.s);
        } else {
            double d = sum_as_tree<N>(
                0, [&](int i) { return e[i] = whole.exponential.of_difference(x[i], powers); });
            if (!(tile.largest() < LARGEST_FOR_SUM)) d = CUDART_NAN;
            d = team.near(sum_in_double<float>(d)).d;
            summed = d > LEAST_SUM;
            if (log)
                whole.take_log(log_of(d));
            else
                whole.second = 1 / d;
        }
    };
    if constexpr (Ops::ONE_A_ROW) {
        add_up(true);
        const float value = finite ? value_of(whole, to) : largest_of_row;
        if (team.any((finite && isnan(value)) || !summed)) return outcome::NEEDS_MAXIMUM;
        if (team.writes() && has_row<Rows>(args, team)) row.put(value);
    } else {
        const bool log = takes_log<Ops>(args, &excluded);
        bool undecided = false;
        if (BY_MAXIMUM) add_up(log);
        with_operation<Ops>(args.operation(), [&](auto op) {
            constexpr bool LOG = decltype(op)::KEEPS == ONS_KEEP_ELEMENTS;
            if (!BY_MAXIMUM) add_up(LOG); /* for each operation: it takes fewer registers */
            if (LOG) {
                tile.take(x);
#pragma unroll
                for (int i = 0; i < N; i++) e[i] = log_result(x[i], whole.m, whole.second);
            }
            undecided = rounded<LOG>(to, e, whole, x);
        });
        if (team.any((finite && undecided) || !summed))
            return log || !summed ? outcome::NEEDS_MAXIMUM : outcome::NEEDS_TWO_DOUBLES;
        if (!finite) {
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = CUDART_NAN_F;
        }
        row.template store<K, STRIDE, Team::STREAM>(chunk, x, tile.allowed(), excluded);
    }
    return outcome::STORED;
}

/* The walk that decides all results. The elements are in local memory, since few rows need it. It
 * adds up the row in two doubles: at first nearly, then exactly if that does not decide all
 * results.
 */
template <typename Ops, typename Rows, int K, typename Team>
__device__ __forceinline__ void exact_in_two(const typename Rows::arguments &args, Team &team) {
    constexpr int N = K * Rows::V, STRIDE = Team::STRIDE;
    const ons_dtype to = type_of_results(args);
    const auto row = Rows::template row<Team::CHECK_ROW>(args, team.row());
    const int chunk = team.template chunk<K>();
    const auto tile = row.template load<K, STRIDE>(chunk);
    float x[N], y[N], excluded = 0;
    tile.take(x);
    const float m = team.near(largest{tile.largest()});
    const bool finite = isfinite(m);
    const row_in_double whole(finite ? m : 0);
#pragma unroll 1
    for (bool nearly = true;; nearly = false) {
        const ons_two_row of_thread =
            add_in_two<AT_ONCE>(ons_two_row_of((double)m), nearly, x, finite ? N : 0);
        const ons_two_row in_two = whole_in_two(team, of_thread);
        if constexpr (Ops::ONE_A_ROW) {
            const float value = finite ? result_in_two(in_two, nearly, 0, LOGSUMEXP, to) : m;
            if (team.any(finite && isnan(value))) continue;
            if (team.writes() && has_row<Rows>(args, team)) row.put(value);
        } else {
            const bool log = takes_log<Ops>(args, &excluded);
            if (nearly) decide_in_double<AT_ONCE>(whole.of(in_two, log), x, y, N, to, log);
            const bool undecided = decide_in_two(in_two, nearly, x, y, N, to, log);
            if (team.any(finite && undecided)) continue;
            if (!finite) {
#pragma unroll
                for (int i = 0; i < N; i++) y[i] = CUDART_NAN_F;
            }
            row.template store<K, STRIDE, Team::STREAM>(chunk, y, tile.allowed(), excluded);
        }
        return;
    }
}

/* The walks that few rows need. They are called, so that the code of other rows keeps its
 * registers. */
template <typename Ops, typename Rows, int K, typename Team>
static __device__ __noinline__ void exact_again(const typename Rows::arguments &args, Team team,
                                                outcome before) {
    if (!team.any(before == outcome::NEEDS_MAXIMUM) ||
        exact_in_double<true, Ops, Rows, K>(args, team) != outcome::STORED)
        exact_in_two<Ops, Rows, K>(args, team);
}

/* The three kernels that use it differ in who shares a row. */
template <typename Ops, typename Rows, int K, typename Team>
__device__ __forceinline__ void exact_held(const typename Rows::arguments &args, Team team) {
    const outcome first = exact_in_double<false, Ops, Rows, K>(args, team);
    if (first != outcome::STORED) exact_again<Ops, Rows, K>(args, team, first);
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
            value = value_of(in_double<true>(passes), to);
            if (isnan(value)) value = result_in_two(passes.in_two(), false, 0, LOGSUMEXP, to);
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
#pragma unroll
                        for (int i = 0; i < N; i++)
                            v[i] = LOG ? log_result(x[i], m, whole.second)
                                       : whole.exponential(x[i], passes.powers);
                        if (rounded<LOG>(to, v, whole, y)) {
                            const in_memory<float, N> elements(x);
                            in_memory<float, N> in_memory_y(y);
                            any |= decide_in_double<AT_ONCE>(whole, elements.x, in_memory_y.x, N,
                                                             to, LOG);
                            if (in_two)
                                decide_in_two(*in_two, false, elements.x, in_memory_y.x, N, to,
                                              LOG);
                            in_memory_y.to(y);
                        }
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
__global__ void __launch_bounds__(PASS_THREADS, Ops::ONE_A_ROW ? 2 : 1)
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
