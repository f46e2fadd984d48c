/* staged.cuh - the rows of a block, staged in shared memory. It serves short rows that lie one
 * after the other without gaps, in x and in y. Most of them begin inside a pack, or have packs of 8
 * bytes, half of a lane's largest read. So a block copies all its rows to shared memory. It reads
 * whole packs of 16 bytes, and a row may begin inside a pack. A lane takes its chunks from shared
 * memory, at any address. The results go back in the same way. */
#ifndef ONS_STAGED_CUH
#define ONS_STAGED_CUH

#include <cuda_pipeline.h>

#include "bulk.cuh"
#include "tile.cuh"

template <typename T>
struct staged_arguments {
    const T *x;
    T *y;
    int64_t rows, N;
    ons_launch launch;
    element_format<T> format;
};

/* A lane's K chunks of a row in shared memory, every LANES-th chunk. A thread accesses only the
 * elements of its own chunks, so it may overwrite them with its results at once. All chunks but the
 * last are whole, since K is the smallest number that holds the row. */
template <typename T, int K, int LANES>
class staged_chunks {
   public:
    static constexpr int V = CHUNK<float>;

    /* The row begins at `row`. If `odd`, that is in the middle of a word. */
    __device__ staged_chunks(T *row, int N, int chunk, bool odd_, const element_format<T> &format_)
        : first(row + chunk * V),
          left(N - (chunk + (K - 1) * LANES) * V),
          odd(odd_),
          format(format_) {}

    /* The elements after the row's end become `end`. */
    __device__ raw_tile<T, K> load(T end) const {
        raw_tile<T, K> tile(format);
#pragma unroll
        for (int k = 0; k + 1 < K; k++) tile.raw[k] = whole(k);
        tile.raw[K - 1] = {};
#pragma unroll
        for (int i = 0; i < V; i++) {
            T last = end;
            if (i < left) last = first[PLACE * (K - 1) + i];
            tile.raw[K - 1].put(i, last);
        }
        return tile;
    }

    __device__ void store(const float (&from)[K * V]) const {
        pack<T, V> raw[K];
        round_to_packs(from, raw, format);
#pragma unroll
        for (int k = 0; k + 1 < K; k++) put_whole(k, raw[k]);
#pragma unroll
        for (int i = 0; i < V; i++)
            if (i < left) first[PLACE * (K - 1) + i] = raw[K - 1].element(i);
    }

    /* Chunk k, which is whole. */
    __device__ pack<T, V> whole(int k) const {
        pack<T, V> chunk;
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < V; i++) chunk.word[i] = __float_as_uint(first[PLACE * k + i]);
        } else {
            const unsigned pair = *two(k), others = __byte_perm(*one(k), *last(k), 0x5410);
            chunk.word[0] = __byte_perm(others, pair, odd ? 0x5410 : 0x7654);
            chunk.word[1] = __byte_perm(pair, others, odd ? 0x7632 : 0x7654);
        }
        return chunk;
    }

    __device__ void put_whole(int k, const pack<T, V> &chunk) const {
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < V; i++) first[PLACE * k + i] = chunk.element(i);
        } else {
            *two(k) = __byte_perm(chunk.word[0], chunk.word[1], odd ? 0x5432 : 0x3210);
            *one(k) =
                (unsigned short)__byte_perm(chunk.word[0], chunk.word[1], odd ? 0x3210 : 0x7654);
            *last(k) = (unsigned short)(chunk.word[1] >> 16);
        }
    }

   private:
    static constexpr int PLACE = LANES * V; /* elements from a chunk to the next */

    /* A chunk of four 16-bit elements: two share a word, and are accessed as a word. They are the
     * first two, or if `odd` the middle two. The other two are accessed alone; one of them is the
     * last. */
    __device__ unsigned *two(int k) const { return (unsigned *)(first + odd + PLACE * k); }
    __device__ unsigned short *one(int k) const {
        return (unsigned short *)(first + (odd ? 0 : 2) + PLACE * k);
    }
    __device__ unsigned short *last(int k) const {
        return (unsigned short *)(first + 3 + PLACE * k);
    }

    T *first;
    int left; /* elements from the last chunk on */
    bool odd;
    const element_format<T> &format;
};

