/* packed.cuh - packed_columns: rows of an axis that is not the last, without mask or scale. Their
 * elements lie beside the elements of the next rows, in x and in y. A thread takes C rows
 * (columns_of_thread.cuh). Each pack has one element of each of these rows. If all packs are WHOLE,
 * and begin at multiples of their size, one access reads or writes a pack. Otherwise the rows of a
 * thread lie APART rows from each other, and neighbouring lanes access neighbouring elements.
 * Results have the elements' type, or are float32. If the result is one value a row, y has one
 * value for each column, at any stride. It may be a pair. */
#ifndef ONS_PACKED_CUH
#define ONS_PACKED_CUH

#include "columns_of_thread.cuh"
#include "slices.cuh"

/* Reads a pack. For a pack of 8 bytes it also prefetches the surrounding 128 bytes to L2, since
 * warps of other blocks read them at about the same time. */
template <typename P>
__device__ inline P read_and_prefetch(const P *from) {
    if constexpr (sizeof(P) == sizeof(uint2)) {
        P value;
        asm volatile("ld.global.L2::128B.v2.u32 {%0, %1}, [%2];"
                     : "=r"(value.word[0]), "=r"(value.word[1])
                     : "l"(from)
                     : "memory");
        return value;
    } else {
        return *from;
    }
}

template <typename X, bool WHOLE>
class packed_columns {
   public:
    using element = X;
    using Real = typename compute_of<X>::type;
    using arguments = sliced_rows<X>;
    static constexpr int C = CHUNK<Real>, V = C; /* a chunk is a pack: one element of each row */
    static constexpr bool IS_16_BIT = sizeof(X) == 2;
    static constexpr int BLOCK_THREADS = ANY_BLOCK_THREADS, BLOCKS = 2;
    static constexpr int CLUSTER_WARPS = COLUMN_CLUSTER_WARPS;

    static constexpr int APART = WHOLE ? 1 : 16, ROWS_TOGETHER = C * APART; /* rows */

    template <bool CHECK_ROW>
    __device__ __forceinline__ static packed_columns row(const arguments &args, int64_t index) {
        return packed_columns(args, index + args.launch.first_row, args.input);
    }

    __device__ packed_columns(const arguments &args, int64_t row, const sliced_input<X> &input)
        : N(row < args.rows ? (int)args.N : 0),
          x_step(input.step),
          y_step(args.y_step),
          format(args.format),
          widens(args.widens) {
        const place_in_slices at(args, row);
        int64_t column = at.column;
        if constexpr (!WHOLE) {
            const int lane = (int)(column % ROWS_TOGETHER) / C;
            column += lane - lane * C;
            const int64_t left = args.width - column;
            columns = left <= 0 ? 0 : (int)min((left + APART - 1) / APART, (int64_t)C);
        }
        x = input.x + at.slice * input.slice + column;
        y = args.y + at.slice * args.y_slice +
            column * (int64_t)(CAN_WIDEN && widens ? sizeof(float) : sizeof(X));
    }

    /* ALONG lanes take K packs each, one below the other. `at` is this lane's first. */
    template <int K, int ALONG>
    __device__ __forceinline__ column_tile<X, C, K, ALONG> load(int at) const {
        column_tile<X, C, K, ALONG> tile(format);
        load_packs<ALONG>(at, tile.raw, [this](const X *from) {
            if constexpr (WHOLE) {
                return read_and_prefetch((const pack<X, C> *)from);
            } else {
                pack<X, C> some = {};
#pragma unroll
                for (int c = 0; c < C; c++)
                    if (c < columns) some.put(c, from[c * APART]);
                return some;
            }
        });
        return tile;
    }

    template <int K, int ALONG, bool STREAM>
    __device__ __forceinline__ void store(int at, const Real (&from)[K * C], allowed_bits<K * C>,
                                          Real) const {
        if constexpr (CAN_WIDEN)
            if (widens) return store_as<float, K, ALONG, STREAM>(at, from);
        store_as<X, K, ALONG, STREAM>(at, from);
    }

