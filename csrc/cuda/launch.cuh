/* launch.cuh - from a problem and its plan to a kernel: picks how the rows are loaded, launches, or
 * asks the driver about the kernel instead. */
#ifndef ONS_LAUNCH_CUH
#define ONS_LAUNCH_CUH

#include <type_traits>

#include "device.cuh"
#include "rows/general.cuh"
#include "operation.cuh"
#include "rows/packed.cuh"

struct launch_request {
    const ons_problem *problem;
    const ons_plan *plan;
    void *workspace;
    ons_kernel_facts *facts; /* filled in place of a launch, where not null */
};

/* A method: launches its kernels, or describes the last one. */
typedef ons_status ons_cuda_method(const launch_request &request);
#define ONS_METHOD(name, devices, reads, writes, keeps, summary) ons_cuda_method ons_cuda_##name;
#include "../methods.def"
#undef ONS_METHOD

ons_cuda_method fused_warp_staged; /* fused_warp, of short rows together */
ons_cuda_method cluster_smem;      /* cluster, of the longest rows, */
ons_cuda_method cluster_few_rows;  /* and of few */
/* Of operations that take a gradient: fused_warp, fused_block, cluster, split. */
ons_cuda_method gradient_warp, gradient_block, gradient_cluster, gradient_split;
ons_cuda_method gradient_warp_staged; /* of short rows together */
ons_cuda_method exact_sums;           /* of problem->sums, but for gradients: split */
/* Of the operation that selects: fused_warp, fused_block, cluster, split, online. */
ons_cuda_method topk_warp, topk_block, topk_cluster, topk_split, topk_online;
ons_cuda_method topk_sorted; /* fused_warp, of short rows: the plans with one of its shapes */
ons_cuda_method topk_large;  /* online, of a large k */

struct launch_shape {
    int64_t blocks; /* of the grid; in launch_strips, of each strip */
    int threads;
    int cluster = 1; /* blocks of a cluster */
    bool cooperative = false;
    int shared_bytes = 0;
};

/* run.cu: launches a kernel, or describes it. Of a kernel whose first parameter is the arguments of
 * its rows, `first` is the row there that they begin with: it is launched for all strips of the
 * plan. */
ons_status launch_kernel(const launch_request &request, const launch_shape &shape,
                         const void *kernel, void **arguments);
ons_status launch_kernel_strips(const launch_request &request, const launch_shape &shape,
                                const void *kernel, void **arguments, int64_t *first);

template <typename... Parameters, typename... Arguments>
ons_status launch(const launch_request &request, const launch_shape &shape,
                  void (*kernel)(Parameters...), const Arguments &...arguments) {
    auto start = [&](Parameters... values) {
        void *places[] = {(void *)&values...};
        return launch_kernel(request, shape, (const void *)kernel, places);
    };
    return start(arguments...);
}

template <typename Rows, typename... Parameters, typename... Arguments>
ons_status launch_strips(const launch_request &request, const launch_shape &shape,
                         void (*kernel)(Rows, Parameters...), Rows rows,
                         const Arguments &...arguments) {
    auto start = [&](Parameters... values) {
        void *places[] = {(void *)&rows, (void *)&values...};
        return launch_kernel_strips(request, shape, (const void *)kernel, places, &rows.first);
    };
    return start(arguments...);
}

/* ------- How the rows of a problem are loaded -------
 *
 * Rows say how the elements of a row arrive in a thread's registers, as a tile (rows/tile.cuh), and
 * where they go back: K chunks of neighbouring elements at a time, chunk `chunk` and every
 * STRIDE-th after it. Elements after the row's end, and those that `where` excludes, arrive as
 * -inf.
 *
 *   contiguous_rows  rows without gaps, at any alignment: whole chunks in one access each where the
 *                    row's address allows it; of one type, or of 16 bits that become float32
 *   masked_rows      the same with a mask, a scale, any number of outer dimensions
 *   packed_columns   rows side by side, of such types, in the column form
 *   general_rows     all else
 *
 * The order in which a row is added up does not depend on which of the first two and the last it
 * is, nor on the types: all give the same bits. y may be x: nothing may be read through the
 * read-only cache, and a thread writes what it alone has read.
 *
 * Rows::visit<BEYOND, WHERE>(arguments, row, body) calls body with the row: a warp must come to it
 * together. BEYOND: the row may lie beyond the last, and then has no elements. WHERE: two_ways.
 * Rows::load_row<K, STRIDE, BEYOND>(arguments, row, chunk) gives the chunks alone.
 *
 * 16-bit elements are `narrow`: one kernel has both types, and learns from their format which it
 * is, and from a flag whether the results have it too or are float32 (widened_row).
 *
 * NARROW: 16-bit elements, of which fused_warp gives a lane twice as many.
 *
 * The simpler the rows, the fewer registers their addresses take. BLOCK_THREADS is the most threads
 * that a block may have where each holds 8 chunks, and BLOCKS how many such blocks find room side
 * by side; CLUSTER_WARPS is how many warps do whose threads hold 16 chunks. */

