/* contiguous.cuh - contiguous_rows: rows without gaps. A chunk is read and written in one access, a
 * pack, where the row's address is a multiple of a pack's size; else as the part that it has of two
 * packs. Only at the ends of a row are there single elements. */
#ifndef ONS_CONTIGUOUS_CUH
#define ONS_CONTIGUOUS_CUH

#include "tile.cuh"

/* A row whose x and y begin with a pack; WHOLE: and end with one. */
template <typename X, typename Y, bool WHOLE>
class fitting_row {
   public:
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>;

    __device__ fitting_row(const X *x_, Y *y_, int64_t N_) : N(N_), x(x_), y(y_) {}

    template <int K, int STRIDE>
    __device__ __forceinline__ packed_tile<X, K> load(int64_t chunk) const {
        const X *from = x + chunk * V;
        const int left = elements_left(N, chunk * V);
        packed_tile<X, K> tile;
        if (has_all<K, STRIDE, V>(left)) {
#pragma unroll
            for (int k = 0; k < K; k++) tile.raw[k] = ((const pack<X, V> *)from)[k * STRIDE];
            return tile;
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int count = left - place<STRIDE, V>(k * V);
            if (count >= V)
                tile.raw[k] = ((const pack<X, V> *)from)[k * STRIDE];
            else if (WHOLE || count <= 0)
                tile.raw[k].cut(0);
        }
        const int end = last_place<K, STRIDE, V>(left);
        if (!WHOLE && end < left && end + V > left) { /* elements that do not fill a pack */
            pack<X, V> last = edge(from + end, 0, left - end);
            last.cut(left - end);
#pragma unroll
            for (int k = 0; k < K; k++)
                if (k * (STRIDE * V) == end) tile.raw[k] = last;
        }
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          keep_bits<K * V>) const {
        Y *to = y + chunk * V;
        const int left = elements_left(N, chunk * V), end = last_place<K, STRIDE, V>(left);
        pack<Y, V> raw[K];
        if (has_all<K, STRIDE, V>(left)) {
#pragma unroll
            for (int k = 0; k < K; k++)
                write_pack<STREAM>((pack<Y, V> *)to + k * STRIDE, rounded_pack<Y, V>(from + k * V));
            return;
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            raw[k] = rounded_pack<Y, V>(from + k * V);
            if (place<STRIDE, V>(k * V) + V <= left)
                write_pack<STREAM>((pack<Y, V> *)to + k * STRIDE, raw[k]);
        }
        if (!WHOLE && end < left && end + V > left) {
            pack<Y, V> last = chunk_at<STRIDE, V>(raw, end);
#pragma unroll
            for (int i = 0; i < V; i++)
                if (end + i < left) to[end + i] = last.element(i);
        }
    }

    __device__ Real rounded(Real v) const { return to_real<Real>(from_real<X>(v)); }

    int64_t N;

   protected:
    /* A pack of which only elements begin to end are read. */
    __device__ static pack<X, V> edge(const X *from, int begin, int end) {
        pack<X, V> some = {};
#pragma unroll
        for (int i = 0; i < V; i++)
            if (i >= begin && i < end) some.put(i, from[i]);
        return some;
    }

    const X *x;
    Y *y;
};

/* A row whose x or y begins between two packs. Each lane reads the pack in which its chunk begins
 * and gets the chunk's end from the lane that reads the next one; it writes the pack that ends in
 * its chunk, with the end of the chunk before from the lane that has it. To be called by all the
 * STRIDE lanes that share the row. */
template <typename X, typename Y>
class shifted_row : public fitting_row<X, Y, false> {
    using base = fitting_row<X, Y, false>;

   public:
    using Real = typename base::Real;
    static constexpr int V = base::V;
    using base::base;

