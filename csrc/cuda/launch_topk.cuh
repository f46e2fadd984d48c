/* launch_topk.cuh - launch.cuh for the operation that selects: which rows, where a row's results
 * go, and what they are. */
#ifndef ONS_LAUNCH_TOPK_CUH
#define ONS_LAUNCH_TOPK_CUH

#include "launch.cuh"
#include "pairs/entry.cuh"
#include "rows/finish.cuh"
#include "topk.h"

/* Where the results are: of rows without gaps one pitch each says it, of others their problem. */
struct results_at {
    char *data;
    int64_t pitch, along; /* in bytes */
    ons_dtype dtype;
};

/* What a kernel of such an operation takes beside its rows. */
template <typename Rows>
struct topk_arguments : Rows::arguments {
    results_at values, indices, pairs;
    int k, room; /* of a row's list of entries */
    bool log;
    bool in_pairs; /* results that lie side by side, and an even k: two may be written at once */
    int64_t parts, part_length; /* of a row, each by itself; 1: none */
    void *workspace;
};

template <typename Rows>
constexpr bool HAS_PROBLEM = std::is_same_v<typename Rows::arguments, problem_arguments>;

/* The results of a row: `row` is its number among all. */
template <typename Rows>
__device__ inline char *results_of(const topk_arguments<Rows> &args, const results_at &to,
                                   [[maybe_unused]] ons_role role, int64_t row) {
    char *at = to.data;
    if constexpr (HAS_PROBLEM<Rows>) {
        const ons_problem &problem = args.problem;
#pragma unroll 1
        for (int dim = problem.dims - 2; dim >= 0; dim--) {
            const int64_t above = dim > 0 ? row / problem.extent[dim] : 0;
            at += (row - above * problem.extent[dim]) * problem.operand[role].stride[dim];
            row = above;
        }
        return at;
    } else {
        return at + row * to.pitch;
    }
}

/* The results of one row. */
template <typename Rows>
class topk_of_row {
    using Real = typename Rows::Real;

   public:
    __device__ topk_of_row(const topk_arguments<Rows> &args_, int64_t row, const state<Real> &total)
        : args(args_), to(total.m) {
        values = results_of(args, args.values, ONS_Y, row);
        indices = results_of(args, args.indices, ONS_INDICES, row);
        if constexpr (HAS_PROBLEM<Rows>) where = row_address(args, row - args.first).where;
        if (args.log) {
            log_softmax::row(total, &first, &second);
        } else {
            softmax::row(total, &first, &second);
            first *= arithmetic<Real>::LOWERED;
            second *= arithmetic<Real>::LOWERED;
        }
    }

    /* Writes the one in that place of the order. */
    __device__ void put(uint32_t order, const entry<Real> &one) const {
        put(order, number_of(one.key()), one.index());
    }

    /* Writes an element in that place of the order, and its own place. */
    __device__ void put(uint32_t order, Real x, uint32_t place) const {
        Real value = value_of(x);
        if (is_excluded(place)) value = args.log ? -arithmetic<Real>::infinity() : (Real)0;
        write_as(values + order * args.values.along, args.values.dtype, value);
        char *index = indices + order * args.indices.along;
        if (args.indices.dtype == ONS_INT64)
            *(int64_t *)index = place;
        else
            *(int32_t *)index = (int32_t)place;
    }

    /* The same of two neighbours, the first of them in an even place, where args.in_pairs. */
    __device__ void put_two(uint32_t order, const Real (&x)[2], const uint32_t (&place)[2]) const {
        const Real one = value_of(x[0]), two = value_of(x[1]);
        if (args.values.dtype == ONS_BFLOAT16)
            *(__nv_bfloat162 *)(values + order * sizeof(__nv_bfloat16)) = {
                from_real<__nv_bfloat16>(one), from_real<__nv_bfloat16>(two)};
        else if (args.values.dtype == ONS_FLOAT16)
            *(__half2 *)(values + order * sizeof(__half)) = {from_real<__half>(one),
                                                             from_real<__half>(two)};
        else
            *(float2 *)(values + order * sizeof(float)) = {(float)one, (float)two};
        if (args.indices.dtype == ONS_INT64)
            *(ulonglong2 *)(indices + order * sizeof(int64_t)) = {place[0], place[1]};
        else
            *(uint2 *)(indices + order * sizeof(int32_t)) = {place[0], place[1]};
    }

