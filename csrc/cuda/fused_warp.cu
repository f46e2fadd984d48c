/* fused_warp.cu - the row stays in the registers of one warp, or of a part of its lanes. The part
 * is the smallest whose lanes still read neighbouring addresses. A block has several rows. Lanes
 * exchange by shuffles alone. In the column form a lane has a whole row, and neighbouring rows lie
 * side by side. In packs a lane has four rows of up to 16 elements; two or four lanes share longer
 * rows.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at 32 lanes of 8 chunks, or 12
 * chunks in 16 bits; in the column form at one lane. With a gradient it moves 2 reads + 1 write.
 *
 * fused_warp_staged.cu and gradient_staged.cu take short rows that lie one after the other. */
#include "kernel/held.cuh"
#include "kernel/launch_divergence.cuh"
#include "kernel/launch_loss.cuh"
#include "kernel/launch_columns.cuh"
#include "team/lanes.cuh"

/* Threads of a block, as the compiler assumes when it limits the registers of a thread. 768 leave
 * 80 registers, so that more threads of 16-bit gradients fit a multiprocessor. 8 chunks need more.
 */
template <typename Rows, int K>
constexpr int ASSUMED_THREADS = MOST_WARP_ROW_THREADS;
template <typename T, int K>
constexpr int ASSUMED_THREADS<strided_gradients<T>, K> =
    sizeof(T) == 2 && K < WARP_CHUNKS ? 768 : MOST_WARP_ROW_THREADS;

template <typename Ops, typename Rows, typename Team, int K>
__global__ void __launch_bounds__(ASSUMED_THREADS<Rows, K>)
    fused_warp_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work(args.launch.next_may_start);
    Team team;
    held<Ops, Rows, K>(args, team);
}

/* The shapes in kernels.def that have a kernel for these rows. */
template <typename Rows>
constexpr ons_warp_rows SHAPED_AS = ONS_ALL_ROWS;
template <typename X, alignment ALIGNED>
constexpr ons_warp_rows SHAPED_AS<contiguous_rows<X, ALIGNED>> =
    sizeof(X) == 2 ? ONS_16_BIT_ROWS : ONS_ALL_ROWS;
template <typename X, alignment ALIGNED>
constexpr ons_warp_rows SHAPED_AS<masked_rows<X, ALIGNED>> =
    sizeof(X) == 2 ? ONS_16_BIT_ROWS : ONS_ALL_ROWS;