/* `rows` rows of an array x from row `first` on; the array may end earlier. The results go to
 * args.y. `memory_` has staged_bytes, aligned. */
template <typename T>
class staged_rows {
    static constexpr int PACK = 16, SIZE = (int)sizeof(T);

   public:
    __device__ staged_rows(const staged_arguments<T> &args_, const T *x_, int64_t first_, int rows,
                           unsigned char *memory_)
        : args(args_),
          x(x_),
          first(first_ * args_.N),
          memory(memory_),
          before((int)((uintptr_t)(x + first) % PACK)),
          end(before + (int)(args_.rows - first_ < rows ? args_.rows - first_ : rows) *
                           (int)args_.N * SIZE) {}

    /* The two halves of read(), so that several copies can overlap. */
    __device__ void start() const {
        const char *from = (const char *)(x + first) - before;
        each_pack([&](int at) { __pipeline_memcpy_async(memory + at, from + at, PACK); });
        __pipeline_commit();
        each_other([&](int at) { *(T *)(memory + at) = *(const T *)(from + at); });
    }
    __device__ void arrive() const {
        __pipeline_wait_prior(0);
        __syncthreads();
    }
    /* The whole block must call it. */
    __device__ void read() const {
        start();
        arrive();
    }

    __device__ T *row(int r) const { return (T *)(memory + before + r * (int)args.N * SIZE); }

    /* The chunks of the block's row `r` from `chunk` on. After the last row they may hold
     * anything. */
    template <int K, int LANES>
    __device__ staged_chunks<T, K, LANES> chunks(int r, int chunk) const {
        const int N = (int)args.N, at = before + r * N * SIZE;
        return {(T *)(memory + at), N, chunk, at % 4 != 0, args.format};
    }

    /* The whole block must call it. */
    __device__ void write() const {
        char *to = (char *)(args.y + first) - before;
#if __CUDA_ARCH__ >= 900
        order_accesses();
        __syncthreads();
        const int bytes = last_whole() - first_whole();
        if (threadIdx.x == 0 && bytes > 0)
            bulk_write(to + first_whole(), memory + first_whole(), (uint32_t)bytes);
#else
        __syncthreads();
        each_pack([&](int at) { *(uint4 *)(to + at) = *(const uint4 *)(memory + at); });
#endif
        each_other([&](int at) { *(T *)(to + at) = *(const T *)(memory + at); });
    }

   private:
    /* The packs that belong to this block alone begin and end at these bytes of `memory`. */
    __device__ int first_whole() const { return before > 0 ? PACK : 0; }
    __device__ int last_whole() const { return max(end / PACK * PACK, first_whole()); }

    /* Calls body with the place of each such pack. */
    template <typename Body>
    __device__ __forceinline__ void each_pack(Body body) const {
        const int step = blockDim.x * PACK, until = last_whole();
#pragma unroll 4
        for (int at = first_whole() + threadIdx.x * PACK; at < until; at += step) body(at);
    }

    /* Calls body with the place of each element outside those packs: fewer than a warp's lanes. */
    template <typename Body>
    __device__ __forceinline__ void each_other(Body body) const {
        if (((before | end) & (PACK - 1)) == 0) return;
        const int head = before + threadIdx.x * SIZE, tail = last_whole() + threadIdx.x * SIZE;
        if (head < min(first_whole(), end)) body(head);
        if (tail < end) body(tail);
    }

    const staged_arguments<T> &args;
    const T *x;
    int64_t first; /* first element of the block's rows in the array */
    unsigned char *memory;
    int before, end; /* where the rows begin and end in `memory`, in bytes */
};

/* Bytes of shared memory for `rows` rows of N elements. */
template <typename T>
__host__ __device__ inline int staged_bytes(int64_t rows, int64_t N) {
    return (int)(rows * N * (int64_t)sizeof(T)) + 16;
}

#endif
