/* topk/launch.cuh - launch_rows.cuh for softmax_topk. */
#ifndef ONS_LAUNCH_TOPK_CUH
#define ONS_LAUNCH_TOPK_CUH

#include "../kernel/launch_rows.cuh"
#include "results.cuh"
#include "shapes.h"

/* Number of entries in a block's list, from `least` up. It is a power of two, so that the list can
 * be sorted, and at least 2 k, so that a bound need not be exact. */
inline int topk_room(const launch_request &request, int least) {
    while (least < 2 * request.problem->k) least *= 2;
    return least;
}

/* Whether the results of each row lie side by side, aligned for writing two at a time. */
inline bool is_of_pairs(const results_at &results) {
    const int64_t size = ons_dtype_size(results.dtype);
    return results.along == size && ((int64_t)results.data | results.pitch) % (2 * size) == 0;
}

/* Whether the results of each row begin at a multiple of 16 bytes. */
inline bool is_aligned(const results_at &results) {
    return ((int64_t)results.data | results.pitch) % 16 == 0;
}

template <typename Rows, typename Body>
ons_status with_topk_arguments(const launch_request &request, const typename Rows::arguments &rows,
                               int room, Body body) {
    const ons_problem *problem = request.problem;
    auto at = [&](ons_role role) -> results_at {
        const ons_operand *operand = &problem->operand[role];
        return {operand->data, problem->dims == 1 ? 0 : operand->stride[0],
                operand->stride[problem->dims - 1], operand->dtype};
    };
    const results_at values = at(ONS_Y), indices = at(ONS_INDICES);
    const bool in_pairs = !HAS_PROBLEM<Rows> && problem->k % 2 == 0 &&
                          values.dtype != ONS_FLOAT64 && is_of_pairs(values) &&
                          is_of_pairs(indices);
    const bool side_by_side = values.along == ons_dtype_size(values.dtype) &&
                              indices.along == ons_dtype_size(indices.dtype);
    topk_arguments<Rows> arguments = {rows,
                                      values,
                                      indices,
                                      at(ONS_STATISTIC),
                                      (int)problem->k,
                                      room,
                                      problem->log,
                                      in_pairs,
                                      1,
                                      request.plan->N,
                                      request.workspace,
                                      problem->operation == ONS_OPERATION_route,
                                      side_by_side,
                                      side_by_side && is_aligned(values) && is_aligned(indices)};
    if (arguments.routes) {
        arguments.route = *problem->route;
        arguments.needs_pair = ons_route_needs_pair(problem->route);
        arguments.softmax_of_k = ons_route_is_softmax_of_k(problem->route);
    }
    if (request.sampler) arguments.sampler = *request.sampler;
    return body(rows_of<Rows>{rows}, arguments);
}

/* Whether the plan fits the kernel for aligned rows. That kernel has long 16-bit tiles, so a plan
 * with short ones needs the other kernel. */
template <typename X>
bool fits_aligned_rows(const ons_plan *plan) {
    constexpr int SHORT = TOPK_TILE_CHUNKS * CHUNK<typename compute_of<X>::type>;
    return plan->all_aligned && !(sizeof(X) == 2 && plan->elements_a_thread == SHORT);
}

template <typename X, bool BOTH, typename Body>
ons_status with_topk_type(const launch_request &request, int room, Body body) {
    const ons_problem *problem = request.problem;
    const ons_plan *plan = request.plan;
    const int64_t pitch =
        problem->dims == 1 ? 0 : problem->operand[ONS_X].stride[0] / (int64_t)sizeof(X);
    auto arguments = [&](auto rows) -> typename decltype(rows)::arguments {
        return {(const X *)problem->operand[ONS_X].data,
                nullptr,
                pitch,
                0,
                plan->rows,
                plan->N,
                {},
                plan->rows,
                problem->operation,
                element_format<X>(),
                false};
    };
    constexpr bool TWO = BOTH && sizeof(X) <= sizeof(float);
    using Aligned = contiguous_rows<X, alignment::ALL>;
    using Others =
        contiguous_rows<X, TWO && sizeof(X) == 2 ? alignment::NOT_ALL : alignment::EITHER>;
    if constexpr (TWO)
        if (fits_aligned_rows<X>(plan))
            return with_topk_arguments<Aligned>(request, arguments(Aligned()), room, body);
    return with_topk_arguments<Others>(request, arguments(Others()), room, body);
}

template <typename Body>
ons_status with_general_topk_rows(const launch_request &request, int room, Body body) {
    return request.plan->compute == ONS_FLOAT64
               ? with_topk_arguments<general_rows<double>>(request, as_it_is(request), room, body)
               : with_topk_arguments<general_rows<float>>(request, as_it_is(request), room, body);
}

/* Calls body(rows_of<Rows>, topk_arguments<Rows>) with the Rows that fit; a list has `room`
 * entries. With BOTH, launches whose rows are all aligned have Rows of their own. */
template <bool BOTH = false, typename Body>
ons_status with_topk_rows(const launch_request &request, int room, Body body) {
    if (request.plan->loader != ONS_CONTIGUOUS) return with_general_topk_rows(request, room, body);
    if (request.plan->compute == ONS_FLOAT64)
        return with_topk_type<double, BOTH>(request, room, body);
    return with_type_up_to_32_bits(request, [&](auto type) {
        return with_topk_type<decltype(type), BOTH>(request, room, body);
    });
}

/* The same for kernels that take a row, or a part of a row, by a block. There rows without gaps
 * that have a mask or a scale have Rows of their own. With BOTH, aligned rows among them have
 * others. */
template <bool BOTH = false, typename Body>
ons_status with_topk_rows_of_blocks(const launch_request &request, int room, Body body) {
    auto masked = [&](auto type) -> ons_status {
        using Aligned = masked_rows<decltype(type), alignment::ALL>;
        using Others = masked_rows<decltype(type)>;
        if constexpr (BOTH)
            if (fits_aligned_rows<decltype(type)>(request.plan))
                return with_topk_arguments<Aligned>(request, as_it_is(request), room, body);
        return with_topk_arguments<Others>(request, as_it_is(request), room, body);
    };
    if (request.plan->loader != ONS_MASKED) return with_topk_rows<BOTH>(request, room, body);
    const bool is_float32 = request.problem->operand[ONS_X].dtype == ONS_FLOAT32;
    return is_float32 ? masked(float()) : masked(any_16_bit());
}

#endif
