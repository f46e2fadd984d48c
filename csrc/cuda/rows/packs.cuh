/* packs.cuh - a pack is a chunk of a row as it lies in memory. One access reads or writes it. */
#ifndef ONS_PACKS_CUH
#define ONS_PACKS_CUH

#include "elements.cuh"

/* Stored as words: 16-bit elements in registers of their own would take twice as many registers. */
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

    /* Element i, read as a Type, in the arithmetic's type. */
    template <typename Type = T>
    __device__ typename compute_of<T>::type real(int i) const {
        if constexpr (std::is_same_v<Type, __nv_bfloat16>)
            return __uint_as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
        else if constexpr (std::is_same_v<Type, __half>)
            return __half2float(bits_as<__half>(bits_of(element(i))));
        else
            return to_real<typename compute_of<T>::type>(element(i));
    }

    /* Sets the elements from `count` on to -inf. Any count is allowed. */
    __device__ void cut(int count, const element_format<T> &format = element_format<T>()) {
        constexpr int PER_WORD = 4 / (int)sizeof(T);
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            int left = sizeof(T) == 8 ? count - w / 2 : count - w * PER_WORD;
            if (left <= 0)
                word[w] = minus_infinity(w, format);
            else if (PER_WORD == 2 && left == 1)
                word[w] = (word[w] & 0xffff) | (minus_infinity(w, format) & 0xffff0000u);
        }
    }

    /* Sets each element whose byte is 0 to -inf. */
    __device__ void exclude(unsigned bytes, const element_format<T> &format) {
        /* sets the highest bit of each byte that is not 0; prmt spreads this bit */
        const unsigned not_zero = bytes | ((bytes & 0x7f7f7f7f) + 0x7f7f7f7f);
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            const int first = w * 4 / (int)sizeof(T), second = (w * 4 + 2) / (int)sizeof(T);
            unsigned mask;
            asm("prmt.b32 %0, %1, 0, %2;"
                : "=r"(mask)
                : "r"(not_zero), "r"((8 + second) * 0x1100 + (8 + first) * 0x11));
            word[w] = (word[w] & mask) | (minus_infinity(w, format) & ~mask);
        }
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

   private:
    /* Word w of a pack of -inf. */
    __device__ static unsigned minus_infinity(int w, const element_format<T> &format) {
        if constexpr (sizeof(T) == 2)
            return bits_of(format.minus_infinity()) * 0x10001u;
        else if constexpr (std::is_same_v<T, float>)
            return 0xff800000u;
        else
            return w % 2 ? 0xfff00000u : 0;
    }
};

__device__ inline unsigned two_in_a_word(float low, float high, __half) {
    __half2 both = __floats2half2_rn(low, high);
    return *(unsigned *)&both;
}
__device__ inline unsigned two_in_a_word(float low, float high, __nv_bfloat16) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(unsigned *)&both;
}

/* Rounds results to the packs' type. */
template <typename T, int V, int K, typename Real>
__device__ __forceinline__ void round_to_packs(const Real *from, pack<T, V> (&to)[K],
                                               const element_format<T> &format) {
    if constexpr (sizeof(T) == 2) {
        format.with([&](auto type) {
#pragma unroll
            for (int i = 0; i < K * V; i += 2)
                to[i / V].word[i % V / 2] = two_in_a_word(from[i], from[i + 1], type);
        });
    } else {
#pragma unroll
        for (int i = 0; i < K * V; i++) to[i / V].put(i % V, from_real<T>(from[i]));
    }
}

/* Writes a pack. With STREAM the cache evicts it first, so it does not displace data still to be
 * read. */
template <bool STREAM, typename P>
__device__ inline void write_pack(P *to, const P &value) {
    if constexpr (STREAM && sizeof(P) == sizeof(uint4))
        __stcs((uint4 *)to, *(const uint4 *)&value);
    else if constexpr (STREAM && sizeof(P) == sizeof(uint2))
        __stcs((uint2 *)to, *(const uint2 *)&value);
    else
        *to = value;
}

/* The pack that begins `bytes` bytes into low and high, put side by side. `bytes` is even. */
template <typename P>
__device__ inline P between(const P &low, const P &high, int bytes) {
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

/* A row is aligned if it begins and ends with a pack. A kernel serves launches whose rows are ALL
 * aligned in all arrays, launches where NOT_ALL are, or EITHER. With EITHER each load and store
 * checks its row's address. */
enum class alignment { ALL, NOT_ALL, EITHER };

/* Whether all K chunks of a thread are in the row, which has `left` elements from the first on. */
template <int K, int STRIDE, int V>
__device__ inline bool has_all(int left) {
    return left > place<STRIDE, V>(K * V - 1);
}

/* The place of a thread's last chunk that begins before `left`, and this chunk. */
template <int K, int STRIDE, int V>
__device__ inline int last_place(int left) {
    int k = left <= 0 ? 0 : (left - 1) / (STRIDE * V);
    return (k < K ? k : K - 1) * (STRIDE * V);
}
template <int STRIDE, int V, typename P, int K>
__device__ __forceinline__ P chunk_at(const P (&raw)[K], int at) {
    P found = raw[0];
#pragma unroll
    for (int k = 1; k < K; k++)
        if (k * (STRIDE * V) == at) found = raw[k];
    return found;
}

#endif
