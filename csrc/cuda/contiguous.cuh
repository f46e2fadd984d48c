/* contiguous.cuh - contiguous_rows: rows without gaps. A chunk is read and written in one access, a
 * pack, where the row's address is a multiple of a pack's size; else as the part that it has of two
 * packs. Only at the ends of a row are there single elements. */
#ifndef ONS_CONTIGUOUS_CUH
#define ONS_CONTIGUOUS_CUH

#include "elements.cuh"

/* Kept in words: 16-bit elements in registers of their own would take twice as many. */
template <typename T, int V>
struct alignas(sizeof(T) * V) pack {
    static constexpr int WORDS = sizeof(T) * V / 4;
    unsigned word[WORDS];

    __device__ T element(int i) const {
        if constexpr (sizeof(T) == 2)
            return bits_as<T>((unsigned short)(word[i / 2] >> i % 2 * 16));
        else if constexpr (sizeof(T) == 4)
            return __uint_as_float(word[i]);
        else
            return __hiloint2double((int)word[2 * i + 1], (int)word[2 * i]);
    }

    __device__ void put(int i, T value) {
        if constexpr (sizeof(T) == 2) {
            unsigned bits = bits_of(value);
            word[i / 2] =
                i % 2 ? (word[i / 2] & 0xffff) | bits << 16 : (word[i / 2] & ~0xffffu) | bits;
        } else if constexpr (sizeof(T) == 4) {
            word[i] = __float_as_uint(value);
        } else {
            word[2 * i] = (unsigned)__double2loint(value);
            word[2 * i + 1] = (unsigned)__double2hiint(value);
        }
    }
};

__device__ inline unsigned pair_of(float low, float high, __half) {
    __half2 both = __floats2half2_rn(low, high);
    return *(unsigned *)&both;
}
__device__ inline unsigned pair_of(float low, float high, __nv_bfloat16) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(unsigned *)&both;
}

/* V results rounded to a pack's type. */
template <typename T, int V, typename Real>
__device__ inline pack<T, V> rounded_pack(const Real *from) {
    pack<T, V> to = {};
#pragma unroll
    for (int i = 0; i < V; i++)
        if constexpr (sizeof(T) != 2)
            to.put(i, from_real<T>(from[i]));
        else if (i % 2)
            to.word[i / 2] = pair_of(from[i - 1], from[i], T());
    return to;
}

/* Writes a pack; STREAM: as one that nobody reads soon, so that it does not push out of the cache
 * what is still to be read. */
template <bool STREAM, typename P>
__device__ inline void write_pack(P *to, const P &value) {
    if constexpr (STREAM && sizeof(P) == sizeof(uint4))
        __stcs((uint4 *)to, *(const uint4 *)&value);
    else if constexpr (STREAM && sizeof(P) == sizeof(uint2))
        __stcs((uint2 *)to, *(const uint2 *)&value);
    else
        *to = value;
}

/* The pack that begins `bytes` after `low` in the bytes of low and high; bytes are even and fewer
 * than a pack's. */
template <typename P>
__device__ inline P shifted(const P &low, const P &high, int bytes) {
    constexpr int WORDS = P::WORDS;
    unsigned w[2 * WORDS];
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        w[i] = low.word[i];
        w[WORDS + i] = high.word[i];
    }
    if constexpr (WORDS == 4) {
#pragma unroll
        for (int i = 0; i + 2 < 2 * WORDS; i++) w[i] = bytes & 8 ? w[i + 2] : w[i];
    }
#pragma unroll
    for (int i = 0; i + 1 < 2 * WORDS; i++) w[i] = bytes & 4 ? w[i + 1] : w[i];
    P out;
#pragma unroll
    for (int i = 0; i < WORDS; i++) out.word[i] = __funnelshift_r(w[i], w[i + 1], bytes % 4 * 8);
    return out;
}

/* The same pack of another lane, of lanes that stand in groups of `width`. */
template <typename P>
__device__ inline P of_lane(const P &mine, int lane, int width) {
    P theirs;
#pragma unroll
    for (int i = 0; i < P::WORDS; i++) theirs.word[i] = __shfl_sync(~0u, mine.word[i], lane, width);
    return theirs;
}

template <typename X, typename Y>
class contiguous_rows {
   public:
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = 1024;
    static constexpr int CLUSTER_BLOCKS = sizeof(X) == 2 ? 3 : 2;

    struct arguments {
        const X *x;
        Y *y;
        int64_t x_pitch, y_pitch; /* in elements */
        int64_t rows, N;
        int64_t first; /* row of this launch */
    };

    __device__ contiguous_rows(const arguments &of, int64_t row)
        : N(row + of.first < of.rows ? of.N : 0),
          among_rows(of.x_pitch == of.N && row + of.first > 0 && row + of.first + 1 < of.rows),
          x(of.x + (row + of.first) * of.x_pitch),
          y(of.y + (row + of.first) * of.y_pitch) {}