   private:
    __device__ Real value_of(Real x) const {
        return args.log ? log_softmax::element(x, first, second)
                        : softmax::element(to.exponential(x - to.anchor), first, second);
    }

    __device__ bool is_excluded([[maybe_unused]] uint32_t index) const {
        if constexpr (HAS_PROBLEM<Rows>)
            return where &&
                   !where[index * args.problem.operand[ONS_WHERE].stride[args.problem.dims - 1]];
        return false;
    }

    const topk_arguments<Rows> &args;
    char *values, *indices;
    const char *where = nullptr;
    Real first, second;
    reference<Real> to;
};

template <typename Rows, typename Real>
__device__ inline void put_pair(const topk_arguments<Rows> &args, int64_t row,
                                const state<Real> &total) {
    if (args.pairs.data) *(ons_pair *)results_of(args, args.pairs, ONS_PAIRS, row) = pair_of(total);
}

/* One element of a row, of which `row` is the number among all, as a tile has it. */
template <typename Rows>
__device__ inline typename Rows::Real element_of(const topk_arguments<Rows> &args, int64_t row,
                                                 int64_t index) {
    using Real = typename Rows::Real;
    if constexpr (HAS_PROBLEM<Rows>) {
        const ons_problem &problem = args.problem;
        const int along = problem.dims - 1;
        const row_address at(args, row - args.first);
        if (at.where && !at.where[index * problem.operand[ONS_WHERE].stride[along]])
            return -arithmetic<Real>::infinity();
        const ons_operand &x = problem.operand[ONS_X];
        Real one[1] = {read_as<Real>(at.x + index * x.stride[along], x.dtype)};
        if (at.scale != 1.0) scale_all(one, at.scale);
        return one[0];
    } else {
        return to_real<Real>(args.x[row * args.x_pitch + index]);
    }
}

/* The list of a block has room for so many entries or more: a power of two, so that it can be
 * sorted, and more than k, so that a bound need not be exact. */
inline int topk_room(const launch_request &request, int least) {
    while (least < 2 * request.problem->k) least *= 2;
    return least;
}

/* Whether the results of each row lie side by side, from where two at a time may be written. */
inline bool is_of_pairs(const results_at &results) {
    const int64_t size = ons_dtype_size(results.dtype);
    return results.along == size && ((int64_t)results.data | results.pitch) % (2 * size) == 0;
}

template <typename Rows, typename Method>
ons_status with_topk_arguments(const launch_request &request, const typename Rows::arguments &rows,
                               int room, Method method) {
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
    topk_arguments<Rows> arguments = {
        rows,         values,   indices, at(ONS_PAIRS),   (int)problem->k,  room,
        problem->log, in_pairs, 1,       request.plan->N, request.workspace};
    return method(rows_of<Rows>{rows}, arguments);
}

template <typename X, bool BOTH, typename Method>
ons_status with_topk_type(const launch_request &request, int room, Method method) {
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
                0,
                plan->rows,
                problem->operation,
                format<X>(),
                false};
    };
    using Fitting = contiguous_rows<X, true>;
    using Any = contiguous_rows<X, false>;
    if constexpr (BOTH && sizeof(X) <= sizeof(float))
        if (Fitting::all_fit(arguments(Fitting()), true))
            return with_topk_arguments<Fitting>(request, arguments(Fitting()), room, method);
    return with_topk_arguments<Any>(request, arguments(Any()), room, method);
}

/* Calls method(rows_of<Rows>, topk_arguments<Rows>) with the Rows that fit; a list has room for
 * `room` entries. BOTH: rows that all begin with a pack have Rows of their own. */
template <bool BOTH = false, typename Method>
ons_status with_topk_rows(const launch_request &request, int room, Method method) {
    if (request.plan->loader == ONS_CONTIGUOUS) switch (request.problem->operand[ONS_X].dtype) {
        case ONS_FLOAT16: return with_topk_type<__half, BOTH>(request, room, method);
        case ONS_BFLOAT16: return with_topk_type<__nv_bfloat16, BOTH>(request, room, method);
        case ONS_FLOAT32: return with_topk_type<float, BOTH>(request, room, method);
        default: return with_topk_type<double, BOTH>(request, room, method);
        }
    return request.plan->compute == ONS_FLOAT64
               ? with_topk_arguments<general_rows<double>>(request, as_it_is(request), room, method)
               : with_topk_arguments<general_rows<float>>(request, as_it_is(request), room, method);
}

#endif
