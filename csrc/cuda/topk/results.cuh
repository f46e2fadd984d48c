/* topk/results.cuh - the arguments of the top-k kernels, and where a row's results go. */
#ifndef ONS_TOPK_RESULTS_CUH
#define ONS_TOPK_RESULTS_CUH

#include "../../api/sample.h"
#include "entry.cuh"
#include "route_weights.cuh"
#include "scan.cuh"
#include "../rows/address.cuh"
#include "../statistic/finish.cuh"

/* Where results go. Rows without gaps use `pitch`; other rows use their problem's strides. */
struct results_at {
    char *data;
    int64_t pitch, along; /* in bytes */
    ons_dtype dtype;
};

/* What a kernel does with the list of a row at its end, if the list is for a sampler
 * (sample_end.cuh). */
struct sampler_end {
    bool is_given, finds_p;
    ons_sample sample;
    results_at indices, values; /* of the sampler */
};

/* Arguments of a top-k kernel. */
template <typename Rows>
struct topk_arguments : Rows::arguments {
    results_at values, indices, pairs;
    int k, room; /* entries in a row's list */
    bool log;
    bool in_pairs; /* k is even and results lie side by side, so two may be written at once */
    int64_t parts, part_length; /* of a row; 1 part: the row is whole */
    void *workspace;
    bool routes;       /* the results are a router's */
    bool side_by_side; /* the results of each row */
    bool at_once;      /* so that 16 bytes of them may be written at once */
    ons_route route = {};
    bool needs_pair = true;    /* whether (m, d) of the whole row is needed */
    bool softmax_of_k = false; /* ons_route_is_softmax_of_k() */
    sampler_end sampler = {};
};

template <typename Rows>
constexpr bool HAS_PROBLEM = std::is_same_v<typename Rows::arguments, problem_arguments>;

/* The results of row number `row` of all rows. */
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

/* Element `index` of a row. An excluded element is -inf, as in a tile. */
template <typename Rows>
__device__ inline typename Rows::Real element_at(const topk_arguments<Rows> &args,
                                                 const row_address &at, int64_t index) {
    using Real = typename Rows::Real;
    const ons_problem &problem = args.problem;
    const int along = problem.dims - 1;
    if (at.where && !at.where[index * problem.operand[ONS_WHERE].stride[along]])
        return -arithmetic<Real>::infinity();
    const ons_operand &x = problem.operand[ONS_X];
    Real one[1] = {read_as<Real>(at.x + index * x.stride[along], x.dtype)};
    if (at.scale != 1.0) scale_all(one, at.scale);
    return one[0];
}

/* Element `index` of row number `row` of all rows. */
template <typename Rows>
__device__ inline typename Rows::Real element_of(const topk_arguments<Rows> &args, int64_t row,
                                                 int64_t index) {
    if constexpr (HAS_PROBLEM<Rows>)
        return element_at(args, row_address(args, row - args.launch.first_row), index);
    else
        return to_real<typename Rows::Real>(args.x[row * args.x_pitch + index]);
}

/* Writes the result at place `order` of a row. `values` and `indices` are the row's. */
template <typename Rows>
__device__ inline void write_result(const topk_arguments<Rows> &args, char *values, char *indices,
                                    uint32_t order, typename Rows::Real value, uint32_t place) {
    write_as(values + order * args.values.along, args.values.dtype, value);
    char *index = indices + order * args.indices.along;
    if (args.indices.dtype == ONS_INT64)
        *(int64_t *)index = place;
    else
        *(int32_t *)index = (int32_t)place;
}

/* A mask of the LANES neighbouring lanes that share this lane's row. */
template <int LANES>
__device__ inline unsigned lanes_of_row() {
    return ~0u >> (WARP - LANES) << (threadIdx.x % WARP / LANES * LANES);
}

/* The sum of n over the LANES lanes of a row, or over a block (LANES 0). *before gets the sum over
 * the lanes or threads before this one. */
