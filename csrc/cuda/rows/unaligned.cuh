/* unaligned.cuh - unaligned_row: a row that may begin inside a pack, in x or in y. */
#ifndef ONS_UNALIGNED_CUH
#define ONS_UNALIGNED_CUH

#include "aligned.cuh"

/* ------- A warp's tile of 16-bit elements. The 32 lanes take neighbouring chunks, in K rounds. A
 * lane reads the words that hold its chunk. Overlapping reads come from the L1 cache. Lanes write
 * whole packs. A row's place in a pack or in a word is a constant, so picking words costs nothing.
 * All lanes have the same place, and the same `rounds` ------- */

/* Number of rounds in which all 32 lanes have a whole chunk. */
template <int K, int V>
__device__ inline int full_rounds(int left) {
    return min(left / (WARP * V), K);
}

/* Reads a lane's first `rounds` chunks, each by the words that hold it. With HALF the first chunk
 * begins in the middle of a word. Up to half a word of neighbouring rows or chunks is read too, and
 * dropped. read_more starts other reads meanwhile. */
template <bool HALF, typename T, typename P, int K, typename Meanwhile>
__device__ __forceinline__ void read_warp_tile(const T *from, int rounds, P (&raw)[K],
                                               Meanwhile read_more) {
    constexpr int WORDS = P::WORDS + HALF, APART = WARP * P::WORDS;
    const unsigned *const words = (const unsigned *)(from - HALF);
    unsigned word[K][WORDS];
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            if (k < rounds) word[k][i] = words[k * APART + i];
    read_more();
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < P::WORDS; i++)
            raw[k].word[i] =
                HALF ? __funnelshift_r(word[k][i], word[k][(i + 1) % WORDS], 16) : word[k][i];
}

/* Writes a lane's first `rounds` chunks of a tile that begins BYTES bytes into a pack. A lane
 * writes the packs that end in its chunks. It gets the end of the chunk before from the lane that
 * has it. The elements before the tile's first pack and after its last pack are written one by
 * one. */
template <int BYTES, bool STREAM, typename T, int V, int K>
__device__ __forceinline__ void write_warp_tile(T *to, int rounds, const pack<T, V> (&raw)[K]) {
    constexpr int BEFORE = BYTES / (int)sizeof(T), OWN = V - BEFORE;
    using P = pack<T, V>;
    const int lane = threadIdx.x % WARP;
    P got = {}; /* lane 0: the end of the last lane's chunk, which precedes lane 0's next chunk */
#pragma unroll
    for (int k = 0; k < K; k++) {
        const P mine = raw[k];
        T *const at = to + place<WARP, V>(k * V);
        P previous = {};
#pragma unroll
        for (int i = OWN * (int)sizeof(T) / 4; i < P::WORDS; i++) {
            const unsigned given = __shfl_sync(~0u, mine.word[i], lane + WARP - 1);
            previous.word[i] = lane == 0 ? got.word[i] : given;
            if (k < rounds) got.word[i] = given;
        }
        if (k < rounds && (k > 0 || BYTES == 0 || lane > 0))
            write_pack<STREAM>((P *)(at - BEFORE),
                               BYTES ? between(previous, mine, OWN * (int)sizeof(T)) : mine);
        if (BYTES > 0 && k == 0 && lane == 0 && rounds > 0) {
#pragma unroll
            for (int i = 0; i < OWN; i++) at[i] = mine.element(i);
        }
    }
    if (BYTES > 0 && lane == 0 && rounds > 0) {
        T *const end = to + rounds * (WARP * V);
#pragma unroll
        for (int i = OWN; i < V; i++) end[i - V] = got.element(i);
    }
}

/* ------- Any row ------- */

/* A row whose x or y may begin inside a pack. A whole warp reads its chunks element by element, or
 * word by word for 16 bits, as above. Fewer lanes each read the pack in which their chunk begins,
 * and get the chunk's end from the lane with the next pack. A lane writes the pack that ends in its
 * chunk, with the end of the chunk before from the lane that has it. All STRIDE lanes that share
 * the row must call these functions. */
