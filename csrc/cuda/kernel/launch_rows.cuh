/* launch_rows.cuh - from a problem and its plan to the rows of a kernel.
 *
 * A class Rows loads a row into tiles (rows/tile.cuh) and stores its results: K chunks of
 * neighbouring elements at a time, chunk `chunk` and every STRIDE-th after it. Elements after the
 * row's end, and those that `where` excludes, arrive as -inf.
 *
 *   contiguous_rows  rows without gaps, at any address; x and y have one type, or x has 16 bits and
 *                    y is float32
 *   masked_rows      the same with a mask, a scale, any number of outer dimensions
 *   packed_columns   columns side by side, four a lane
 *   strided_rows     columns side by side, one a lane (launch_columns.cuh chooses these two)
 *   general_rows     all else
 *
 * contiguous_rows, masked_rows and general_rows add up a row in the same order, whatever the types:
 * they give the same bits. y may be x: nothing may be read through the read-only cache, and a
 * thread writes only elements that no other thread reads.
 *
 * Rows::row<CHECK_ROW>(arguments, index) is a row of this launch. Whole warps call its load and its
 * store. CHECK_ROW: the row may lie after the last one; it then has no elements.
 * Rows::ahead<K>(arguments, index, warp) fetches a later row to the L2 cache.
 *
 * 16-bit elements are any_16_bit: one kernel has both types. Their format says which type they
 * have. The flag `widens` says whether the results are float32 (widened_row).
 *
 * The simpler the rows, the fewer registers their addresses take. BLOCK_THREADS: the most threads
 * of a block where each holds 8 chunks. BLOCKS: how many such blocks a multiprocessor must hold.
 * CLUSTER_WARPS: how many warps it must hold where each thread has 16 chunks. */
#ifndef ONS_LAUNCH_ROWS_CUH
#define ONS_LAUNCH_ROWS_CUH

#include "../driver/launch.cuh"
#include "../statistic/operations.cuh"
#include "../rows/general.cuh"
#include "../rows/masked.cuh"

template <typename Rows_>
struct rows_of {
    using Rows = Rows_;
    typename Rows::arguments arguments;
};

/* Distance in rows from a block's row to the row that it prefetches: FETCH_AHEAD bytes, or past the
 * last row. */
inline int64_t rows_ahead(const launch_request &request) {
    int64_t row_bytes = request.plan->N * ons_dtype_size(request.problem->operand[ONS_X].dtype);
    bool pays = request.plan->rows * row_bytes >= FETCH_MIN_BYTES;
    return pays ? FETCH_AHEAD / (row_bytes + 1) + 1 : request.plan->rows;
}

inline problem_arguments as_it_is(const launch_request &request) {
    return {*request.problem, request.plan->rows, request.plan->N, {}, rows_ahead(request)};
}

