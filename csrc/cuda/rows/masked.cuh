/* masked.cuh - masked_rows: rows without gaps that have a mask, a scale or several outer
 * dimensions. The mask has no gaps either, or it is one byte for a whole row. Rows with other masks
 * are general_rows. */
#ifndef ONS_MASKED_CUH
#define ONS_MASKED_CUH

#include "address.cuh"
#include "contiguous.cuh"

/* K chunks of a scaled row in the arithmetic's type, and their largest element. */
template <typename X, int K>
struct masked_tile : tile_of_numbers<X, K> {
    using tile_of_numbers<X, K>::x;

    X extremes[1];

    __device__ explicit masked_tile(const raw_tile<X, K> &tile) {
        tile.take(x);
        extremes[0] = tile.largest();
    }

    __device__ X largest() const { return extremes[0]; }
};
template <int K>
struct masked_tile<any_16_bit, K> : converted_tile<K> {
    using converted_tile<K>::converted_tile;
};

/* The same chunks as they lie in memory, with the bytes of their mask. */
template <typename X, int K>
struct unmasked_tile {
    raw_tile<X, K> packed;
    unsigned bytes[K];
};

/* The mask of a row without gaps, or null. */
class mask_row {
   public:
    __device__ mask_row(const row_address &at, int step_) : where(at.where), step(step_) {}

    __device__ bool is_given() const { return where; }
    __device__ bool excludes(int64_t element) const { return !where[step ? element : 0]; }

    /* Reads the mask of a thread's K chunks, V bytes each; a byte of 0 excludes an element. The row
     * has `left` elements from the first chunk on. The bytes after these may have any value. */
    template <int K, int STRIDE, int V>
    __device__ __forceinline__ void read(int64_t chunk, int left, unsigned (&bytes)[K]) const {
        using word = std::conditional_t<V == 4, unsigned, unsigned short>;
        const char *const from = where + (step ? chunk * V : 0);
        if (!step) {
            const unsigned all = *from ? ~0u : 0;
#pragma unroll
            for (int k = 0; k < K; k++) bytes[k] = all;
            return;
        }
        /* A chunk's bytes lie in one word or in two. These words end `whole` bytes after the first
         * byte. */
        const int shift = (int)((uintptr_t)from % V), whole = shift ? 2 * V - shift : V;
        const word *const words = (const word *)(from - shift);
        if (!shift) {
#pragma unroll
            for (int k = 0; k < K; k++)
                bytes[k] = k * (STRIDE * V) + V <= left ? words[k * STRIDE] : 0;
        } else {
            word high[K];
#pragma unroll
            for (int k = 0; k < K; k++) {
                const bool ends = k * (STRIDE * V) + whole <= left;
                bytes[k] = ends ? words[k * STRIDE] : 0;
                high[k] = ends ? words[k * STRIDE + 1] : 0;
            }
#pragma unroll
            for (int k = 0; k < K; k++)
                bytes[k] = V == 4 ? __funnelshift_r(bytes[k], high[k], 8 * shift)
                                  : (bytes[k] | (unsigned)high[k] << 16) >> 8 * shift;
        }
        if (has_all<K, STRIDE, V>(left - (whole - V))) return;
        /* chunks whose words do not end in the row */
        int at = left < whole ? 0 : ((left - whole) / (STRIDE * V) + 1) * (STRIDE * V);
#pragma unroll 1
        for (; at < left && at < K * (STRIDE * V); at += STRIDE * V) {
            unsigned some = 0;
#pragma unroll
            for (int i = 0; i < V; i++)
                if (at + i < left) some |= (unsigned)(unsigned char)from[at + i] << 8 * i;
#pragma unroll
            for (int k = 0; k < K; k++)
                if (k * (STRIDE * V) == at) bytes[k] = some;
        }
    }

   private:
    const char *where;
    int step;
};

/* A row with an optional mask and scale. Row is the row without them. */
template <typename X, typename Row>
class masked_row : public Row {
   public:
    using Real = typename Row::Real;
    static constexpr int V = Row::V;

    __device__ masked_row(const Row &row, const row_address &at, int where_step)
        : Row(row), mask(at, where_step), scale(at.scale) {}

