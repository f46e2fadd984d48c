/* launch_packs.cuh - launch_rows.cuh for columns in packs (packed.cuh). */
#ifndef ONS_LAUNCH_PACKS_CUH
#define ONS_LAUNCH_PACKS_CUH

#include "launch_rows.cuh"
#include "../rows/packed.cuh"

template <typename Ops, typename X, typename Body>
ons_status with_packed(const launch_request &request, Body body) {
    const ons_problem *problem = request.problem;
    const int slices = problem->dims - 3, inner = problem->dims - 2, axis = problem->dims - 1;
    int64_t x_slice = slices < 0 ? 0 : problem->operand[ONS_X].stride[slices] / (int64_t)sizeof(X);
    int64_t y_slice = slices < 0 ? 0 : problem->operand[ONS_Y].stride[slices];
    const int64_t width = problem->extent[inner], rows = request.plan->rows;
    const uint32_t inverse = rows >> 32 ? 0 : (uint32_t)((1ll << 32) / width);
    typename packed_columns<X>::arguments arguments = {
        (const X *)problem->operand[ONS_X].data,
        problem->operand[ONS_Y].data,
        x_slice,
        y_slice,
        problem->operand[ONS_X].stride[axis] / (int64_t)sizeof(X),
        problem->operand[ONS_Y].stride[axis],
        width,
        inverse,
        rows,
        request.plan->N,
        {},
        problem->operation,
        element_format<X>(problem->operand[ONS_X].dtype),
        problem->operand[ONS_X].dtype != problem->operand[ONS_Y].dtype};
    return body(Ops(), rows_of<packed_columns<X>>{arguments});
}

/* Calls body(operations, rows_of<Rows>). For methods that allow several rows a thread, in families
 * with every kind of row. */
template <ons_family FAMILY, typename Body>
ons_status with_packs(const launch_request &request, Body body) {
    return with_operations(request, [&](auto ops) {
        using Ops = decltype(ops);
        if constexpr (KINDS<FAMILY, Ops> != ONS_EVERY_ROWS)
            return ONS_E_OPERAND;
        else
            return request.problem->operand[ONS_X].dtype == ONS_FLOAT32
                       ? with_packed<Ops, float>(request, body)
                       : with_packed<Ops, any_16_bit>(request, body);
    });
}

#endif
