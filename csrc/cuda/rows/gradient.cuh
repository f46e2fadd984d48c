/* gradient.cuh - rows of an operation that takes a gradient. They have two inputs, y and its
 * gradient dy, and a result dx, which may be either array. Each input is read by a row class of its
 * own. */
#ifndef ONS_GRADIENT_CUH
#define ONS_GRADIENT_CUH

#include "../statistic/sum_in_double.cuh"
#include "../statistic/sums.cuh"
#include "contiguous.cuh"
#include "general.cuh"
#include "strided.cuh"

/* Sets the elements after the row's end. `left`: elements from the tile's first chunk on. */
template <int STRIDE, typename X, int K>
__device__ __forceinline__ void fill(raw_tile<X, K> &tile, int left, X with) {
    constexpr int V = raw_tile<X, K>::V;
    if (has_all<K, STRIDE, V>(left)) return;
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < V; i++)
            if (i >= left - place<STRIDE, V>(k * V)) tile.raw[k].put(i, with);
}
template <int STRIDE, typename X, int K>
__device__ __forceinline__ void clear(raw_tile<X, K> &tile, int left) {
    fill<STRIDE>(tile, left, from_real<X>(0.0f));
}

/* Sets the elements that are not allowed to 0. */
template <int STRIDE, typename Real, int K>
__device__ __forceinline__ void clear(real_tile<Real, K> &tile, int) {
#pragma unroll
    for (int e = 0; e < K * real_tile<Real, K>::V; e++)
        if (!(tile.is_allowed >> e & 1)) tile.x[e] = 0;
}

/* A scale in two factors: the largest power of two in it, at least 1, and the rest. The power is
 * applied before the products, so no product is rounded to a subnormal number that is then made
 * large. */
template <typename Real>
struct scale_in_two {
    Real power = 1, rest = 1;

    scale_in_two() = default;
    __device__ explicit scale_in_two(Real scale) : rest(scale) {
        const Real size = fabs(scale);
        if (!(size >= 2 && size < arithmetic<Real>::infinity())) return;
        if constexpr (sizeof(Real) == sizeof(float))
            power = __int_as_float(__float_as_int(size) & 0x7f800000);
        else
            power = __longlong_as_double(__double_as_longlong(size) & 0x7ff0000000000000);
        rest = scale / power;
    }
};

/* Whether y(0), y(1), ... are all large enough for Op::plain. NaN counts as large enough. */
template <typename Op, int n, typename Real, typename Y>
__device__ __forceinline__ bool all_plain(Y y) {
    if constexpr (Op::ALWAYS_PLAIN) {
        return true;
    } else {
        Real least = y(0);
#pragma unroll
        for (int e = 1; e < n; e++) least = fmin(least, y(e));
        return !(least < -Op::template LOWER<Real>);
    }
}

/* The results of a row's elements, from the row's sum. */
template <typename Op, typename Real>
class gradient_of_row {
   public:
    gradient_of_row() = default;
    __device__ gradient_of_row(double sum, Real scale_) : scale(scale_) {
        Op::row(sum, scale.power, &first, &second);
    }
    __device__ Real element(Real dy, Real y) const {
        return scale.rest * Op::element(dy, y, first, second, scale.power);
    }
    /* The same if the scale is 1 and y is large enough (all_plain). */
    __device__ Real plain_element(Real dy, Real y) const { return Op::plain(dy, y, first); }
    __device__ bool is_scaled() const { return scale.power * scale.rest != 1; }

   private:
    scale_in_two<Real> scale;
    Real first, second;
};

/* The constants of the row of element e. */
template <typename Op, typename Real>
__device__ inline const gradient_of_row<Op, Real> &row_of(const gradient_of_row<Op, Real> &row,
                                                          int) {
    return row;
}

/* The results of a thread's elements. They are used one by one, or all at once. 16-bit elements
 * have code for plain results, since arithmetic limits their speed. */
template <typename Op, typename Tile, typename Of>
class gradient_results {
    using Real = typename Tile::Real;

