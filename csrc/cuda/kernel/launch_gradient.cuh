/* launch_gradient.cuh - launch_rows.cuh for an operation that takes a gradient. */
#ifndef ONS_LAUNCH_GRADIENT_CUH
#define ONS_LAUNCH_GRADIENT_CUH

#include "launch_columns.cuh"
#include "../team/forms.cuh"
#include "../rows/packed_gradient.cuh"
#include "../statistic/gradient_sum.cuh"

template <typename Rows, typename Body>
ons_status with_contiguous_gradient(const launch_request &request, Body body) {
    using T = std::remove_pointer_t<decltype(Rows::arguments::dx)>;
    const ons_problem *problem = request.problem;
    auto pitch = [&](ons_role role) {
        return problem->dims == 1 ? 0 : problem->operand[role].stride[0] / (int64_t)sizeof(T);
    };
    typename Rows::arguments arguments = {(const T *)problem->operand[ONS_X].data,
                                          (const T *)problem->operand[ONS_GRADIENT].data,
                                          (T *)problem->operand[ONS_Y].data,
                                          pitch(ONS_X),
                                          pitch(ONS_GRADIENT),
                                          pitch(ONS_Y),
                                          request.plan->rows,
                                          request.plan->N,
                                          {},
                                          request.plan->rows,
                                          problem->scale_by,
                                          problem->operation};
    /* Whole packs arrive at the memory's full speed. Fetching data twice would only cost time. */
    if (!request.plan->all_aligned) arguments.ahead = rows_ahead(request);
    return body(rows_of<Rows>{arguments});
}

/* 16-bit rows that are all aligned have kernels of their own. */
template <typename T, typename Body>
ons_status with_gradient_type(const launch_request &request, Body body) {
    constexpr bool TWO = sizeof(T) == 2;
    using Others = contiguous_gradients<T, TWO ? alignment::NOT_ALL : alignment::EITHER>;
    if constexpr (TWO)
        if (request.plan->all_aligned)
            return with_contiguous_gradient<contiguous_gradients<T, alignment::ALL>>(request, body);
    return with_contiguous_gradient<Others>(request, body);
}

template <typename Body>
ons_status with_general_gradient(const launch_request &request, Body body) {
    auto of_type = [&](auto real) {
        return body(rows_of<general_gradients<decltype(real)>>{as_it_is(request)});
    };
    return request.plan->compute == ONS_FLOAT64 ? of_type(double()) : of_type(float());
}

/* Calls body(rows_of<Rows>) for columns in whole packs. */
template <typename Body>
ons_status with_packed_gradients(const launch_request &request, Body body) {
    return with_type_up_to_32_bits(request, [&](auto type) {
        using T = decltype(type);
        return body(
            rows_of<packed_gradients<T>>{sliced_gradients_of<packed_columns<T, true>>(request)});
    });
}

/* Calls body(rows_of<Rows>) in the column form; each lane has a row. */
template <typename Body>
ons_status with_gradient_columns(const launch_request &request, Body body) {
    if (request.plan->loader != ONS_STRIDED) return with_general_gradient(request, body);
    return with_type_up_to_32_bits(request, [&](auto type) {
        using T = decltype(type);
        return body(rows_of<strided_gradients<T>>{sliced_gradients_of<strided_rows<T>>(request)});
    });
}

/* Calls body(rows_of<Rows>) with the Rows that fit, in the row form. */
template <typename Body>
ons_status with_gradient_rows(const launch_request &request, Body body) {
    if (request.plan->loader != ONS_CONTIGUOUS) return with_general_gradient(request, body);
    if (request.plan->compute == ONS_FLOAT64) return with_gradient_type<double>(request, body);
    return with_type_up_to_32_bits(
        request, [&](auto type) { return with_gradient_type<decltype(type)>(request, body); });
}

/* Calls body(rows_of<Rows>, the form), in either form. */
template <typename Body>
ons_status with_gradient_rows_or_columns(const launch_request &request, Body body) {
    if (request.plan->form == ONS_COLUMN_FORM)
        return with_general_gradient(request,
                                     [&](auto rows) { return body(rows, block_of_columns()); });
    return with_gradient_rows(request, [&](auto rows) { return body(rows, block_a_row()); });
}

#endif
