/* strided.cuh - strided_rows: rows of an axis that is not the last, without mask or scale, at any
 * address. A lane has a row, and neighbouring lanes access neighbouring elements. Results have the
 * elements' type. */
#ifndef ONS_STRIDED_CUH
#define ONS_STRIDED_CUH

#include "slices.cuh"
#include "tile.cuh"

/* Elements of x lie `x_step` elements apart, and elements of y lie `y_step` bytes apart. Elements
 * after the row's end arrive as 0 with ZEROS, else as -inf. */
template <typename X, bool ZEROS = false>
class strided_row {
   public:
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>;

    __device__ strided_row(const sliced_rows<X> &args, const sliced_input<X> &input, int64_t row)
        : N(row < args.rows ? (int)args.N : 0),
          x_step(input.step),
          y_step(args.y_step),
          format(args.format) {
        const place_in_slices at(args, row);
        x = input.x + at.slice * input.slice + at.column;
        y = args.y + at.slice * args.y_slice + at.column * (int64_t)sizeof(X);
    }

    template <int K, int STRIDE>
    __device__ __forceinline__ raw_tile<X, K> load(int chunk) const {
        static_assert(STRIDE == 1);
        raw_tile<X, K> tile(format);
#pragma unroll
        for (int k = 0; k < K; k++) {
            tile.raw[k] = {};
            if constexpr (!ZEROS) tile.raw[k].cut(0, format);
        }
        walk<K * V>(x + (int64_t)chunk * V * x_step, x_step, N - chunk * V,
                    [&](int e, const X *from) { tile.raw[e / V].put(e % V, *from); });
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int chunk, const Real (&from)[K * V], allowed_bits<K * V>,
                                          Real) const {
        pack<X, V> raw[K];
        round_to_packs(from, raw, format);
        walk<K * V>(y + (int64_t)chunk * V * y_step, y_step, N - chunk * V,
                    [&](int e, char *to) { *(X *)to = raw[e / V].element(e % V); });
    }

    int N; /* int is enough: a row fits in registers */

   private:
    /* Calls visit(e, place of element e) for each e below n and `left`. Computes places one after
     * the other. All at once they would take the registers of the elements. */
    template <int n, typename Place, typename Visit>
    __device__ __forceinline__ static void walk(Place *at, int64_t step, int left, Visit visit) {
        auto next = [&] {
            at += step;
            asm("" : "+l"(at));
            __builtin_assume(__isGlobal(at)); /* asm has hidden it */
        };
        if (left >= n) {
#pragma unroll
            for (int e = 0; e < n; e++, next()) visit(e, at);
        } else {
#pragma unroll
            for (int e = 0; e < n; e++, next())
                if (e < left) visit(e, at);
        }
    }

    const X *x;
    char *y;
    int64_t x_step, y_step;
    const element_format<X> &format;
};

template <typename X>
struct strided_rows {
    using element = X;
    using Real = typename compute_of<X>::type;
    using arguments = sliced_rows<X>;
    static constexpr int V = CHUNK<Real>, ROWS_TOGETHER = 1;
    static constexpr bool IS_16_BIT = sizeof(X) == 2;
    static constexpr int BLOCK_THREADS = WIDE_STRIP_THREADS, BLOCKS = 2;

    template <bool CHECK_ROW>
    __device__ __forceinline__ static auto row(const arguments &args, int64_t index) {
        return strided_row<X>(args, args.input, index + args.launch.first_row);
    }
};

#endif