template <typename X, typename Y, typename Pointers = row_pointers<X, Y>>
class unaligned_row : public aligned_row<X, Y, false, Pointers> {
    using base = aligned_row<X, Y, false, Pointers>;

   public:
    using Real = typename base::Real;
    static constexpr int V = base::V;
    using base::base;

    template <int K, int STRIDE>
    __device__ __forceinline__ raw_tile<X, K> load(int64_t chunk) const {
        const X *const x = base::pointers.x();
        const int bytes = (int)((uintptr_t)x % sizeof(pack<X, V>));
        raw_tile<X, K> tile(base::pointers.format());
        if constexpr (sizeof(X) == 2 && STRIDE == WARP) {
            load_warp_tile(x, chunk, bytes, tile);
            return tile;
        }
        if constexpr (sizeof(X) >= 4 && STRIDE == WARP) {
            load_one_by_one(x + chunk * V, elements_left(base::N, chunk * V), tile);
            return tile;
        }
        const int ahead = bytes / (int)sizeof(X), lane = threadIdx.x % STRIDE;
        const int left = elements_left(base::N, chunk * V);
        const X *from = x + chunk * V - ahead; /* where the pack begins */
        pack<X, V>(&raw)[K] = tile.raw, next = {};
#pragma unroll
        for (int k = 0; k < K; k++)
            if ((k > 0 || chunk > 0 || ahead == 0) && place<STRIDE, V>(k * V) - ahead + V <= left)
                raw[k] = ((const pack<X, V> *)from)[k * STRIDE];
        if (ahead > 0 && chunk == 0) raw[0] = base::edge(from, ahead, left + ahead);
        /* the row's end, if it lies within a pack */
        int end = last_place<K, STRIDE, V>(left + ahead);
        if (end > 0 || chunk > 0 || ahead == 0) {
            if (end < left + ahead && end + V > left + ahead) {
                pack<X, V> last = base::edge(from + end, 0, left + ahead - end);
#pragma unroll
                for (int k = 0; k < K; k++)
                    if (k * (STRIDE * V) == end) raw[k] = last;
            }
        }
        /* The last lane's next pack is the first lane's pack of the next round. In the last round
         * it reads this pack itself. */
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
            for (int k = 0; k < K; k++) raw[k].cut(left - place<STRIDE, V>(k * V), tile.format);
        }
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          allowed_bits<K * V>, Real) const {
        Y *const y = base::pointers.y();
        const int bytes = (int)((uintptr_t)y % sizeof(pack<Y, V>));
        if constexpr (sizeof(Y) == 2 && STRIDE == WARP) {
            store_warp_tile<STREAM>(y, chunk, bytes, from);
            return;
        }
        const int before = bytes / (int)sizeof(Y), own = V - before, lane = threadIdx.x % STRIDE;
        const int left = elements_left(base::N, chunk * V);
        const bool has_first = before == 0 || (lane > 0 && chunk > 0);
        Y *to = y + chunk * V;
        const int end = last_place<K, STRIDE, V>(left);
        pack<Y, V> raw[K], first, last, before_last;
        round_to_packs(from, raw, base::of_results());
#pragma unroll
        for (int k = 0; k < K; k++) {
            const pack<Y, V> &mine = raw[k], &earlier = raw[k > 0 ? k - 1 : 0];
            pack<Y, V> previous = {};
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
        /* Single elements: the beginning of the first chunk if no lane has the chunk before, the
         * end of the last chunk if no lane has the next, and the end of the row. If one lane has
         * the row, also the end of the chunk before the last, if the last chunk's pack is not
         * written. */
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
    template <int K>
    __device__ __forceinline__ static void load_one_by_one(const X *from, int left,
                                                           raw_tile<X, K> &tile) {
        if (has_all<K, WARP, V>(left)) {
#pragma unroll
            for (int e = 0; e < K * V; e++) tile.raw[e / V].put(e % V, from[place<WARP, V>(e)]);
            return;
        }
#pragma unroll
        for (int e = 0; e < K * V; e++)
            if (place<WARP, V>(e) < left) tile.raw[e / V].put(e % V, from[place<WARP, V>(e)]);
#pragma unroll
        for (int k = 0; k < K; k++) tile.raw[k].cut(left - place<WARP, V>(k * V), tile.format);
    }

    template <int K>
    __device__ __forceinline__ void load_warp_tile(const X *x, int64_t chunk, int bytes,
                                                   raw_tile<X, K> &tile) const {
        const int lane = threadIdx.x % WARP, left = elements_left(base::N, (chunk - lane) * V);
        const bool half = bytes % 4;
        /* the word in which the last chunk ends must be the row's too */
        const int rounds = full_rounds<K, V>(left - half);
        const X *from = x + chunk * V;
        if (__all_sync(~0u, rounds == K)) {
            with_half(half, [&](auto is_half) {
                read_warp_tile<decltype(is_half)::value>(from, K, tile.raw, [] {});
            });
            return;
        }
        const int at = rounds * (WARP * V), mine = left - lane * V - at;
        X single[V];
        with_half(half, [&](auto is_half) {
            read_warp_tile<decltype(is_half)::value>(from, rounds, tile.raw, [&] {
#pragma unroll
                for (int i = 0; i < V; i++)
                    if (i < mine) single[i] = from[at + i];
            });
        });
        pack<X, V> last = {};
#pragma unroll
        for (int i = 0; i < V; i++) last.put(i, single[i]);
        last.cut(mine, tile.format);
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (k >= rounds) tile.raw[k] = last;
            if (k > rounds) tile.raw[k].cut(0, tile.format);
        }
    }

    template <bool STREAM, int n>
    __device__ __forceinline__ void store_warp_tile(Y *y, int64_t chunk, int bytes,
                                                    const Real (&from)[n]) const {
        constexpr int K = n / V;
        const int lane = threadIdx.x % WARP, left = elements_left(base::N, (chunk - lane) * V);
        const int rounds = full_rounds<K, V>(left);
        Y *to = y + chunk * V;
        pack<Y, V> raw[K];
        round_to_packs(from, raw, base::of_results());
        if (__all_sync(~0u, rounds == K)) {
            with_shift<Y>(bytes, [&](auto shift) {
                write_warp_tile<decltype(shift)::value, STREAM>(to, K, raw);
            });
            return;
        }
        const int at = rounds * (WARP * V), mine = left - lane * V - at;
        const pack<Y, V> last = chunk_at<WARP, V>(raw, at);
#pragma unroll
        for (int i = 0; i < V; i++)
            if (i < mine) to[at + i] = last.element(i);
        with_shift<Y>(bytes, [&](auto shift) {
            write_warp_tile<decltype(shift)::value, STREAM>(to, rounds, raw);
        });
    }

    /* Calls body with `bytes` as a constant. It is the same in all lanes. */
    template <typename T, int BYTES = 0, typename Body>
    __device__ __forceinline__ static void with_shift(int bytes, Body body) {
        if constexpr (BYTES + sizeof(T) < sizeof(pack<T, V>))
            if (!__all_sync(~0u, bytes == BYTES))
                return with_shift<T, BYTES + (int)sizeof(T)>(bytes, body);
        body(std::integral_constant<int, BYTES>());
    }

    /* Calls body with `half` as a constant. It is the same in all lanes. */
    template <typename Body>
    __device__ __forceinline__ static void with_half(bool half, Body body) {
        if (__all_sync(~0u, half))
            body(std::true_type());
        else
            body(std::false_type());
    }

    /* A word of another lane that shares the row. */
    template <int STRIDE>
    __device__ static unsigned of_lane(unsigned mine, int lane) {
        return __shfl_sync(~0u, mine, lane, STRIDE);
    }
};

#endif