    template <int K, int STRIDE>
    __device__ __forceinline__ packed_tile<X, K> load(int64_t chunk) const {
        const int bytes = (int)((uintptr_t)base::x % sizeof(pack<X, V>));
        const int ahead = bytes / (int)sizeof(X), lane = threadIdx.x % STRIDE;
        const int left = elements_left(base::N, chunk * V);
        const X *from = base::x + chunk * V - ahead; /* where the pack begins */
        packed_tile<X, K> tile;
        pack<X, V>(&raw)[K] = tile.raw, next = {};
#pragma unroll
        for (int k = 0; k < K; k++)
            if ((k > 0 || chunk > 0 || ahead == 0) && place<STRIDE, V>(k * V) - ahead + V <= left)
                raw[k] = ((const pack<X, V> *)from)[k * STRIDE];
        if (ahead > 0 && chunk == 0) raw[0] = base::edge(from, ahead, left + ahead);
        /* the row's end, where it lies within a pack */
        int end = last_place<K, STRIDE, V>(left + ahead);
        if (end > 0 || chunk > 0 || ahead == 0) {
            if (end < left + ahead && end + V > left + ahead) {
                pack<X, V> last = base::edge(from + end, 0, left + ahead - end);
#pragma unroll
                for (int k = 0; k < K; k++)
                    if (k * (STRIDE * V) == end) raw[k] = last;
            }
        }
        /* the last lane's next is what the first has one k later; after its last it reads one more
         */
        const int after = place<STRIDE, V>((K - 1) * V) + V;
        if (lane == STRIDE - 1 && ahead > 0) {
            if (after - ahead + V <= left)
                next = *(const pack<X, V> *)(from + after);
            else if (after - ahead < left)
                next = base::edge(from + after, 0, left + ahead - after);
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            pack<X, V> high = next;
#pragma unroll
            for (int i = 0; i < pack<X, V>::WORDS - (sizeof(X) == 4); i++) {
                unsigned given = raw[k].word[i];
                if (k + 1 < K && lane == 0) given = raw[k + 1 < K ? k + 1 : k].word[i];
                unsigned got = of_lane<STRIDE>(given, (lane + 1) % STRIDE);
                if (k + 1 < K || lane < STRIDE - 1) high.word[i] = got;
            }
            raw[k] = between(raw[k], high, bytes);
        }
        if (!has_all<K, STRIDE, V>(left)) {
#pragma unroll
            for (int k = 0; k < K; k++) raw[k].cut(left - place<STRIDE, V>(k * V));
        }
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          keep_bits<K * V>) const {
        const int bytes = (int)((uintptr_t)base::y % sizeof(pack<Y, V>));
        const int before = bytes / (int)sizeof(Y), own = V - before, lane = threadIdx.x % STRIDE;
        const int left = elements_left(base::N, chunk * V);
        const bool has_first = before == 0 || (lane > 0 && chunk > 0);
        Y *to = base::y + chunk * V;
        const int end = last_place<K, STRIDE, V>(left);
        pack<Y, V> raw[2], first, last, before_last; /* raw: of this k and of the one before */
#pragma unroll
        for (int k = 0; k < K; k++) {
            pack<Y, V> &mine = raw[k % 2], &earlier = raw[(k + 1) % 2], previous = {};
            mine = rounded_pack<Y, V>(from + k * V);
#pragma unroll
            for (int i = sizeof(Y) == 4; i < pack<Y, V>::WORDS; i++) {
                unsigned given = k > 0 && lane == STRIDE - 1 ? earlier.word[i] : mine.word[i];
                previous.word[i] = of_lane<STRIDE>(given, (lane + STRIDE - 1) % STRIDE);
            }
            const int at = place<STRIDE, V>(k * V);
            if ((k > 0 || has_first) && at + own <= left)
                write_pack<STREAM>((pack<Y, V> *)(to + at - before),
                                   before ? between(previous, mine, own * (int)sizeof(Y)) : mine);
            if (k == 0) first = mine;
            if (k == 0 || at <= end) {
                before_last = last;
                last = mine;
            }
        }
        /* Single elements: the beginning of the first chunk where no lane has the one before, the
         * end of the last one where no lane has the next, and the end of the row; of a row that one
         * lane has, what its last chunk's pack would have of the chunk before. */
        const bool packed = (has_first || end > 0) && end + own <= left;
        const bool next_packed =
            end + V + own <= left && (lane < STRIDE - 1 || end < place<STRIDE, V>((K - 1) * V));
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (STRIDE == 1 && i >= own && end > 0 && !packed)
                to[end - V + i] = before_last.element(i);
            if (i < own && !has_first && end > 0) to[i] = first.element(i);
            if (!(i < own ? packed : before == 0 || next_packed) && end + i < left)
                to[end + i] = last.element(i);
        }
    }

   private:
    /* A word of another of the lanes that share the row. */
    template <int STRIDE>
    __device__ static unsigned of_lane(unsigned mine, int lane) {
        return __shfl_sync(~0u, mine, lane, STRIDE);
    }
};

/* ALL_FIT: every row begins and ends with a pack, in x and in y. */
template <typename X, typename Y, bool ALL_FIT>
struct contiguous_rows {
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ::BLOCK_THREADS, BLOCKS = 1;
    static constexpr bool NARROW = sizeof(X) + sizeof(Y) == 4;
    static constexpr int CLUSTER_WARPS = NARROW ? CLUSTER_WARPS_16_BIT : ::CLUSTER_WARPS;

    struct arguments {
        const X *x;
        Y *y;
        int64_t x_pitch, y_pitch; /* in elements */
        int64_t rows, N;
        int64_t first; /* row of this launch */
    };

    static bool all_fit(const arguments &of) {
        return of.N % V == 0 && (uintptr_t)of.x % sizeof(pack<X, V>) == 0 && of.x_pitch % V == 0 &&
               (uintptr_t)of.y % sizeof(pack<Y, V>) == 0 && of.y_pitch % V == 0;
    }

    /* One way for all lanes of a warp, which then do what they share together. */
    template <bool BEYOND, typename Body>
    __device__ __forceinline__ static void visit(const arguments &of, int64_t row, Body body) {
        row += of.first;
        int64_t N = BEYOND && row >= of.rows ? 0 : of.N;
        const X *x = of.x + row * of.x_pitch;
        Y *y = of.y + row * of.y_pitch;
        if constexpr (ALL_FIT)
            body(fitting_row<X, Y, true>(x, y, N));
        else if (__all_sync(~0u, begin_with_pack<X, Y, V>(x, y)))
            body(fitting_row<X, Y, false>(x, y, N));
        else
            body(shifted_row<X, Y>(x, y, N));
    }
};

#endif