template <int LANES>
__device__ inline uint32_t sum_of_row(uint32_t n, uint32_t *before = nullptr) {
    constexpr int TOGETHER = LANES == 0 ? WARP : LANES;
    const unsigned lanes = lanes_of_row<TOGETHER>();
    const int lane = threadIdx.x % TOGETHER;
    const uint32_t upto = sum_up_to_lane<TOGETHER>(n, lane, lanes);
    uint32_t sum = __shfl_sync(lanes, upto, TOGETHER - 1, TOGETHER);
    if (before) *before = upto - n;
    if constexpr (LANES == 0) {
        __shared__ uint32_t of_warps[WARP];
        __syncthreads(); /* all have read the last sums */
        if (lane == 0) of_warps[warp_of_block()] = sum;
        __syncthreads();
        const uint32_t of_warp = lane < warps_of_block() ? of_warps[lane] : 0;
        sum = (uint32_t)count_over_lanes<WARP>((int)of_warp);
        if (before)
            *before += (uint32_t)count_over_lanes<WARP>(lane < warp_of_block() ? (int)of_warp : 0);
    }
    return sum;
}

/* Counts the bytes of a mask that are not 0. Of the mask's N bytes, `step` apart, this call counts
 * the share of thread `own` of `together`. If the bytes lie side by side, it reads words. */
__device__ inline uint32_t count_allowed(const char *where, int64_t step, uint32_t N, uint32_t own,
                                         uint32_t together) {
    uint32_t words = 0, head = 0, allowed = 0;
    if (step == 1) {
        head = min(N, (uint32_t)(-(uintptr_t)where % sizeof(uint32_t)));
        words = (N - head) / (uint32_t)sizeof(uint32_t);
    }
    const uint32_t *const word = (const uint32_t *)(where + head);
#pragma unroll 8
    for (uint32_t i = own; i < words; i += together) allowed += __popc(__vcmpne4(word[i], 0)) / 8;
    const uint32_t in_words = words * (uint32_t)sizeof(uint32_t);
#pragma unroll 8
    for (uint32_t i = own; i < N - in_words; i += together)
        allowed += where[(i < head ? i : i + in_words) * step] != 0;
    return allowed;
}

/* Writes the `lowest` results of a row that are -inf: first elements that `where` allows, then
 * excluded elements, each in the order of their places. LANES lanes, or a block (0), must call it.
 * It reads the whole mask, then elements and the mask again until all results are written. `value`
 * is the result of -inf. */
template <int LANES, typename Rows>
__device__ __noinline__ void write_lowest(const topk_arguments<Rows> &args, int64_t row,
                                          uint32_t lowest, char *values, char *indices,
                                          typename Rows::Real value) {
    using Real = typename Rows::Real;
    const uint32_t together = LANES == 0 ? blockDim.x : LANES, own = threadIdx.x % together;
    const row_address at(args, row - args.launch.first_row);
    const int64_t step = args.problem.operand[ONS_WHERE].stride[args.problem.dims - 1];
    const uint32_t N = (uint32_t)args.N, k = (uint32_t)args.k;
    const uint32_t allowed = sum_of_row<LANES>(count_allowed(at.where, step, N, own, together));
    /* every allowed element above -inf is already among the k */
    const uint32_t end_of_allowed = k - lowest + min(lowest, allowed - (k - lowest));
    uint32_t next_allowed = k - lowest, next_excluded = end_of_allowed;
#pragma unroll 1
    for (uint32_t from = 0; from < N && (next_allowed < end_of_allowed || next_excluded < k);
         from += together) {
        const uint32_t place = from + own;
        const bool is_excluded = place < N && !at.where[place * step];
        const bool is_lowest = next_allowed < end_of_allowed && place < N && !is_excluded &&
                               element_at(args, at, place) == -arithmetic<Real>::infinity();
        uint32_t before; /* both counts in one number */
        const uint32_t sum = sum_of_row<LANES>(is_lowest ? 1u << 16 : is_excluded ? 1 : 0, &before);
        if (is_lowest && next_allowed + (before >> 16) < end_of_allowed)
            write_result(args, values, indices, next_allowed + (before >> 16), value, place);
        if (is_excluded && next_excluded + (before & 0xffff) < k)
            write_result(args, values, indices, next_excluded + (before & 0xffff),
                         args.log ? -arithmetic<Real>::infinity() : (Real)0, place);
        next_allowed += sum >> 16;
        next_excluded += sum & 0xffff;
    }
}