   public:
    __device__ gradient_results(const Tile &tile_, const Of &of_) : tile(tile_), of(of_) {}

    __device__ Real operator()(int e) const {
        return row_of(of, e).element(tile.dy_at(e), tile.y_at(e));
    }

    template <int n>
    __device__ __forceinline__ void put_all(Real (&dx)[n]) const {
        if constexpr (Tile::IS_16_BIT && Op::HAS_PLAIN)
            if (!row_of(of, 0).is_scaled() &&
                all_plain<Op, n, Real>([&](int e) { return tile.y_at(e); })) {
#pragma unroll
                for (int e = 0; e < n; e++)
                    dx[e] = row_of(of, e).plain_element(tile.dy_at(e), tile.y_at(e));
                return;
            }
#pragma unroll
        for (int e = 0; e < n; e++) dx[e] = (*this)(e);
    }

   private:
    const Tile &tile;
    Of of;
};

/* Fills dx with result(0), result(1), ... */
template <typename Result, typename Real, int n>
__device__ __forceinline__ void put_all(const Result &result, Real (&dx)[n]) {
#pragma unroll
    for (int e = 0; e < n; e++) dx[e] = result(e);
}
template <typename Op, typename Tile, typename Of, typename Real, int n>
__device__ __forceinline__ void put_all(const gradient_results<Op, Tile, Of> &results,
                                        Real (&dx)[n]) {
    results.put_all(dx);
}

/* A thread's chunks of both inputs. They are 0 after the row's end and at excluded elements. */
template <typename Tile>
struct gradient_tile {
    using Real = typename Tile::Real;
    static constexpr int K = Tile::K, V = Tile::V;
    static constexpr bool IS_16_BIT = Tile::HAS_SMALLEST;
    Tile y, dy;
    Real scale;

    /* `left`: elements of the row from the tile's first chunk on. */
    template <int STRIDE>
    __device__ __forceinline__ static gradient_tile of(Tile y, Tile dy, int left, Real scale) {
        clear<STRIDE>(y, left);
        clear<STRIDE>(dy, left);
        return {y, dy, scale};
    }

    __device__ auto allowed() const { return y.allowed(); }
    __device__ Real y_at(int e) const { return y.element(e); }
    __device__ Real dy_at(int e) const { return dy.element(e); }

    /* The part of the row's sum that these elements give. Element i of each chunk has a chain of
     * its own, so that an addition seldom waits for another. A lane may do the work of LANES lanes.
     * It keeps a sum for each of them. It adds these sums in the order in which the lanes would. */
    template <typename Op, typename How = in_any_order, int LANES = 1>
    __device__ __forceinline__ sum_in_double<Real> sum() const {
        if constexpr (std::is_same_v<How, in_a_tree_of_column>)
            return sum_as_tree_of<Op::ADDS_PRODUCTS, K * V, Real>(
                0, [&](int e) { return dy_at(e); }, [&](int e) { return y_at(e); });
        sum_in_double<Real> chain[LANES][V];
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int i = 0; i < V; i++)
                chain[k % LANES][i].template add<Op::ADDS_PRODUCTS>(dy.element(k * V + i),
                                                                    y.element(k * V + i));
#pragma unroll
        for (int lane = 0; lane < LANES; lane++)
#pragma unroll
            for (int i = 1; i < V; i++) chain[lane][0].add(chain[lane][i]);
#pragma unroll
        for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
#pragma unroll
            for (int lane = 0; lane < lanes; lane++) chain[lane][0].add(chain[lane + lanes][0]);
        return chain[0][0];
    }

    template <typename Op>
    __device__ auto results(const sum_in_double<Real> &sum) const {
        using of_row = gradient_of_row<Op, Real>;
        return gradient_results<Op, gradient_tile, of_row>(*this, of_row(sum.rounded(), scale));
    }
};

/* A thread's chunks of two rows of logits, for a divergence. They are -inf after the row's end and
 * at excluded elements. */
