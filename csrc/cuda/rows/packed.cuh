/* packed.cuh - packed_columns: rows of an axis that is not the last, without mask or scale. Their
 * elements lie beside the elements of the next rows, in x and in y. A thread takes C rows
 * (columns.cuh). Each pack has one element of each of these rows. If all packs are WHOLE, and begin
 * at multiples of their size, one access reads or writes a pack. Otherwise the rows of a thread lie
 * APART rows from each other, and neighbouring lanes access neighbouring elements. Results have the
 * elements' type, or are float32. */
#ifndef ONS_PACKED_CUH
#define ONS_PACKED_CUH

#include "columns.cuh"

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

/* An input. Strides are in elements: to the next slice, and along the axis. */
template <typename X>
struct packed_input {
    const X *x;
    int64_t slice, step;
};

template <typename X, bool WHOLE>
class packed_columns {
   public:
    using Real = typename compute_of<X>::type;
    static constexpr int C = CHUNK<Real>, V = C; /* a chunk is a pack: one element of each row */
    static constexpr bool IS_16_BIT = sizeof(X) == 2;
    static constexpr int BLOCK_THREADS = ANY_BLOCK_THREADS, BLOCKS = 2;
    static constexpr int CLUSTER_WARPS = COLUMN_CLUSTER_WARPS;

    static constexpr int APART = WHOLE ? 1 : 16; /* rows */

    /* Slices of `width` neighbouring rows. Row numbers count a slice as padded(width)
     * rows. Strides of y are in bytes. */
    struct arguments {
        packed_input<X> input;
        char *y;
        int64_t y_slice, y_step;
        int64_t width;
        uint32_t inverse; /* 2^32 / padded(); 0 if row numbers need more than 32 bits */
        int64_t rows, N;
        ons_launch launch;
        ons_operation which;
        element_format<X> format;
        bool widens; /* 16-bit elements have float32 results */

        __device__ ons_operation operation() const { return which; }
        __host__ __device__ static int64_t padded(int64_t width) {
            return (width + C * APART - 1) / (C * APART) * (C * APART);
        }
    };

    template <bool CHECK_ROW>
    __device__ __forceinline__ static packed_columns row(const arguments &args, int64_t index) {
        return packed_columns(args, index + args.launch.first_row, args.input);
    }

    __device__ packed_columns(const arguments &args, int64_t row, const packed_input<X> &input)
        : N(row < args.rows ? (int)args.N : 0),
          x_step(input.step),
          y_step(args.y_step),
          format(args.format),
          widens(args.widens) {
        const int64_t width = arguments::padded(args.width);
        int64_t slice = 0;
        if (args.rows != width)
            slice =
                args.inverse ? divided((uint32_t)row, (uint32_t)width, args.inverse) : row / width;
        int64_t column = row - slice * width;
        if constexpr (!WHOLE) {
            const int lane = (int)(column % (C * APART)) / C;
            column += lane - lane * C;
            const int64_t left = args.width - column;
            columns = left <= 0 ? 0 : (int)min((left + APART - 1) / APART, (int64_t)C);
        }
        x = input.x + slice * input.slice + column;
        y = args.y + slice * args.y_slice +
            column * (int64_t)(CAN_WIDEN && widens ? sizeof(float) : sizeof(X));
    }

    /* ALONG lanes take K packs each, one below the other. `at` is this lane's first. */
    template <int K, int ALONG>
    __device__ __forceinline__ column_tile<X, C, K, ALONG> load(int at) const {
        column_tile<X, C, K, ALONG> tile(format);
        load_packs(at, tile.raw, [this](const X *from) {
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
            if (widens) return store_as<float, K, STREAM>(at, from);
        store_as<X, K, STREAM>(at, from);
    }

    int N; /* int is enough: a row fits in registers */

   private:
    static constexpr bool CAN_WIDEN = std::is_same_v<X, any_16_bit>;

    template <int K, typename Read>
    __device__ __forceinline__ void load_packs(int at, pack<X, C> (&raw)[K], Read read) const {
        const X *from = x + (int64_t)at * x_step;
        const int left = N - at;
        if (left >= K) {
#pragma unroll
            for (int k = 0; k < K; k++, step(from, x_step)) raw[k] = read(from);
        } else {
#pragma unroll
            for (int k = 0; k < K; k++, step(from, x_step))
                if (k < left)
                    raw[k] = read(from);
                else
                    raw[k].cut(0, format);
        }
    }

    template <typename Y, int K, bool STREAM>
    __device__ __forceinline__ void store_as(int at, const Real (&from)[K * C]) const {
        pack<Y, C> raw[K];
        round_to_packs(from, raw, format_of_results<Y>(format));
        store_packs(at, raw, [this](char *to, const pack<Y, C> &values) {
            if constexpr (WHOLE) {
                write_pack<STREAM>((pack<Y, C> *)to, values);
            } else {
#pragma unroll
                for (int c = 0; c < C; c++)
                    if (c < columns) ((Y *)to)[c * APART] = values.element(c);
            }
        });
    }

    template <typename Y, int K, typename Write>
    __device__ __forceinline__ void store_packs(int at, const pack<Y, C> (&raw)[K],
                                                Write write) const {
        char *to = y + (int64_t)at * y_step;
        const int left = N - at;
        if (left >= K) {
#pragma unroll
            for (int k = 0; k < K; k++, step(to, y_step)) write(to, raw[k]);
        } else {
#pragma unroll
            for (int k = 0; k < K; k++, step(to, y_step))
                if (k < left) write(to, raw[k]);
        }
    }

    /* n / by. The high word of n * inverse is the quotient or one less. */
    __device__ static uint32_t divided(uint32_t n, uint32_t by, uint32_t inverse) {
        const uint32_t nearly = __umulhi(n, inverse);
        return nearly + (n - nearly * by >= by);
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

#endif