/* The entry of each family in kernels.def, for rows and for values. */
struct kinds_of_kernels {
    ons_kinds_of_rows kinds;
    ons_aligned_kernels aligned;
};
constexpr kinds_of_kernels FAMILIES[][2] = {
#define ONS_FAMILY(name, rows, aligned_rows, values, aligned_values) \
    {{ONS_##rows##_ROWS, ONS_##aligned_rows##_ALIGNED},              \
     {ONS_##values##_ROWS, ONS_##aligned_values##_ALIGNED}},
#include "../kernels.def"
#undef ONS_FAMILY
};
template <ons_family FAMILY, typename Ops>
constexpr ons_kinds_of_rows KINDS = FAMILIES[FAMILY][Ops::ONE_A_ROW].kinds;
template <ons_family FAMILY, typename Ops, typename X>
constexpr bool HAS_ALIGNED_KERNELS =
    FAMILIES[FAMILY][Ops::ONE_A_ROW].aligned == ONS_ALL_ALIGNED ||
    (FAMILIES[FAMILY][Ops::ONE_A_ROW].aligned == ONS_16_BIT_ALIGNED && sizeof(X) == 2);

/* Calls body(the alignment of a kernel for these rows). */
template <ons_family FAMILY, typename Ops, typename X, typename Body>
ons_status with_alignment(const ons_plan *plan, Body body) {
    constexpr bool TWO = HAS_ALIGNED_KERNELS<FAMILY, Ops, X>;
    constexpr alignment OTHERS = TWO && sizeof(X) == 2 ? alignment::NOT_ALL : alignment::EITHER;
    if constexpr (TWO)
        if (plan->all_aligned) return body(std::integral_constant<alignment, alignment::ALL>());
    return body(std::integral_constant<alignment, OTHERS>());
}

/* Calls body(operations, rows_of<Rows>). */
template <ons_family FAMILY, typename Ops, typename X, typename Body>
ons_status with_contiguous(const launch_request &request, Body body) {
    const ons_problem *problem = request.problem;
    const ons_plan *plan = request.plan;
    const ons_operand &x = problem->operand[ONS_X], &y = problem->operand[ONS_Y];
    const bool several = problem->dims > 1;
    auto arguments = [&](auto rows) -> typename decltype(rows)::arguments {
        return {(const X *)x.data,
                y.data,
                several ? x.stride[0] / ons_dtype_size(x.dtype) : 0,
                several ? y.stride[0] / ons_dtype_size(y.dtype) : 0,
                plan->rows,
                plan->N,
                {},
                rows_ahead(request),
                problem->operation,
                element_format<X>(x.dtype),
                x.dtype != y.dtype};
    };
    return with_alignment<FAMILY, Ops, X>(plan, [&](auto aligned) {
        using Rows = contiguous_rows<X, decltype(aligned)::value>;
        return body(Ops(), rows_of<Rows>{arguments(Rows())});
    });
}

/* Calls body(an element of x's type). */
template <typename Body>
ons_status with_type_of_x(const launch_request &request, Body body) {
    switch (request.problem->operand[ONS_X].dtype) {
    case ONS_FLOAT32: return body(float());
    case ONS_FLOAT64: return body(double());
    default: return body(any_16_bit());
    }
}

template <typename Ops, typename Body>
ons_status with_general(const launch_request &request, Body body) {
    auto of_type = [&](auto real) {
        return body(Ops(), rows_of<general_rows<decltype(real)>>{as_it_is(request)});
    };
    return request.plan->compute == ONS_FLOAT64 ? of_type(double()) : of_type(float());
}

/* Calls body(row_shaped or one_a_row), the operations that share a kernel. */
template <typename Body>
ons_status with_operations(const launch_request &request, Body body) {
    return ons_operations[request.problem->operation].one_a_row ? body(one_a_row())
                                                                : body(row_shaped());
}

/* Calls body(operations, rows_of<Rows>) with the Rows that fit, in the row form. */
template <ons_family FAMILY, typename Body>
ons_status with_rows(const launch_request &request, Body body) {
    return with_operations(request, [&](auto ops) -> ons_status {
        using Ops = decltype(ops);
        constexpr ons_kinds_of_rows HAS = KINDS<FAMILY, Ops>;
        [[maybe_unused]] const ons_loader loader = request.plan->loader;
        if constexpr (HAS >= ONS_CONTIGUOUS_ROWS)
            if (loader == ONS_CONTIGUOUS)
                return with_type_of_x(request, [&](auto type) {
                    return with_contiguous<FAMILY, Ops, decltype(type)>(request, body);
                });
        if constexpr (HAS == ONS_EVERY_ROWS)
            if (loader == ONS_MASKED)
                return with_type_of_x(request, [&](auto type) {
                    using X = decltype(type);
                    return with_alignment<FAMILY, Ops, X>(request.plan, [&](auto aligned) {
                        using Rows = masked_rows<X, decltype(aligned)::value>;
                        return body(Ops(), rows_of<Rows>{as_it_is(request)});
                    });
                });
        if constexpr (HAS == ONS_NO_ROWS || HAS == ONS_CONTIGUOUS_ALONE_ROWS)
            return ONS_E_OPERAND;
        else
            return with_general<Ops>(request, body);
    });
}

#endif