/* ------- Results of a router ------- */

/* Merges one number of each of the LANES lanes of a row, or of each thread of a block (0). Whole
 * warps must call it. */
template <int LANES, typename X, typename Merge>
__device__ inline X over_row(X mine, Merge merge) {
    constexpr int TOGETHER = LANES == 0 ? WARP : LANES;
#pragma unroll
    for (int apart = TOGETHER / 2; apart > 0; apart /= 2)
        mine = merge(mine, __shfl_xor_sync(~0u, mine, apart));
    if constexpr (LANES == 0) {
        __shared__ X of_warps[WARP];
        __syncthreads(); /* all have read the numbers of the last call */
        if (threadIdx.x % WARP == 0) of_warps[warp_of_block()] = mine;
        __syncthreads();
        mine = of_warps[0];
#pragma unroll 1
        for (int warp = 1; warp < warps_of_block(); warp++) mine = merge(mine, of_warps[warp]);
    }
    return mine;
}
template <int LANES, typename X>
__device__ inline X added_up(X mine) {
    if constexpr (LANES > 0 && std::is_same_v<X, int>)
        return count_over_lanes<LANES>(mine);
    else
        return over_row<LANES>(mine, [](X a, X b) { return a + b; });
}
template <int LANES, typename Real>
__device__ inline Real largest_in_row(Real mine) {
    if constexpr (LANES > 0)
        return max_over_lanes<LANES>(mine);
    else
        return over_row<0>(mine, [](Real a, Real b) { return larger(a, b); });
}

/* Adds up the weights of a row's experts. The lanes of a warp add up floats in fixed point,
 * relative to a power of two. So the sum does not depend on the number of lanes. With OF_K the
 * weights are lifted exponentials. */
template <int LANES, bool OF_K, typename Real>
class sum_of_weights {
    static constexpr bool IS_FIXED = LANES > 0 && std::is_same_v<Real, float>;

   public:
    /* `largest` is the largest of this thread's weights. */
    __device__ sum_of_weights(Real largest) {
        if constexpr (IS_FIXED && !OF_K) {
            m = largest_in_row<LANES>(largest);
            const int exponent = (int)(__float_as_uint(m) >> 23);
            unit_exponent = max(1, min(2 * 127 - exponent, 2 * 127 - 1));
        }
    }
    __device__ void add(Real weight) {
        if constexpr (IS_FIXED)
            fixed.add(weight * power(unit_exponent));
        else
            sum += (double)weight;
    }
    __device__ Real over_row() const {
        if constexpr (IS_FIXED) {
            const int2 own = fixed.carried().digits();
            const fixed_sum whole(added_up<LANES>(own.x), added_up<LANES>(own.y));
            return isfinite(m) ? whole.carried().value() * power(2 * 127 - unit_exponent) : m;
        } else {
            return (Real)added_up<LANES>(sum);
        }
    }

   private:
    __device__ static float power(int exponent) { return __int_as_float(exponent << 23); }

    Real m = 1;
    double sum = 0;
    int unit_exponent = 127 - 64; /* exponentials are lifted by 2^64 */
    fixed_sum fixed = {0, 0};
};

/* n neighbouring results, written at once. */
template <typename X, int n>
struct alignas(n * sizeof(X) < 16 ? n * sizeof(X) : 16) results_at_once {
    X one[n];
};

