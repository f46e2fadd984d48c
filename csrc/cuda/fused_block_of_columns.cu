/* fused_block_of_columns.cu - fused_block in the column form: a strip of columns stays in the
 * registers of one block, and each thread has a part of a column, or of four. Exponentials are
 * relative to each part's maximum, and one exchange merges the (m, d). Then every thread moves its
 * exponentials to the column's reference, by an exact power of two. */
#include "kernel/held.cuh"
#include "kernel/launch_gradient.cuh"
#include "kernel/launch_columns.cuh"
#include "team/wide_strip.cuh"

template <typename Ops, typename Rows, typename Form>
__global__ void __launch_bounds__(Rows::BLOCK_THREADS, Rows::BLOCKS)
    fused_block_of_columns_kernel(const __grid_constant__ typename Rows::arguments args) {
    await_earlier_work(args.launch.next_may_start);
    using Real = typename Rows::Real;
    using Team =
        std::conditional_t<std::is_same_v<Form, wide>, wide_strip<Real, Rows::BLOCK_THREADS>,
                           strip_of_block<Form, Real, Rows::BLOCK_THREADS / WARP>>;
    Team team(args);
    held<Ops, Rows, BLOCK_CHUNKS>(args, team);
}

template <typename Form>
static auto launch_as(const launch_request &request, Form) {
    return [&request](auto ops, auto rows) {
        using Rows = typename decltype(rows)::Rows;
        return launch_strips(request, {1, request.plan->threads},
                             fused_block_of_columns_kernel<decltype(ops), Rows, Form>,
                             rows.arguments);
    };
}

ons_status launch_fused_block_of_columns(const launch_request &request) {
    constexpr ons_family FAMILY = ONS_FAMILY_fused_block_of_columns;
    if (request.plan->loader == ONS_PACKED)
        return with_slices<FAMILY, whole_packs>(request,
                                                launch_as(request, block_of_packs<CHUNK<float>>()));
    if (request.plan->loader == ONS_STRIDED)
        return with_slices<FAMILY, strided_rows>(request, [&](auto ops, auto rows) {
            if constexpr (decltype(rows)::Rows::IS_16_BIT)
                return ONS_E_OPERAND;
            else
                return launch_as(request, wide())(ops, rows);
        });
    return with_columns<FAMILY>(request, launch_as(request, block_of_columns()));
}

ons_status launch_gradients_in_block_of_columns(const launch_request &request) {
    if (request.plan->loader == ONS_PACKED)
        return with_packed_gradients(request, [&](auto rows) {
            return launch_as(request, block_of_packs<CHUNK<float>>())(gradient_operations(), rows);
        });
    return with_gradient_columns(request, [&](auto rows) {
        if constexpr (decltype(rows)::Rows::IN_WIDE_STRIPS)
            if (request.plan->width != WARP) /* of WARP columns, both teams are the same */
                return launch_as(request, wide())(gradient_operations(), rows);
        return launch_as(request, block_of_columns())(gradient_operations(), rows);
    });
}
