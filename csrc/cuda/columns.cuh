/* columns.cuh - the column form with several rows a thread: COLUMNS neighbouring columns in packs.
 * What a thread of the row form has one of, m and d and what is made of them, it has here for each
 * column, as an each_column; the methods are written over both.
 *
 * The lanes of a warp stand side by side across the columns and ALONG the axis. ALONG lanes have
 * together of a column what one lane has in block_of_columns, in the same order, and their maxima
 * and sums meet as the halves of its tree of sums do: both give the same bits. */
#ifndef ONS_COLUMNS_CUH
#define ONS_COLUMNS_CUH

#include "finish.cuh"
#include "tile.cuh"

template <typename T, int COLUMNS>
struct each_column {
    T of[COLUMNS];
};

/* make(0), make(1), ... */
template <int COLUMNS, typename Make>
__device__ __forceinline__ auto for_each_column(Make make) {
    each_column<std::decay_t<decltype(make(0))>, COLUMNS> all;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) all.of[c] = make(c);
    return all;
}

/* ------- K packs, one below the other ------- */

template <typename X, int C_, int K_, int ALONG>
struct column_tile {
    using Real = typename compute_of<X>::type;
    static constexpr int C = C_, K = K_;

    pack<X, C> raw[K];

    __device__ static keep_bits<K * C> kept() { return ~keep_bits<K * C>(0); }

    /* Of all ALONG lanes. */
    __device__ each_column<Real, C> largest() const {
        pack<X, C> m = raw[0];
#pragma unroll
        for (int k = 1; k < K; k++) m = larger_of_both(m, raw[k]);
#pragma unroll
        for (int apart = WARP / ALONG; apart < WARP; apart *= 2) {
            pack<X, C> other;
#pragma unroll
            for (int w = 0; w < pack<X, C>::WORDS; w++)
                other.word[w] = __shfl_xor_sync(~0u, m.word[w], apart);
            m = larger_of_both(m, other);
        }
        return for_each_column<C>([&](int c) { return m.real(c); });
    }

    /* Of one column's, and of this lane alone. */
    __device__ Real smallest(int c) const {
        static_assert(sizeof(X) == 2);
        const int w = c / 2;
        pack<X, 2> m = {{raw[0].word[w]}};
#pragma unroll
        for (int k = 1; k < K; k++) m.word[0] = smaller_pair<X>(m.word[0], raw[k].word[w]);
        return m.real(c % 2);
    }

   private:
    /* Pairs of 16-bit elements are compared as such. */
    __device__ static pack<X, C> larger_of_both(const pack<X, C> &a, const pack<X, C> &b) {
        pack<X, C> m = {};
        if constexpr (sizeof(X) == 2) {
#pragma unroll
            for (int w = 0; w < pack<X, C>::WORDS; w++)
                m.word[w] = larger_pair<X>(a.word[w], b.word[w]);
        } else {
#pragma unroll
            for (int c = 0; c < C; c++) m.put(c, larger(a.element(c), b.element(c)));
        }
        return m;
    }
};

/* ------- What the methods do with a number, done for each column ------- */

template <typename Real, int C>
struct reference<each_column<Real, C>> {
    each_column<Real, C> m;

    __device__ explicit reference(const each_column<Real, C> &m_) : m(m_) {}
};

/* Fills x, pack by pack, with the lifted exponentials of a tile; returns their sums over all ALONG
 * lanes. A warp comes to it together. */
