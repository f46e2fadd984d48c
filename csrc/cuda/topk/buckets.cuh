/* buckets.cuh - sorts a few entries by buckets. Each entry goes to the bucket of its key, and
 * counts the entries before it in this bucket. The first bucket has the largest keys. */
#ifndef ONS_BUCKETS_CUH
#define ONS_BUCKETS_CUH

#include "entry.cuh"
#include "scan.cuh"

/* The bucket of a key, by its distance from the largest key. Keys are nearly logarithms, so an
 * outlier does not press all others into one bucket. But around 0 the keys are dense. If the
 * numbers lie on both sides of 0, the distance is taken between the numbers themselves. */
template <typename Real>
class bucket_of_key {
    using Key = key_type<Real>;

   public:
    __device__ bucket_of_key(Key least, Key largest_, uint32_t buckets)
        : largest(largest_), top(number_of(largest_)), last(buckets - 1) {
        const Real low = number_of(least);
        by_number = low <= 0 && top >= 0 && isfinite(top - low);
        scale = (float)buckets / away(least);
    }
    __device__ uint32_t operator()(Key key) const {
        return min((uint32_t)(away(key) * scale), last); /* NaN becomes 0 */
    }

   private:
    __device__ float away(Key key) const {
        return by_number ? (float)(top - number_of(key)) : (float)(largest - key);
    }

    Key largest;
    Real top;
    uint32_t last;
    float scale;
    bool by_number;
};

/* Number of buckets that each of the first LANES threads adds up. */
constexpr int BUCKETS_A_LANE = 16;

/* Replaces the count of each bucket by the place where the bucket begins. LANES lanes must call
 * it. */
template <int LANES>
__device__ inline void begin_buckets(uint32_t *buckets, int lane) {
    uint4 *const own = (uint4 *)(buckets + lane * BUCKETS_A_LANE);
    uint4 four[BUCKETS_A_LANE / 4];
    uint32_t n = 0;
#pragma unroll
    for (int i = 0; i < BUCKETS_A_LANE / 4; i++) {
        four[i] = own[i];
        n += four[i].x + four[i].y + four[i].z + four[i].w;
    }
    uint32_t at = sum_up_to_lane<LANES>(n, lane) - n;
#pragma unroll
    for (int i = 0; i < BUCKETS_A_LANE / 4; i++) {
        const uint4 is = four[i];
        own[i] = {at, at + is.x, at + is.x + is.y, at + is.x + is.y + is.z};
        at += is.x + is.y + is.z + is.w;
    }
}

/* `count` entries, and bounds of their keys. */
template <typename Real>
struct listed_entries {
    const entry<Real> *list;
    uint32_t count;
    key_type<Real> least, largest;
};

/* The threads that work on a list together: a block, or neighbouring lanes. */
struct whole_block {
    static constexpr int LANES = WARP; /* of the first warp */
    __device__ static uint32_t thread() { return threadIdx.x; }
    __device__ static uint32_t threads() { return blockDim.x; }
    __device__ static void sync() { __syncthreads(); }
};
template <int LANES_>
struct lanes_together {
    static constexpr int LANES = LANES_;
    __device__ static uint32_t thread() { return threadIdx.x % LANES; }
    __device__ static uint32_t threads() { return LANES; }
    __device__ static void sync() { __syncwarp(); }
};

/* Calls put(place in the order, entry) for the first k entries. `sorted` has room for all entries,
 * and `buckets` for LANES * BUCKETS_A_LANE numbers. All Threads must call it. */
template <typename Threads, typename Real, typename Put>
__device__ inline void put_by_buckets(const listed_entries<Real> &given, entry<Real> *sorted,
                                      uint32_t *buckets, uint32_t k, Put put) {
    constexpr int LANES = Threads::LANES;
    constexpr uint32_t BUCKETS = LANES * BUCKETS_A_LANE;
    const entry<Real> *const list = given.list;
    const uint32_t count = given.count, thread = Threads::thread(), threads = Threads::threads();
    const bucket_of_key<Real> bucket(given.least, given.largest, BUCKETS);
    for (uint32_t i = thread; i < BUCKETS; i += threads) buckets[i] = 0;
    Threads::sync();
#pragma unroll 1
    for (uint32_t i = thread; i < count; i += threads)
        atomicAdd(buckets + bucket(list[i].key()), 1);
    Threads::sync();
    if (thread < LANES) begin_buckets<LANES>(buckets, (int)thread);
    Threads::sync();
#pragma unroll 1
    for (uint32_t i = thread; i < count; i += threads)
        sorted[atomicAdd(buckets + bucket(list[i].key()), 1)] = list[i];
    Threads::sync(); /* now a bucket's number is where it ends */
#pragma unroll 1
    for (uint32_t i = thread; i < count; i += threads) {
        const entry<Real> own = sorted[i];
        const uint32_t in = bucket(own.key());
        uint32_t order = in > 0 ? buckets[in - 1] : 0;
        if (order >= k) break; /* entries after this one are also behind k */
        const uint32_t end = buckets[in];
#pragma unroll 1
        for (uint32_t j = order; j < end; j++) order += sorted[j].is_before(own);
        if (order < k) put(order, own);
    }
}

/* The largest number of entries for which each entry counts those before it. A large block counts
 * more, since its threads would be idle otherwise. */
__device__ inline uint32_t max_counted() { return max(48, blockDim.x / 8); }
constexpr uint32_t COUNT_LANES = 4;

/* Bytes of shared memory that a block needs beside a list of `room` entries, for buckets. */
template <typename Real>
__host__ __device__ constexpr int bytes_beside_list(int room) {
    return WARP * BUCKETS_A_LANE * (int)sizeof(uint32_t) + room * (int)sizeof(entry<Real>);
}

/* Calls put as put_by_buckets does. A block must call it, with bytes_beside_list bytes at
 * `beside`. */
template <typename Real, typename Put>
__device__ inline void give_first(const listed_entries<Real> &given, void *beside, uint32_t k,
                                  Put put) {
    const entry<Real> *const list = given.list;
    const uint32_t count = given.count;
    if (count > max_counted()) {
        uint32_t *const buckets = (uint32_t *)beside;
        entry<Real> *const sorted = (entry<Real> *)(buckets + WARP * BUCKETS_A_LANE);
        return put_by_buckets<whole_block>(given, sorted, buckets, k, put);
    }
    const uint32_t lane = threadIdx.x % COUNT_LANES;
#pragma unroll 1
    for (uint32_t begin = 0; begin < count; begin += blockDim.x / COUNT_LANES) {
        const uint32_t i = begin + threadIdx.x / COUNT_LANES;
        const entry<Real> own = i < count ? list[i] : entry<Real>();
        int before = 0;
#pragma unroll 4
        for (uint32_t j = lane; j < count && i < count; j += COUNT_LANES)
            before += list[j].is_before(own);
        before = count_over_lanes<COUNT_LANES>(before);
        if (lane == 0 && i < count && before < (int)k) put((uint32_t)before, own);
    }
}

#endif
