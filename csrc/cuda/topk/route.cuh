/* topk/route.cuh - a router with a bias, groups or a mask (api/route.h): its keys, and the value of
 * a group.
 *
 * A key is a score, plus a bias if there is one, in the order of key_of(). Two keys are smaller
 * than the key of any number. EXCLUDED is the key of an expert that `where` excludes. NO_EXPERT is
 * the key of a place after the row's end, and of an expert in a closed group. */
#ifndef ONS_ROUTE_CUH
#define ONS_ROUTE_CUH

#include "launch.cuh"

enum : uint32_t { NO_EXPERT, EXCLUDED, LEAST_KEY };

template <typename Real>
__device__ inline Real bias_of(const ons_route &route, uint32_t place) {
    return ((const Real *)route.bias)[place];
}

/* ------- Groups ------- */

/* The two largest of some keys. */
template <typename Key>
struct two_largest {
    Key first = NO_EXPERT, second = NO_EXPERT;

    __device__ void add(Key key) {
        second = max(second, min(first, key));
        first = max(first, key);
    }
    __device__ void merge(const two_largest &other) {
        second = max(min(first, other.first), max(second, other.second));
        first = max(first, other.first);
    }
    /* The two largest keys of another lane. get(key) returns what that lane has for `key`. */
    template <typename Get>
    __device__ two_largest of_lane(Get get) const {
        return {get(first), get(second)};
    }
    /* The value of the group, as a key. */
    __device__ Key counts(const ons_route &route) const {
        if (!route.bias || second < LEAST_KEY) return first;
        return key_of(number_of(first) + number_of(second));
    }
};

/* ------- The end of a row ------- */

/* Writes the results of a row if the row exists. `list` has the row's k entries in order. LANES
 * lanes, or a block (0), must call it. */
template <int LANES, typename Rows>
__device__ inline void write_listed(const topk_arguments<Rows> &args, int64_t row, bool exists,
                                    const entry<typename Rows::Real> *list,
                                    const state<typename Rows::Real> &total) {
    using Real = typename Rows::Real;
    auto get = [&](uint32_t j) -> chosen_expert<Real> {
        const entry<Real> one = list[j];
        const bool is_allowed = exists && one.key() >= LEAST_KEY;
        Real x = -arithmetic<Real>::infinity();
        if (is_allowed)
            x = args.route.bias ? element_of(args, row, one.index()) : number_of(one.key());
        return {x, one.index(), is_allowed};
    };
    write_route<LANES, false>(args, row, exists, total, get);
}

#endif