template <typename Tile, int STRIDE>
struct two_tiles {
    using Real = typename Tile::Real;
    static constexpr int K = Tile::K, V = Tile::V;
    Tile weights, rest;
    int left; /* elements of the row from the first chunk on */

    __device__ auto allowed() const { return weights.allowed(); }

    /* Makes the elements after the row's end finite. Their softmax is 0, for these maxima. */
    __device__ void fill_after_end(Real m, Real m_of_rest) {
        fill_far_below(weights, m);
        fill_far_below(rest, m_of_rest);
    }

   private:
    template <typename X>
    __device__ void fill_far_below(raw_tile<X, K> &tile, Real m) const {
        fill<STRIDE>(tile, left, from_real<X>(m - fmax(fabs(m) / 32, (Real)256)));
    }
};
template <typename Tile>
struct tiles_of_logits {
    template <int STRIDE>
    __device__ __forceinline__ static two_tiles<Tile, STRIDE> of(const Tile &weights,
                                                                 const Tile &rest, int left,
                                                                 typename Tile::Real) {
        return {weights, rest, left};
    }
};

/* OfY and OfGradient are the rows that load y and dy. OfY also stores dx. */
template <typename OfY, typename OfGradient, template <typename> class Tile = gradient_tile>
class gradient_row {
   public:
    using Real = typename OfY::Real;
    static constexpr int V = OfY::V;

    __device__ gradient_row(const OfY &y_, const OfGradient &dy_, double scale_)
        : N(y_.N), scale((Real)scale_), y(y_), dy(dy_) {}

    template <int K, int STRIDE>
    __device__ __forceinline__ auto load(int64_t chunk) const {
        const auto of_y = y.template load<K, STRIDE>(chunk);
        const auto of_dy = dy.template load<K, STRIDE>(chunk);
        return Tile<std::decay_t<decltype(of_y)>>::template of<STRIDE>(
            of_y, of_dy, elements_left(N, chunk * V), scale);
    }

    /* result(e): the result of element e. */
    template <int K, int STRIDE, bool STREAM, typename Result>
    __device__ __forceinline__ void store(int64_t chunk, const Result &result,
                                          allowed_bits<K * V> allowed, Real excluded) const {
        Real dx[K * V];
        put_all(result, dx);
        y.template store<K, STRIDE, STREAM>(chunk, dx, allowed, excluded);
    }

    /* Calls body with this row, after both inputs are known to be aligned or not. */
    template <typename Body>
    __device__ __forceinline__ void known(Body body) const {
        ::known(y, [&](const auto &of_y) {
            ::known(dy, [&](const auto &of_dy) {
                body(
                    gradient_row<std::decay_t<decltype(of_y)>, std::decay_t<decltype(of_dy)>, Tile>(
                        of_y, of_dy, scale));
            });
        });
    }

    int64_t N;

   private:
    Real scale;
    OfY y;
    OfGradient dy;
};
template <typename OfY, typename OfGradient, template <typename> class Tile, typename Body>
__device__ __forceinline__ void known(const gradient_row<OfY, OfGradient, Tile> &row, Body body) {
    row.known(body);
}

/* Rows without gaps, all of one type. */
template <typename T, alignment ALIGNED, template <typename> class Tile = gradient_tile>
struct contiguous_gradients {
    using Real = typename compute_of<T>::type;
    static constexpr int V = CHUNK<Real>;
    static constexpr bool IS_16_BIT = sizeof(T) == 2, ALL_ALIGNED = ALIGNED == alignment::ALL,
                          HAS_CLUSTER_CHUNKS = sizeof(T) <= sizeof(float),
                          EMPTY_WARPS_LEAVE = false;
    /* blocks that must fit a multiprocessor; 0 leaves that to the compiler */
    static constexpr int BLOCK_THREADS = GRADIENT_THREADS,
                         BLOCKS = IS_16_BIT && !ALL_ALIGNED ? 3 : 0;