template <typename Rows_>
struct rows_of {
    using Rows = Rows_;
    typename Rows::arguments arguments;
};

/* How many rows behind a row those are that are fetched with it: FETCH_AHEAD bytes, or none. */
inline int64_t rows_ahead(const launch_request &request) {
    int64_t row_bytes = request.plan->N * ons_dtype_size(request.problem->operand[ONS_X].dtype);
    bool pays = request.plan->rows * row_bytes >= FETCH_MIN_BYTES;
    return pays ? FETCH_AHEAD / (row_bytes + 1) + 1 : request.plan->rows;
}

inline problem_arguments as_it_is(const launch_request &request) {
    return {*request.problem, request.plan->rows, request.plan->N, 0, rows_ahead(request)};
}

/* Of which rows that all begin and end with a pack a method has kernels of their own: of none; of
 * those of 16 bits where results have the row's shape, which arithmetic bounds; where it reads rows
 * tile by tile, of those of one value a row too; or, where it asks for it, of all. Where they have
 * none, one kernel loads and stores in two ways (two_ways, load_row). */
enum class fitting { NONE, HELD, READ_IN_TILES, ALL };
template <typename Ops, typename X>
constexpr bool has_fitting(fitting of) {
    return of == fitting::ALL ||
           (Ops::ONE_A_ROW ? of == fitting::READ_IN_TILES : of != fitting::NONE && sizeof(X) == 2);
}

/* Calls method(operations, rows_of<Rows>, whether the column form is taken). */
template <typename Ops, fitting FIT, typename X, typename Method>
ons_status with_contiguous(const launch_request &request, Method method) {
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
                0,
                rows_ahead(request),
                problem->operation,
                format<X>(x.dtype),
                x.dtype != y.dtype};
    };
    using Fitting = contiguous_rows<X, true>;
    using Any = contiguous_rows<X, false>;
    if constexpr (has_fitting<Ops, X>(FIT))
        if (Fitting::all_fit(arguments(Fitting()), Ops::ONE_A_ROW))
            return method(Ops(), rows_of<Fitting>{arguments(Fitting())}, std::false_type());
    return method(Ops(), rows_of<Any>{arguments(Any())}, std::false_type());
}

template <typename Ops, fitting FIT, typename Method>
ons_status with_contiguous_types(const launch_request &request, Method method) {
    switch (request.problem->operand[ONS_X].dtype) {
    case ONS_FLOAT32: return with_contiguous<Ops, FIT, float>(request, method);
    case ONS_FLOAT64: return with_contiguous<Ops, FIT, double>(request, method);
    default: return with_contiguous<Ops, FIT, narrow>(request, method);
    }
}

/* Rows without gaps, whatever their mask and scale. */
template <typename Ops, typename T, typename Method>
ons_status with_masked(const launch_request &request, Method method) {
    return method(Ops(), rows_of<masked_rows<T>>{as_it_is(request)}, std::false_type());
}

template <typename Ops, typename Method>
ons_status with_any_types(const launch_request &request, Method method) {
    auto of_type = [&](auto real) {
        using Rows = general_rows<decltype(real)>;
        if (request.plan->form == ONS_COLUMN_FORM)
            return method(Ops(), rows_of<Rows>{as_it_is(request)}, std::true_type());
        return method(Ops(), rows_of<Rows>{as_it_is(request)}, std::false_type());
    };
    return request.plan->compute == ONS_FLOAT64 ? of_type(double()) : of_type(float());
}

/* Which kinds of rows a method has kernels for, by operations (instances.def). */
#define ONS_KINDS_OF_ROWS(method, rows, values)                                 \
    struct kinds_in_##method {                                                  \
        template <typename Ops>                                                 \
        static constexpr ons_kinds_of_rows OF = Ops::ONE_A_ROW ? values : rows; \
    };