    /* Writes the value of row `index` of this launch, if the row exists. */
    template <typename Op>
    __device__ __forceinline__ static void put_value(const arguments &args, int64_t index,
                                                     const state<Real> &total) {
        static_assert(WHOLE);
        const int64_t row = index + args.launch.first_row;
        if (row >= args.rows) return;
        const place_in_slices at(args, row);
        char *const to = args.y + at.slice * args.y_slice + at.column * args.y_step;
        Op::value(args.operation(), total, [&](auto value) {
            if constexpr (std::is_same_v<decltype(value), ons_pair>)
                *(ons_pair *)to = value;
            else if (CAN_WIDEN && args.widens)
                *(float *)to = value;
            else
                *(X *)to = args.format.rounded(value);
        });
    }

    int N; /* int is enough, by plan/gpu_shape.c */

   private:
    static constexpr bool CAN_WIDEN = std::is_same_v<X, any_16_bit>;

    /* Sets packs after the column's end to -inf. If packs lie apart, it first reads the last pack
     * again in their place. Without a branch for each pack, all reads begin at once. If few lanes
     * share a column, the warp votes: otherwise it would often read twice, once for the lanes with
     * full tiles. If more lanes share a column, most tiles are full. */
    template <int ALONG, int K, typename Read>
    __device__ __forceinline__ void load_packs(int at, pack<X, C> (&raw)[K], Read read) const {
        const X *from = x + (int64_t)at * x_step;
        const int left = N - at;
        if (ALONG < C ? __all_sync(~0u, left >= K) : left >= K) {
#pragma unroll
            for (int k = 0; k < K; k++, step(from, x_step)) raw[k] = read(from);
        } else if constexpr (WHOLE) {
#pragma unroll
            for (int k = 0; k < K; k++, step(from, x_step))
                if (k < left)
                    raw[k] = read(from);
                else
                    raw[k].cut(0, format);
        } else {
            if (left > 0) {
#pragma unroll
                for (int k = 0; k < K; k++, step(from, k < left ? x_step : 0)) /* k: the next */
                    raw[k] = read(from);
            }
#pragma unroll
            for (int k = 0; k < K; k++)
                if (k >= left) raw[k].cut(0, format);
        }
    }

    template <typename Y, int K, int ALONG, bool STREAM>
    __device__ __forceinline__ void store_as(int at, const Real (&from)[K * C]) const {
        pack<Y, C> raw[K];
        round_to_packs(from, raw, format_of_results<Y>(format));
        store_packs<ALONG>(at, raw, [this](char *to, const pack<Y, C> &values) {
            if constexpr (WHOLE) {
                write_pack<STREAM>((pack<Y, C> *)to, values);
            } else {
#pragma unroll
                for (int c = 0; c < C; c++)
                    if (c < columns) ((Y *)to)[c * APART] = values.element(c);
            }
        });
    }

    template <int ALONG, typename Y, int K, typename Write>
    __device__ __forceinline__ void store_packs(int at, const pack<Y, C> (&raw)[K],
                                                Write write) const {
        char *to = y + (int64_t)at * y_step;
        const int left = N - at;
        if (ALONG < C ? __all_sync(~0u, left >= K) : left >= K) {
#pragma unroll
            for (int k = 0; k < K; k++, step(to, y_step)) write(to, raw[k]);
        } else {
#pragma unroll
            for (int k = 0; k < K; k++, step(to, y_step))
                if (k < left) write(to, raw[k]);
        }
    }

    /* Computes addresses one after the other. All at once they would take the registers of the
     * elements. */
    template <typename T>
    __device__ static void step(T *&at, int64_t by) {
        at += by;
        asm("" : "+l"(at));
    }

    const X *x;
    char *y;
    int64_t x_step, y_step;
    const element_format<X> &format;
    bool widens;
    int columns; /* of this thread, if they lie apart */
};

/* For block_of_packs. `index` is the thread's first column. The lane writes the value of its own
 * column. */
template <typename Op, typename X, bool WHOLE, typename Real>
__device__ __forceinline__ void put_value(const sliced_rows<X> &args, int64_t index, bool writes,
                                          const packed_columns<X, WHOLE> &row,
                                          const state<Real> &total) {
    using Form = block_of_packs<packed_columns<X, WHOLE>::C>;
    if (writes) row.template put_value<Op>(args, index + Form::along(), total);
}

#endif