    struct arguments {
        const T *y, *dy;
        T *dx;
        int64_t y_pitch, dy_pitch, dx_pitch; /* in elements */
        int64_t rows, N;
        ons_launch launch;
        int64_t ahead; /* rows to prefetch ahead (prefetch.cuh) */
        double scale;
        ons_operation which;

        __device__ ons_operation operation() const { return which; }
    };

    template <bool CHECK_ROW>
    __device__ __forceinline__ static auto row(const arguments &args, int64_t index) {
        using of_one = row_without_gaps<ALIGNED, T, T>;
        index += args.launch.first_row;
        const int64_t N = CHECK_ROW && index >= args.rows ? 0 : args.N;
        const T *y = args.y + index * args.y_pitch, *dy = args.dy + index * args.dy_pitch;
        T *dx = args.dx + index * args.dx_pitch;
        return gradient_row<of_one, of_one, Tile>(of_one(y, dx, N), of_one(dy, dx, N), args.scale);
    }

    /* As contiguous_rows::ahead, for both inputs. */
    template <int K>
    __device__ __forceinline__ static void ahead(const arguments &args, int64_t row, int warp) {
        constexpr int PART = K * WARP * V, BYTES = PART * (int)sizeof(T);
        row += args.launch.first_row + args.ahead;
        if (row >= args.rows) return;
        const T *y = args.y + row * args.y_pitch, *dy = args.dy + row * args.dy_pitch;
        fetch_bytes<BYTES>((const char *)(y + warp * PART), (const char *)(y + args.N));
        fetch_bytes<BYTES>((const char *)(dy + warp * PART), (const char *)(dy + args.N));
    }
};

/* Makes a gradient_tile of two tiles that are 0 after the row's end already. */
template <typename Tile>
struct zero_padded_tiles {
    template <int>
    __device__ __forceinline__ static gradient_tile<Tile> of(const Tile &y, const Tile &dy, int,
                                                             typename Tile::Real scale) {
        return {y, dy, scale};
    }
};

/* Rows side by side at any address, all of one type. A lane has a row. */
template <typename T>
struct strided_gradients {
    using Real = typename compute_of<T>::type;
    static constexpr int V = CHUNK<Real>;
    static constexpr bool IS_16_BIT = sizeof(T) == 2, IN_WIDE_STRIPS = !IS_16_BIT;
    static constexpr int BLOCK_THREADS = GRADIENT_THREADS, BLOCKS = 2, CLUSTER_BLOCKS = 2;

    using arguments = sliced_gradients<T>;

    template <bool CHECK_ROW>
    __device__ __forceinline__ static auto row(const arguments &args, int64_t index) {
        index += args.launch.first_row;
        using of_one = strided_row<T, true>;
        return gradient_row<of_one, of_one, zero_padded_tiles>(
            of_one(args, args.input, index), of_one(args, args.dy, index), args.scale);
    }
};

/* All other rows. */
template <typename Compute>
struct general_gradients {
    using of_y = general_rows<Compute, ONS_X, false>;
    using of_gradient = general_rows<Compute, ONS_GRADIENT, false>;
    using Real = Compute;
    using arguments = problem_arguments;
    static constexpr int V = of_y::V;
    static constexpr bool IS_16_BIT = false, ALL_ALIGNED = false, HAS_CLUSTER_CHUNKS = false,
                          EMPTY_WARPS_LEAVE = false, IN_WIDE_STRIPS = false;
    static constexpr int BLOCK_THREADS = GRADIENT_THREADS,
                         BLOCKS = sizeof(Compute) == sizeof(float) ? 2 : 0, CLUSTER_BLOCKS = 2;

    /* Does not prefetch later rows: their addresses are costly to compute. */
    template <int K>
    __device__ static void ahead(const arguments &, int64_t, int) {}

    template <bool CHECK_ROW>
    __device__ __forceinline__ static auto row(const arguments &args, int64_t index) {
        const of_y y(args, index);
        return gradient_row<of_y, of_gradient>(y, of_gradient(args, index), y.scale());
    }
};

#endif