template <int GROUPS = 1, typename X, int C, int K, int ALONG, typename Real>
__device__ __forceinline__ each_column<Real, C> exponentiate(
    const column_tile<X, C, K, ALONG> &tile, const reference<each_column<Real, C>> &to,
    Real (&x)[K * C]) {
    each_column<Real, C> sums = for_each_column<C>([&](int c) {
        const reference<Real> own(to.m.of[c]);
        auto sum_of = [&](auto lifted) {
            return sum_as_tree<K>(
                0, [&](int k) { return x[k * C + c] = lifted(tile.raw[k].real(c)); });
        };
        if constexpr (sizeof(X) == 2)
            if (__all_sync(~0u, own.anchor == 0 && tile.smallest(c) >= own.exponential.floor))
                return sum_of([&](Real v) { return own.exponential.from_floor_on(v); });
        return sum_of([&](Real v) { return own.exponential(v - own.anchor); });
    });
    /* from the nearest lanes on, as sum_as_tree goes from the smallest halves on */
#pragma unroll
    for (int apart = WARP / ALONG; apart < WARP; apart *= 2)
        sums = for_each_column<C>(
            [&](int c) { return sums.of[c] + __shfl_xor_sync(~0u, sums.of[c], apart); });
    return sums;
}

template <typename Real, int C>
class softmax_finish<each_column<Real, C>> {
   public:
    __device__ explicit softmax_finish(const state<each_column<Real, C>> &row)
        : column(for_each_column<C>([&](int c) {
              return softmax_finish<Real>(state<Real>{row.m.of[c], row.d.of[c]});
          })) {}

    __device__ softmax_finish(const each_column<Real, C> &own,
                              const state<each_column<Real, C>> &row)
        : column(for_each_column<C>([&](int c) {
              return softmax_finish<Real>(own.of[c], state<Real>{row.m.of[c], row.d.of[c]});
          })) {}

    template <int n>
    __device__ void operator()(Real (&x)[n]) const {
#pragma unroll
        for (int c = 0; c < C; c++) {
            Real e[n / C];
#pragma unroll
            for (int k = 0; k < n / C; k++) e[k] = x[k * C + c];
            column.of[c](e);
#pragma unroll
            for (int k = 0; k < n / C; k++) x[k * C + c] = e[k];
        }
    }

   private:
    each_column<softmax_finish<Real>, C> column;
};

/* ------- Who shares a column ------- */

/* ALONG lanes of a warp. */
template <int C, int ALONG>
struct warp_of_packs {
    static constexpr int ACROSS = WARP / ALONG; /* lanes */
    static constexpr int STRIDE = ALONG;

    /* The first of this thread's columns. */
    __device__ static int row() { return (threadIdx.x / WARP * ACROSS + threadIdx.x % ACROSS) * C; }
    __device__ static int rows() { return blockDim.x / ALONG * C; }
    template <int K>
    __device__ static int chunk() {
        return threadIdx.x % WARP / ACROSS * K;
    }
    template <typename Real>
    __device__ static each_column<Real, C> max(const each_column<Real, C> &v) {
        return v; /* it is that of all ALONG lanes */
    }
    template <typename Real>
    __device__ static each_column<Real, C> normalizer(const each_column<Real, C> &lifted) {
        return for_each_column<C>([&](int c) { return lifted.of[c] * arithmetic<Real>::LOWERED; });
    }
};

/* ALONG lanes of each warp of a block. */
template <int C, int ALONG>
struct block_of_packs : warp_of_packs<C, ALONG> {
    using warp_of_packs<C, ALONG>::ACROSS;
    static constexpr int ROWS = ACROSS * C, SPAN = ALONG;

    __device__ static int row() { return threadIdx.x % ACROSS * C; }
    template <int K>
    __device__ static int chunk(int warp) {
        return (warp * ALONG + threadIdx.x % WARP / ACROSS) * K;
    }
    __device__ static bool writes() { return threadIdx.x % WARP < ACROSS; }

    template <typename Real>
    __device__ static void put(state<Real> *panel, const state<each_column<Real, C>> &mine) {
#pragma unroll
        for (int c = 0; c < C; c++) panel[row() + c] = {mine.m.of[c], mine.d.of[c]};
    }
    template <typename Real>
    __device__ static void get(const state<Real> *panel, state<each_column<Real, C>> *mine) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            mine->m.of[c] = panel[row() + c].m;
            mine->d.of[c] = panel[row() + c].d;
        }
    }
};

#endif
