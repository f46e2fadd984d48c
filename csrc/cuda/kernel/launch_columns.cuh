/* launch_columns.cuh - launch_rows.cuh for the column form. */
#ifndef ONS_LAUNCH_COLUMNS_CUH
#define ONS_LAUNCH_COLUMNS_CUH

#include "launch_rows.cuh"
#include "../rows/packed.cuh"
#include "../rows/strided.cuh"

template <typename X>
sliced_input<X> sliced_input_of(const ons_problem *problem, ons_role role) {
    const ons_operand &operand = problem->operand[role];
    const int slices = problem->dims - 3, axis = problem->dims - 1;
    const int64_t size = sizeof(X);
    return {(const X *)operand.data, slices < 0 ? 0 : operand.stride[slices] / size,
            operand.stride[axis] / size};
}

template <typename Rows>
sliced_rows<typename Rows::element> sliced_rows_of(const launch_request &request) {
    using X = typename Rows::element;
    constexpr int TOGETHER = Rows::ROWS_TOGETHER;
    const ons_problem *problem = request.problem;
    const ons_operand &x = problem->operand[ONS_X], &y = problem->operand[ONS_Y];
    const int slices = problem->dims - 3, inner = problem->dims - 2, axis = problem->dims - 1;
    const int64_t width = problem->extent[inner],
                  padded = (width + TOGETHER - 1) / TOGETHER * TOGETHER,
                  rows = request.plan->rows / width * padded;
    const uint32_t inverse = rows >> 32 ? 0 : (uint32_t)((1ll << 32) / padded);
    return {sliced_input_of<X>(problem, ONS_X),
            y.data,
            slices < 0 ? 0 : y.stride[slices],
            y.stride[ons_operations[problem->operation].one_a_row ? inner : axis],
            width,
            padded,
            (int)request.plan->width,
            inverse,
            rows,
            request.plan->N,
            {},
            problem->operation,
            element_format<X>(x.dtype),
            x.dtype != y.dtype};
}

template <typename Rows>
sliced_gradients<typename Rows::element> sliced_gradients_of(const launch_request &request) {
    return {sliced_rows_of<Rows>(request),
            sliced_input_of<typename Rows::element>(request.problem, ONS_GRADIENT),
            request.problem->scale_by};
}

/* Calls body(operations, rows_of<Rows>) for any rows; each lane has a row. */
template <ons_family FAMILY, typename Body>
ons_status with_columns(const launch_request &request, Body body) {
    return with_operations(request, [&](auto ops) -> ons_status {
        using Ops = decltype(ops);
        if constexpr (KINDS<FAMILY, Ops> == ONS_NO_ROWS)
            return ONS_E_OPERAND;
        else
            return with_general<Ops>(request, body);
    });
}

template <typename X>
using whole_packs = packed_columns<X, true>;
template <typename X>
using packs_apart = packed_columns<X, false>;

/* Calls body(operations, rows_of<Rows<X>>) for rows side by side, with the type X of their
 * elements. Returns ONS_E_OPERAND if the family has no such kernels. */
template <ons_family FAMILY, template <typename> class Rows, typename Body>
ons_status with_slices(const launch_request &request, Body body) {
    return with_operations(request, [&](auto ops) -> ons_status {
        using Ops = decltype(ops);
        auto of_type = [&](auto type) {
            using Own = Rows<decltype(type)>;
            return body(Ops(), rows_of<Own>{sliced_rows_of<Own>(request)});
        };
        constexpr bool WHOLE = std::is_same_v<Rows<float>, whole_packs<float>>;
        if constexpr (KINDS<FAMILY, Ops> < (WHOLE ? ONS_PACKED_ROWS : ONS_EVERY_ROWS))
            return ONS_E_OPERAND;
        else if (request.problem->operand[ONS_X].dtype == ONS_FLOAT32)
            return of_type(float());
        else
            return of_type(any_16_bit());
    });
}
#endif