/* Writes the weights and indices of a row's k experts. get(j) returns a chosen_expert for each j
 * below k, in their order. k is at most MOST, if MOST is not 0. Whole warps must call it, each row
 * with LANES lanes, or with a block (0). A row that does not exist gets nothing, but get() is
 * called for it too. */
template <int LANES, bool OF_K, bool PLAIN, int MOST, typename Rows, typename Real, typename Get>
__device__ __forceinline__ void write_weights(const topk_arguments<Rows> &args, int64_t row,
                                              bool exists, const state<Real> &total, Get get) {
    constexpr int HELD = LANES == 0 || LANES >= 8 ? 1 : 8 / LANES; /* experts of a thread */
    const uint32_t k = (uint32_t)args.k, together = LANES == 0 ? blockDim.x : LANES,
                   own = threadIdx.x % together;
    /* if possible, a thread's experts are neighbours in the order */
    const bool at_once = HELD > 1 && args.at_once && k == HELD * LANES;
    const uint32_t first = at_once ? own * HELD : own, step = at_once ? 1 : together;
    /* Calls body(j) for the experts that no thread holds. */
    auto for_others = [&](auto body) {
        if constexpr (MOST == 0 || MOST > HELD * LANES)
#pragma unroll 1
            for (uint32_t j = own + HELD * together; j < k; j += together) body(j);
    };
    chosen_expert<Real> held[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++) held[i] = get(min(first + i * step, k - 1));
    Real m = 0; /* the largest of their logits */
    if constexpr (OF_K && PLAIN && LANES > 0) {
        m = __shfl_sync(~0u, held[0].x, 0, LANES);
    } else if constexpr (OF_K) {
        m = -arithmetic<Real>::infinity();
#pragma unroll
        for (int i = 0; i < HELD; i++) m = larger(m, held[i].x);
        for_others([&](uint32_t j) { m = larger(m, get(j).x); });
        m = largest_in_row<LANES>(m);
    }
    const weights_of_row<Real, OF_K, PLAIN> weigh(args.route, total, m);
    const bool renormalizes = OF_K || args.route.renormalize;
    Real weight[HELD], sum = 0, largest = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        weight[i] = weigh(held[i]);
        if (first + i * step >= k) weight[i] = 0;
        largest = larger(largest, weight[i]);
    }
    if (renormalizes) {
        if constexpr (!OF_K)
            for_others([&](uint32_t j) { largest = larger(largest, weigh(get(j))); });
        sum_of_weights<LANES, OF_K, Real> parts(largest);
#pragma unroll
        for (int i = 0; i < HELD; i++) parts.add(weight[i]);
        for_others([&](uint32_t j) { parts.add(weigh(get(j))); });
        sum = parts.over_row();
    }
    if (!exists) return;
    auto final_weight = [&](const chosen_expert<Real> &one, Real before) {
        const Real after = renormalizes ? weigh.share(before, sum) : before;
        return PLAIN || one.is_allowed ? after * (Real)args.route.scale : 0;
    };
    char *const values = results_of(args, args.values, ONS_Y, row);
    char *const indices = results_of(args, args.indices, ONS_INDICES, row);
    if (at_once) {
        results_at_once<Real, HELD> of_weights;
        results_at_once<int64_t, HELD> wide;
        results_at_once<int32_t, HELD> narrow;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            of_weights.one[i] = final_weight(held[i], weight[i]);
            wide.one[i] = narrow.one[i] = (int32_t)held[i].place;
        }
        ((results_at_once<Real, HELD> *)values)[own] = of_weights;
        if (args.indices.dtype == ONS_INT64)
            ((results_at_once<int64_t, HELD> *)indices)[own] = wide;
        else
            ((results_at_once<int32_t, HELD> *)indices)[own] = narrow;
        return;
    }
    auto write = [&](uint32_t order, const chosen_expert<Real> &one, Real before) {
        const Real value = final_weight(one, before);
        if (args.side_by_side) {
            ((Real *)values)[order] = value;
            if (args.indices.dtype == ONS_INT64)
                ((int64_t *)indices)[order] = one.place;
            else
                ((int32_t *)indices)[order] = (int32_t)one.place;
        } else {
            write_result(args, values, indices, order, value, one.place);
        }
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (first + i * step < k) write(first + i * step, held[i], weight[i]);
    for_others([&](uint32_t j) {
        const chosen_expert<Real> one = get(j);
        write(j, one, weigh(one));
    });
}