/* Both call body(lanes, chunks) with the plan's numbers as constants. */
template <typename Ops, typename Rows, typename Body>
static ons_status with_warp_shape(const ons_plan *plan, Body body) {
    ons_status status = ONS_E_OPERAND;
#define ONS_WARP_SHAPE(operations, rows, L, K)                                                   \
    if constexpr (Ops::ONE_A_ROW == ONS_OF_##operations && SHAPED_AS<Rows> == ONS_##rows##_ROWS) \
        if (plan->lanes == L && plan->elements_a_thread == K * Rows::V)                          \
            status = body(std::integral_constant<int, L>(), std::integral_constant<int, K>());
#include "kernels.def"
#undef ONS_WARP_SHAPE
    return status;
}
template <int V, typename Body>
static ons_status with_gradient_shape(const ons_plan *plan, Body body) {
    ons_status status = ONS_E_OPERAND;
#define ONS_GRADIENT_SHAPE(L, K)                              \
    if (plan->lanes == L && plan->elements_a_thread == K * V) \
        status = body(std::integral_constant<int, L>(), std::integral_constant<int, K>());
#include "kernels.def"
#undef ONS_GRADIENT_SHAPE
    return status;
}

template <typename Ops, typename Rows, typename Team, int K>
static ons_status launch_as(const launch_request &request, const typename Rows::arguments &rows) {
    launch_shape shape = {1, request.plan->threads};
    shape.rows = rows.rows;
    return launch_strips(request, shape, fused_warp_kernel<Ops, Rows, Team, K>, rows);
}

/* The lanes that share a column of at most N packs. */
template <typename Ops>
constexpr int lanes_of_column(int N) {
    const int most = TAKES_TWO_ROWS<Ops> ? GRADIENT_PACKS_A_LANE : PACKS_A_LANE;
    return N > 2 * most ? 4 : N > most ? 2 : 1;
}

template <typename Ops, typename Columns>
static ons_status launch_packs(const launch_request &request, const Columns &columns) {
    using Rows = typename Columns::Rows;
    const int tile = (int)request.plan->tile;
    auto launch = [&](auto N) {
        constexpr int K = decltype(N)::value, ALONG = lanes_of_column<Ops>(K);
        return launch_as<Ops, Rows, lanes_of_packs<Rows::C, ALONG>, K / ALONG>(request,
                                                                               columns.arguments);
    };
    if constexpr (Rows::APART > 1)
        return with_constant<4, 8, 16, LONGEST_BESIDE>(tile, launch);
    else
        return with_constant<4, 8, 16, 24, 32>(tile, launch);
}

template <typename Ops, typename Columns>
static ons_status launch_columns(const launch_request &request, const Columns &columns) {
    using Rows = typename Columns::Rows;
    return with_constant<1, 2, 4, 6, 8>(request.plan->elements_a_thread / Rows::V, [&](auto K) {
        return launch_as<Ops, Rows, lane_a_column, decltype(K)::value>(request, columns.arguments);
    });
}

ons_status launch_fused_warp(const launch_request &request) {
    constexpr ons_family FAMILY = ONS_FAMILY_fused_warp;
    const ons_plan *plan = request.plan;
    auto packs = [&](auto ops, auto rows) { return launch_packs<decltype(ops)>(request, rows); };
    auto columns = [&](auto ops, auto rows) {
        return launch_columns<decltype(ops)>(request, rows);
    };
    if (plan->loader == ONS_PACKED) return with_slices<FAMILY, whole_packs>(request, packs);
    if (plan->loader == ONS_PACKED_APART) return with_slices<FAMILY, packs_apart>(request, packs);
    if (plan->loader == ONS_STRIDED) return with_slices<FAMILY, strided_rows>(request, columns);
    if (plan->form == ONS_COLUMN_FORM) return with_columns<FAMILY>(request, columns);
    return with_rows<FAMILY>(request, [&](auto ops, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return with_warp_shape<decltype(ops), Rows>(plan, [&](auto L, auto K) {
            return launch_as<decltype(ops), Rows, lanes<decltype(L)::value>, decltype(K)::value>(
                request, rows.arguments);
        });
    });
}

ons_status launch_losses_in_warp(const launch_request &request) {
    return with_loss_rows<ONS_FAMILY_fused_warp>(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return with_warp_shape<loss_operation, Rows>(request.plan, [&](auto L, auto K) {
            return launch_as<loss_operation, Rows, lanes<decltype(L)::value>, decltype(K)::value>(
                request, rows.arguments);
        });
    });
}

ons_status launch_gradients_in_warp(const launch_request &request) {
    if (request.plan->loader == ONS_PACKED)
        return with_packed_gradients(
            request, [&](auto rows) { return launch_packs<gradient_operations>(request, rows); });
    if (request.plan->form == ONS_COLUMN_FORM)
        return with_gradient_columns(
            request, [&](auto rows) { return launch_columns<gradient_operations>(request, rows); });
    return with_gradient_rows(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return with_gradient_shape<Rows::V>(request.plan, [&](auto L, auto K) {
            return launch_as<gradient_operations, Rows, lanes<decltype(L)::value>,
                             decltype(K)::value>(request, rows.arguments);
        });
    });
}

ons_status launch_divergences_in_warp(const launch_request &request) {
    return with_divergence_rows(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return with_constant<DIVERGENCE_LANES, WARP>(request.plan->lanes, [&](auto L) {
            return launch_as<divergence_operation, Rows, lanes<decltype(L)::value>, WARP_CHUNKS>(
                request, rows.arguments);
        });
    });
}