    template <int K, int STRIDE>
    __device__ keep_bits<K * V> load(int64_t chunk, Real (&to)[K * V]) const {
        const X *from = x + chunk * V;
        int left = elements_left(N, chunk * V), beyond = misfit<x_pack>(from);
        x_pack raw[K];
        if (left > place<STRIDE, V>(K * V - 1) && beyond == 0) {
#pragma unroll
            for (int k = 0; k < K; k++) raw[k] = ((const x_pack *)from)[k * STRIDE];
        } else if (among_rows || (chunk > 0 && left > place<STRIDE, V>(K * V - 1) + V)) {
            /* What these packs have of the rows before and after is thrown away. */
#pragma unroll
            for (int k = 0; k < K; k++)
                if (place<STRIDE, V>(k * V) < left) {
                    const x_pack *low = (const x_pack *)(from - beyond) + k * STRIDE;
                    bool two = beyond && place<STRIDE, V>(k * V) + V - beyond < left;
                    raw[k] = shifted(*low, two ? low[1] : *low, beyond * (int)sizeof(X));
                }
        } else {
#pragma unroll
            for (int e = 0; e < K * V; e++)
                if (place<STRIDE, V>(e) < left) raw[e / V].put(e % V, from[place<STRIDE, V>(e)]);
        }
#pragma unroll
        for (int e = 0; e < K * V; e++) to[e] = to_real<Real>(raw[e / V].element(e % V));
        if (left <= place<STRIDE, V>(K * V - 1)) {
#pragma unroll
            for (int e = 0; e < K * V; e++)
                if (place<STRIDE, V>(e) >= left) to[e] = -arithmetic<Real>::infinity();
        }
        return ~keep_bits<K * V>(0);
    }

    /* To be called by all lanes of a warp. */
    template <int K, int STRIDE, bool STREAM>
    __device__ void store(int64_t chunk, const Real (&from)[K * V], keep_bits<K * V>) const {
        Y *to = y + chunk * V;
        int left = elements_left(N, chunk * V), before = misfit<y_pack>(to);
        y_pack raw[K];
#pragma unroll
        for (int k = 0; k < K; k++) raw[k] = rounded_pack<Y, V>(from + k * V);
        if (__all_sync(~0u, left > place<STRIDE, V>(K * V - 1) && before == 0)) {
#pragma unroll
            for (int k = 0; k < K; k++) write_pack<STREAM>((y_pack *)to + k * STRIDE, raw[k]);
            return;
        }
        /* The pack at the end of the chunk before and the beginning of each: the lane before has
         * that end, or the last lane one k earlier. */
        const int lane = threadIdx.x % STRIDE, own = V - before;
        const bool has_first = before == 0 || (lane > 0 && chunk > 0);
        y_pack ends = raw[0];
#pragma unroll
        for (int k = 0; k < K; k++) {
            y_pack last = k > 0 && lane == STRIDE - 1 ? raw[k > 0 ? k - 1 : 0] : raw[k];
            y_pack previous = of_lane(last, (lane + STRIDE - 1) % STRIDE, STRIDE);
            y_pack whole = before ? shifted(previous, raw[k], own * (int)sizeof(Y)) : raw[k];
            int j = place<STRIDE, V>(k * V);
            if ((k > 0 || has_first) && j + own <= left)
                write_pack<STREAM>((y_pack *)(to + j - before), whole);
            if (j < left) ends = raw[k];
        }
        /* Single elements: the beginning of the first chunk where no lane has the one before, the
         * end of the last one where no lane has the next, and the end of the row, which lies in
         * this thread's last chunk below `left`. */
        int at_end = (left - 1) / (STRIDE * V);
        at_end = place<STRIDE, V>((left <= 0 ? 0 : at_end < K ? at_end : K - 1) * V);
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (i < own && !has_first && own <= left) to[i] = raw[0].element(i);
            bool written = i < own
                               ? (has_first || at_end > 0 || own <= left) && at_end + own <= left
                               : at_end + V + own <= left &&
                                     (lane < STRIDE - 1 || at_end < place<STRIDE, V>((K - 1) * V));
            if (!written && at_end + i < left) to[at_end + i] = ends.element(i);
        }
    }

    __device__ Real rounded(Real v) const { return to_real<Real>(from_real<X>(v)); }

    int64_t N; /* 0 for a row beyond the last */

   private:
    using x_pack = pack<X, V>;
    using y_pack = pack<Y, V>;

    /* How many elements an address lies behind the beginning of a pack. */
    template <typename P, typename T>
    __device__ static int misfit(const T *at) {
        return (int)((uintptr_t)at % sizeof(P) / sizeof(T));
    }

    bool among_rows; /* there are rows right before and after this one, whose memory can be read */
    const X *x;
    Y *y;
};

#endif
