/* packed.cuh - packed_columns: rows of an axis that is not the last, whose elements lie beside
 * those of the next row in x and in y, without mask or scale. A thread takes C of them at once
 * (columns.cuh), in a pack where each lies whole in memory and at a multiple of its size; else
 * element by element, neighbouring lanes neighbouring ones. */
#ifndef ONS_PACKED_CUH
#define ONS_PACKED_CUH

#include "address.cuh"
#include "columns.cuh"

template <typename X, typename Y>
class packed_columns {
   public:
    using Real = typename compute_of<X>::type;
    static constexpr int C = CHUNK<Real>, V = C; /* a chunk is a pack: one element of each row */
    static constexpr bool NARROW = sizeof(X) == 2;
    static constexpr int BLOCK_THREADS = ANY_BLOCK_THREADS, BLOCKS = 2;
    static constexpr int CLUSTER_WARPS = COLUMN_CLUSTER_WARPS;

    /* Slices lie behind one another, each `width` rows side by side; they are counted as `across`
     * rows. Strides are in elements. */
    struct arguments {
        const X *x;
        Y *y;
        int64_t x_slice, y_slice, x_step, y_step; /* to the next slice, along the axis */
        int64_t width, across;
        int64_t rows, N; /* rows: across times the slices */
        int64_t first;   /* row of this launch */
        bool in_packs;
    };

    template <bool BEYOND, typename Body>
    __device__ __forceinline__ static void visit(const arguments &of, int64_t row, Body body) {
        body(packed_columns(of, row + of.first));
    }

    __device__ packed_columns(const arguments &of, int64_t row)
        : N(row < of.rows ? of.N : 0), x_step(of.x_step), y_step(of.y_step), in_packs(of.in_packs) {
        const int64_t slice = of.rows == of.across ? 0 : row / of.across;
        int64_t column = row - slice * of.across;
        if (!in_packs) column -= (int)(threadIdx.x % SIDE_BY_SIDE) * (C - 1);
        x = of.x + slice * of.x_slice + column;
        y = of.y + slice * of.y_slice + column;
        there = elements_left(of.width, column);
    }

    /* ALONG lanes take K packs each, one below the other; `at` is this lane's first. */
    template <int K, int ALONG>
    __device__ __forceinline__ column_tile<X, C, K, ALONG> load(int64_t at) const {
        const X *from = x + at * x_step;
        const int left = elements_left(N, at);
        column_tile<X, C, K, ALONG> tile;
        if (in_packs && left >= K) {
#pragma unroll
            for (int k = 0; k < K; k++, step(from, x_step)) tile.raw[k] = *(const pack<X, C> *)from;
        } else {
#pragma unroll
            for (int k = 0; k < K; k++, step(from, x_step)) {
                tile.raw[k].cut(0);
                if (k < left) read_some(from, &tile.raw[k]);
            }
        }
        return tile;
    }

    template <int K, int ALONG, bool STREAM>
    __device__ __forceinline__ void store(int64_t at, const Real (&from)[K * C],
                                          keep_bits<K * C>) const {
        Y *to = y + at * y_step;
        const int left = elements_left(N, at);
        if (in_packs && left >= K) {
#pragma unroll
            for (int k = 0; k < K; k++, step(to, y_step))
                write_pack<STREAM>((pack<Y, C> *)to, rounded_pack<Y, C>(from + k * C));
        } else {
#pragma unroll
            for (int k = 0; k < K; k++, step(to, y_step))
                if (k < left) write_some(to, from + k * C);
        }
    }

    int64_t N;

   private:
    /* One after the other: addresses that are all made first take the registers of the elements. */
    template <typename T>
    __device__ static void step(T *&at, int64_t by) {
        at += by;
        asm("" : "+l"(at));
    }

    __device__ void read_some(const X *from, pack<X, C> *to) const {
        if (in_packs) {
            *to = *(const pack<X, C> *)from;
        } else {
#pragma unroll
            for (int c = 0; c < C; c++)
                if (c * SIDE_BY_SIDE < there) to->put(c, from[c * SIDE_BY_SIDE]);
        }
    }

    __device__ void write_some(Y *to, const Real *from) const {
        if (in_packs) {
            write_pack<false>((pack<Y, C> *)to, rounded_pack<Y, C>(from));
        } else {
#pragma unroll
            for (int c = 0; c < C; c++)
                if (c * SIDE_BY_SIDE < there) to[c * SIDE_BY_SIDE] = from_real<Y>(from[c]);
        }
    }

    /* So many lanes take neighbouring columns, or, without packs, each every so-manieth of theirs.
     */
    static constexpr int SIDE_BY_SIDE = COLUMNS_SIDE_BY_SIDE / C;

    const X *x;
    Y *y;
    int64_t x_step, y_step;
    int there; /* columns of the slice, from this thread's first one on */
    bool in_packs;
};

#endif