#include "instances.def"
#undef ONS_KINDS_OF_ROWS

template <ons_kinds_of_rows KINDS, typename Ops, fitting FIT, typename Method>
ons_status with_rows_of_kinds(const launch_request &request, Method method) {
    [[maybe_unused]] const ons_loader loader = request.plan->loader;
    if constexpr (KINDS != ONS_GENERAL_ROWS)
        if (loader == ONS_CONTIGUOUS) return with_contiguous_types<Ops, FIT>(request, method);
    if constexpr (KINDS == ONS_EVERY_ROWS)
        if (loader == ONS_MASKED) switch (request.problem->operand[ONS_X].dtype) {
            case ONS_FLOAT32: return with_masked<Ops, float>(request, method);
            case ONS_FLOAT64: return with_masked<Ops, double>(request, method);
            default: return with_masked<Ops, narrow>(request, method);
            }
    return with_any_types<Ops>(request, method);
}

/* Calls method(the operations that have their kernels together), of_rows or one_a_row. */
template <typename Method>
ons_status with_operations(const launch_request &request, Method method) {
    return ons_operations[request.problem->operation].one_a_row ? method(one_a_row())
                                                                : method(of_rows());
}

/* Calls method(operations, rows_of<Rows>, whether the column form is taken) with the Rows that fit.
 */
template <typename Kinds, fitting FIT = fitting::READ_IN_TILES, typename Method>
ons_status with_rows(const launch_request &request, Method method) {
    return with_operations(request, [&](auto ops) {
        using Ops = decltype(ops);
        return with_rows_of_kinds<Kinds::template OF<Ops>, Ops, FIT>(request, method);
    });
}

/* The same of rows without gaps alone, for variants that have no others. */
template <typename Kinds, fitting FIT = fitting::READ_IN_TILES, typename Method>
ons_status with_contiguous_rows(const launch_request &request, Method method) {
    return with_operations(request, [&](auto ops) {
        using Ops = decltype(ops);
        constexpr ons_kinds_of_rows KINDS = Kinds::template OF<Ops>;
        if constexpr (KINDS == ONS_GENERAL_ROWS)
            return ONS_E_OPERAND;
        else
            return with_contiguous_types<Ops, FIT>(request, method);
    });
}

/* What with_rows_or_packs says of columns in packs. */
struct packed_tag : std::true_type {};
template <typename IsColumns>
constexpr bool is_packed = std::is_same_v<IsColumns, packed_tag>;

template <typename Ops, typename X, typename Method>
ons_status with_packed(const launch_request &request, Method method) {
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
        0,
        problem->operation,
        format<X>(problem->operand[ONS_X].dtype),
        problem->operand[ONS_X].dtype != problem->operand[ONS_Y].dtype};
    return method(Ops(), rows_of<packed_columns<X>>{arguments}, packed_tag());
}

/* with_rows, and with columns in packs too where a method has every kind of row: for methods that
 * are written for several rows a thread. */
template <typename Kinds, fitting FIT = fitting::HELD, typename Method>
ons_status with_rows_or_packs(const launch_request &request, Method method) {
    return with_operations(request, [&](auto ops) {
        using Ops = decltype(ops);
        constexpr ons_kinds_of_rows KINDS = Kinds::template OF<Ops>;
        if constexpr (KINDS == ONS_EVERY_ROWS)
            if (request.plan->loader == ONS_PACKED)
                return request.problem->operand[ONS_X].dtype == ONS_FLOAT32
                           ? with_packed<Ops, float>(request, method)
                           : with_packed<Ops, narrow>(request, method);
        return with_rows_of_kinds<KINDS, Ops, FIT>(request, method);
    });
}

/* Who shares a row, where that is a block. Of columns in packs as many lanes of a warp share one as
 * a chunk has elements: a lane alone has it in block_of_columns. */
template <typename IsColumns>
using block_form =
    std::conditional_t<is_packed<IsColumns>, block_of_packs<CHUNK<float>>,
                       std::conditional_t<IsColumns::value, block_of_columns, block_a_row>>;

/* Calls method(an integral constant that is `value`), which must be one of the list. */
template <int... LIST, typename Method>
ons_status with_constant(int value, Method method) {
    ons_status status = ONS_E_OPERAND;
    ((value == LIST ? (void)(status = method(std::integral_constant<int, LIST>())) : (void)0), ...);
    return status;
}

#endif