/* write_weights() for the weights that the router wants. */
template <int LANES, bool PLAIN, int MOST = 0, typename Rows, typename Real, typename Get>
__device__ __forceinline__ void write_route(const topk_arguments<Rows> &args, int64_t row,
                                            bool exists, const state<Real> &total, Get get) {
    if (args.softmax_of_k)
        write_weights<LANES, true, PLAIN, MOST>(args, row, exists, total, get);
    else
        write_weights<LANES, false, PLAIN, MOST>(args, row, exists, total, get);
}

/* ------- Results of softmax_topk ------- */

/* The results of one row. */
template <typename Rows>
class topk_of_row {
    using Real = typename Rows::Real;

   public:
    __device__ topk_of_row(const topk_arguments<Rows> &args_, int64_t row_,
                           const state<Real> &total)
        : args(args_), row(row_), to(total.m) {
        values = results_of(args, args.values, ONS_Y, row);
        indices = results_of(args, args.indices, ONS_INDICES, row);
        if (args.log) {
            log_softmax::row(total, &first, &second);
        } else {
            constants_of_softmax(total, &first, &second);
        }
    }

    /* Writes an entry at place `order`. */
    __device__ void put(uint32_t order, const entry<Real> &one) {
        put(order, number_of(one.key()), one.index());
    }

    /* Writes element x, whose index is `place`, at place `order`. */
    __device__ void put(uint32_t order, Real x, uint32_t place) {
        if (has_mask() && x == -arithmetic<Real>::infinity())
            lowest++; /* end() writes it: here an excluded element may come before an allowed one */
        else
            write_result(args, values, indices, order, value_of(x), place);
    }

    /* Writes two neighbours; `order` is even. Only with args.in_pairs. */
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

    /* Writes k results. get(i) returns a chosen_expert for each i below k. LANES lanes must call
     * it. */
    template <int LANES, typename Get>
    __device__ void put_all(uint32_t k, Get get) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x % LANES; i < k; i += LANES) {
            const chosen_expert<Real> one = get(i);
            put(i, one.x, one.place);
        }
    }

    /* Writes what put() left out. The LANES lanes of the row, or its block (0), must call it. */
    template <int LANES>
    __device__ void end() const {
        if constexpr (HAS_PROBLEM<Rows>) {
            if (!has_mask()) return;
            if (const uint32_t all = sum_of_row<LANES>(lowest))
                write_lowest<LANES>(args, row, all, values, indices,
                                    value_of(-arithmetic<Real>::infinity()));
        }
    }

   private:
    __device__ Real value_of(Real x) const {
        return args.log ? log_softmax::element(x, first, second)
                        : softmax::element(to.exponential(x - to.anchor), first, second);
    }

    __device__ bool has_mask() const {
        if constexpr (HAS_PROBLEM<Rows>) return args.problem.operand[ONS_WHERE].data;
        return false;
    }

    const topk_arguments<Rows> &args;
    int64_t row;
    char *values, *indices;
    uint32_t lowest = 0;
    Real first, second;
    reference<Real> to;
};

template <typename Rows, typename Real>
__device__ inline void put_pair(const topk_arguments<Rows> &args, int64_t row,
                                const state<Real> &total) {
    if (args.pairs.data)
        *(ons_pair *)results_of(args, args.pairs, ONS_STATISTIC, row) = pair_of(total);
}

#endif
