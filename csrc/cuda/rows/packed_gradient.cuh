/* packed_gradient.cuh - packed_gradients: columns in whole packs (packed.cuh) of both inputs of an
 * operation that takes a gradient. A thread has a sum for each of its columns. */
#ifndef ONS_PACKED_GRADIENT_CUH
#define ONS_PACKED_GRADIENT_CUH

#include "gradient.cuh"
#include "packed.cuh"

/* The constants of the column of element e. */
template <typename OfColumn, int C>
__device__ inline const OfColumn &row_of(const each_column<OfColumn, C> &columns, int e) {
    return columns.each[e % C];
}

/* A thread's packs of both inputs. They are 0 after the column's end. */
template <typename Tile>
struct gradient_column_tile {
    using Real = typename Tile::Real;
    static constexpr int C = Tile::C, K = Tile::K;
    static constexpr bool IS_16_BIT = Tile::IS_16_BIT;
    Tile y, dy;
    Real scale;

    __device__ static auto allowed() { return Tile::allowed(); }
    __device__ Real y_at(int e) const { return y.raw[e / C].real(e % C); }
    __device__ Real dy_at(int e) const { return dy.raw[e / C].real(e % C); }

    template <typename Op, typename>
    __device__ __forceinline__ each_column<sum_in_double<Real>, C> sum() const {
        return for_each_column<C>([&](int c) {
            return sum_as_tree_of<Op::ADDS_PRODUCTS, K, Real>(
                0, [&](int k) { return dy_at(k * C + c); }, [&](int k) { return y_at(k * C + c); });
        });
    }

    template <typename Op>
    __device__ auto results(const each_column<sum_in_double<Real>, C> &sums) const {
        const auto columns = for_each_column<C>(
            [&](int c) { return gradient_of_row<Op, Real>(sums.each[c].rounded(), scale); });
        return gradient_results<Op, gradient_column_tile, std::decay_t<decltype(columns)>>(*this,
                                                                                           columns);
    }
};

template <typename T>
class packed_gradients {
    using one = packed_columns<T, true>;

   public:
    using Real = typename one::Real;
    static constexpr int C = one::C, V = C;
    static constexpr bool IS_16_BIT = one::IS_16_BIT;
    static constexpr int APART = one::APART;
    static constexpr int BLOCK_THREADS = GRADIENT_THREADS, BLOCKS = IS_16_BIT ? 3 : 2,
                         CLUSTER_BLOCKS = BLOCKS;

    using arguments = sliced_gradients<T>;

    template <bool CHECK_ROW>
    __device__ __forceinline__ static packed_gradients row(const arguments &args, int64_t index) {
        return packed_gradients(args, index + args.launch.first_row);
    }
    __device__ packed_gradients(const arguments &args, int64_t row)
        : y(args, row, args.input), dy(args, row, args.dy), scale((Real)args.scale) {}

    template <int K, int ALONG>
    __device__ __forceinline__ auto load(int at) const {
        using Tile = column_tile<T, C, K, ALONG>;
        gradient_column_tile<Tile> tile = {y.template load<K, ALONG>(at),
                                           dy.template load<K, ALONG>(at), scale};
        if (y.N - at < K) {
#pragma unroll
            for (int k = 0; k < K; k++)
                if (k >= y.N - at) tile.y.raw[k] = tile.dy.raw[k] = {};
        }
        return tile;
    }

    /* result(e): the result of element e. */
    template <int K, int ALONG, bool STREAM, typename Result>
    __device__ __forceinline__ void store(int at, const Result &result, allowed_bits<K * C> allowed,
                                          Real excluded) const {
        Real dx[K * C];
        put_all(result, dx);
        y.template store<K, ALONG, STREAM>(at, dx, allowed, excluded);
    }

   private:
    one y, dy;
    Real scale;
};

#endif