    /* load() in two steps, so that a kernel can read a tile before it needs it. */
    template <int K, int STRIDE>
    __device__ __forceinline__ unmasked_tile<X, K> read(int64_t chunk) const {
        unmasked_tile<X, K> tile = {Row::template load<K, STRIDE>(chunk), {}};
        if (mask.is_given())
            mask.template read<K, STRIDE, V>(chunk, elements_left(Row::N, chunk * V), tile.bytes);
        return tile;
    }
    template <int K, int STRIDE>
    __device__ __forceinline__ masked_tile<X, K> finish(unmasked_tile<X, K> unmasked,
                                                        int64_t chunk) const {
        auto &packed = unmasked.packed;
        const int left = elements_left(Row::N, chunk * V);
        if (mask.is_given()) {
#pragma unroll
            for (int k = 0; k < K; k++) packed.raw[k].exclude(unmasked.bytes[k], packed.format);
        }
        masked_tile<X, K> tile(packed);
        if (scale == 1) return tile;
        /* the extremes are valid if the scale keeps the order */
        if constexpr (sizeof(X) == 2) {
            scale_all_of_16_bits(tile.x, tile.extremes, scale);
        } else {
            scale_all(tile.x, scale);
            scale_all(tile.extremes, scale);
        }
        if (!(scale > 0 && isfinite(scale))) {
            tile.extremes[0] = tile.extremes[tile.HAS_SMALLEST] = -arithmetic<Real>::infinity();
#pragma unroll
            for (int e = 0; e < K * V; e++) {
                const int at = place<STRIDE, V>(e);
                if (at >= left || (mask.is_given() && mask.excludes(chunk * V + at)))
                    tile.x[e] = -arithmetic<Real>::infinity();
                tile.extremes[0] = larger(tile.extremes[0], tile.x[e]);
            }
        }
        return tile;
    }
    template <int K, int STRIDE>
    __device__ __forceinline__ masked_tile<X, K> load(int64_t chunk) const {
        return finish<K, STRIDE>(read<K, STRIDE>(chunk), chunk);
    }

    /* The result of an excluded element is right already, except in a NaN row. */
    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          allowed_bits<K * V> allowed, Real excluded) const {
        Row::template store<K, STRIDE, STREAM>(chunk, from, allowed, excluded);
        if (!mask.is_given() || !__any_sync(~0u, isnan(from[0]))) return;
        __syncwarp(); /* another lane may have written there */
        const int left = elements_left(Row::N, chunk * V);
#pragma unroll 1
        for (int e = 0; e < K * V; e++) {
            const int64_t at = chunk * V + place<STRIDE, V>(e);
            if (place<STRIDE, V>(e) < left && mask.excludes(at)) Row::put(excluded, at);
        }
    }

   private:
    mask_row mask;
    double scale;
};

template <typename T, alignment ALIGNED = sizeof(T) == 2 ? alignment::NOT_ALL : alignment::EITHER>
struct masked_rows {
    using Real = typename compute_of<T>::type;
    using arguments = problem_arguments;
    static constexpr bool IS_16_BIT = sizeof(T) == 2, EMPTY_WARPS_LEAVE = false;
    static constexpr int V = CHUNK<Real>, BLOCK_THREADS = ANY_BLOCK_THREADS,
                         BLOCKS = IS_16_BIT ? 2 : 1;
    static constexpr int CLUSTER_WARPS = IS_16_BIT ? CLUSTER_WARPS_16_BIT : ::CLUSTER_WARPS;

    template <int K>
    using tile = masked_tile<T, K>;

    template <bool CHECK_ROW>
    __device__ __forceinline__ static auto row(const arguments &args, int64_t index) {
        const int64_t N = CHECK_ROW && index + args.launch.first_row >= args.rows ? 0 : args.N;
        const int where_step = (int)args.problem.operand[ONS_WHERE].stride[args.problem.dims - 1];
        const row_address at(args, index);
        const T *x = (const T *)at.x;
        const element_format<T> format(args.problem.operand[ONS_X].dtype);
        const row_without_gaps<ALIGNED, T, T> own(x, (T *)at.y, N, format);
        auto with = [&](const auto &plain) {
            return masked_row<T, std::decay_t<decltype(plain)>>(plain, at, where_step);
        };
        if constexpr (IS_16_BIT)
            return with(
                widened_row(own, row_without_gaps<ALIGNED, T, float>(x, (float *)at.y, N, format),
                            args.problem.operand[ONS_Y].dtype == ONS_FLOAT32));
        else
            return with(own);
    }

    /* As contiguous_rows::ahead, for x and the mask. A mask that rows share is in the caches. */
    template <int K>
    __device__ __forceinline__ static void ahead(const arguments &args, int64_t row, int warp) {
        constexpr int PART = K * WARP * V;
        row += args.ahead;
        if (row + args.launch.first_row >= args.rows) return;
        const row_address at(args, row);
        const T *x = (const T *)at.x;
        fetch_bytes<PART * sizeof(T)>((const char *)(x + warp * PART), (const char *)(x + args.N));
        const ons_operand &where = args.problem.operand[ONS_WHERE];
        const int axis = args.problem.dims - 1;
        if (at.where && where.stride[axis] && axis > 0 && where.stride[axis - 1])
            fetch_bytes<PART>(at.where + warp * PART, at.where + args.N);
    }
};

#endif
