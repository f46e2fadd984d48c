/* launch_packs.cuh - launch_rows.cuh for columns in packs (packed.cuh). */
#ifndef ONS_LAUNCH_PACKS_CUH
#define ONS_LAUNCH_PACKS_CUH

#include "launch_rows.cuh"
#include "../rows/packed.cuh"

template <typename X>
packed_input<X> packed_input_of(const ons_problem *problem, ons_role role) {
    const ons_operand &operand = problem->operand[role];
    const int slices = problem->dims - 3, axis = problem->dims - 1;
    const int64_t size = sizeof(X);
    return {(const X *)operand.data, slices < 0 ? 0 : operand.stride[slices] / size,
            operand.stride[axis] / size};
}

template <typename X, bool WHOLE>
typename packed_columns<X, WHOLE>::arguments packed_arguments(const launch_request &request) {
    const ons_problem *problem = request.problem;
    const ons_operand &x = problem->operand[ONS_X], &y = problem->operand[ONS_Y];
    const int slices = problem->dims - 3, inner = problem->dims - 2, axis = problem->dims - 1;
    const int64_t width = problem->extent[inner],
                  padded = packed_columns<X, WHOLE>::arguments::padded(width),
                  rows = request.plan->rows / width * padded;
    const uint32_t inverse = rows >> 32 ? 0 : (uint32_t)((1ll << 32) / padded);
    return {packed_input_of<X>(problem, ONS_X),
            y.data,
            slices < 0 ? 0 : y.stride[slices],
            y.stride[axis],
            width,
            inverse,
            rows,
            request.plan->N,
            {},
            problem->operation,
            element_format<X>(x.dtype),
            x.dtype != y.dtype};
}

template <typename Ops, bool WHOLE, typename Body>
ons_status with_packed(const launch_request &request, Body body) {
    auto of_type = [&](auto type) {
        using X = decltype(type);
        return body(Ops(), rows_of<packed_columns<X, WHOLE>>{packed_arguments<X, WHOLE>(request)});
    };
    return request.problem->operand[ONS_X].dtype == ONS_FLOAT32 ? of_type(float())
                                                                : of_type(any_16_bit());
}

/* Calls body(operations, rows_of<Rows>). For methods that allow several rows a thread, in families
 * with every kind of row. APART: whether the family has kernels for packs that are not whole. */
template <ons_family FAMILY, bool APART, typename Body>
ons_status with_packs(const launch_request &request, Body body) {
    return with_operations(request, [&](auto ops) {
        using Ops = decltype(ops);
        if constexpr (KINDS<FAMILY, Ops> != ONS_EVERY_ROWS) {
            return ONS_E_OPERAND;
        } else {
            if constexpr (APART)
                if (request.plan->loader == ONS_PACKED_APART)
                    return with_packed<Ops, false>(request, body);
            return with_packed<Ops, true>(request, body);
        }
    });
}

#endif
