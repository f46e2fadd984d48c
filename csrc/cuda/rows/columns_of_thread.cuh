/* columns_of_thread.cuh - the column form with several rows a thread: COLUMNS neighbouring columns
 * in packs. In the row form a thread has one m, one d and one set of constants. Here it has one for
 * each column, as an each_column; the methods are written for both.
 *
 * WARP / ALONG lanes of a warp stand side by side across the columns, and ALONG lanes along the
 * axis. These ALONG lanes together have the part of a column that one lane has in block_of_columns,
 * in the same order. The maxima and sums of these lanes merge like the halves of that one lane's
 * tree of sums. So packed columns and block_of_columns give the same bits. */
#ifndef ONS_COLUMNS_OF_THREAD_CUH
#define ONS_COLUMNS_OF_THREAD_CUH

#include "../statistic/finish.cuh"
#include "../statistic/merge.cuh"
#include "../statistic/sum_in_double.cuh"
#include "tile.cuh"

template <typename T, int COLUMNS>
struct each_column {
    T each[COLUMNS];
};

/* Collects make(0), make(1), ... */
template <int COLUMNS, typename Make>
__device__ __forceinline__ auto for_each_column(Make make) {
    each_column<std::decay_t<decltype(make(0))>, COLUMNS> all;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) all.each[c] = make(c);
    return all;
}

/* ------- K packs, one below the other ------- */

template <typename X, int C_, int K_, int ALONG>
struct column_tile {
    using Real = typename compute_of<X>::type;
    static constexpr int C = C_, K = K_;
    static constexpr bool IS_16_BIT = sizeof(X) == 2;

    pack<X, C> raw[K];
    element_format<X> format;

    __device__ explicit column_tile(const element_format<X> &format_) : format(format_) {}

    __device__ static allowed_bits<K * C> allowed() { return ~allowed_bits<K * C>(0); }

    /* The elements of columns c and c + 1. */
    __device__ __forceinline__ void take_two(Real (&x)[K * C], int c) const {
        format.with([&](auto type) {
#pragma unroll
            for (int k = 0; k < K; k++) {
                x[k * C + c] = raw[k].template real<decltype(type)>(c);
                x[k * C + c + 1] = raw[k].template real<decltype(type)>(c + 1);
            }
        });
    }

    __device__ __forceinline__ void take(Real (&x)[K * C]) const {
#pragma unroll
        for (int c = 0; c < C; c += 2) take_two(x, c);
    }

    /* The largest of each column, over all ALONG lanes. */
    __device__ each_column<Real, C> largest() const {
        return format.with([&](auto type) {
            using Type = decltype(type);
            pack<X, C> m = raw[0];
#pragma unroll
            for (int k = 1; k < K; k++) m = larger_of_both<Type>(m, raw[k]);
#pragma unroll
            for (int apart = WARP / ALONG; apart < WARP; apart *= 2) {
                pack<X, C> other;
#pragma unroll
                for (int w = 0; w < pack<X, C>::WORDS; w++)
                    other.word[w] = __shfl_xor_sync(~0u, m.word[w], apart);
                m = larger_of_both<Type>(m, other);
            }
            return for_each_column<C>([&](int c) { return m.template real<Type>(c); });
        });
    }

    /* The smallest of each column in this lane. */
    __device__ each_column<Real, C> smallest() const {
        static_assert(sizeof(X) == 2);
        return format.with([&](auto type) {
            using Type = decltype(type);
            pack<X, C> m = raw[0];
#pragma unroll
            for (int k = 1; k < K; k++)
#pragma unroll
                for (int w = 0; w < pack<X, C>::WORDS; w++)
                    m.word[w] = smaller_pair<Type>(m.word[w], raw[k].word[w]);
            return for_each_column<C>([&](int c) { return m.template real<Type>(c); });
        });
    }

    /* The same elements, but none is below `least`, which has a number for each column. */
    __device__ column_tile not_below(const each_column<Real, C> &least) const {
        static_assert(sizeof(X) == 2);
        column_tile raised(format);
        format.with([&](auto type) {
            pack<X, C> floor;
#pragma unroll
            for (int c = 0; c < C; c += 2)
                floor.word[c / 2] = two_in_a_word(least.each[c], least.each[c + 1], type);
#pragma unroll
            for (int k = 0; k < K; k++)
                raised.raw[k] = larger_of_both<decltype(type)>(raw[k], floor);
        });
        return raised;
    }

   private:
    /* Compares 16-bit elements in pairs. */
    template <typename Type>
    __device__ static pack<X, C> larger_of_both(const pack<X, C> &a, const pack<X, C> &b) {
        pack<X, C> m = {};
        if constexpr (sizeof(X) == 2) {
#pragma unroll
            for (int w = 0; w < pack<X, C>::WORDS; w++)
                m.word[w] = larger_pair<Type>(a.word[w], b.word[w]);
        } else {
#pragma unroll
            for (int c = 0; c < C; c++) m.put(c, larger(a.element(c), b.element(c)));
        }
        return m;
    }
};

/* ------- The methods' operations on a number, for each column ------- */

template <typename Real, int C>
struct reference<each_column<Real, C>> {
    each_column<Real, C> m;

    __device__ explicit reference(const each_column<Real, C> &m_) : m(m_) {}
};

/* Fills x, pack by pack. The function lift(c) transforms the elements of column c. Returns this
 * lane's sums. The two columns of a word are taken out of the tile together. */
template <typename X, int C, int K, int ALONG, typename Real, typename Lift>
__device__ __forceinline__ lifted_sum<each_column<Real, C>> fill_columns(
    const column_tile<X, C, K, ALONG> &tile, Real (&x)[K * C], Lift lift) {
    each_column<Real, C> sums;
#pragma unroll
    for (int c = 0; c < C; c += 2) {
        tile.take_two(x, c);
#pragma unroll
        for (int i = c; i < c + 2; i++) {
            const auto lifted = lift(i);
            sums.each[i] =
                sum_as_tree<K>(0, [&](int k) { return x[k * C + i] = lifted(x[k * C + i]); });
        }
    }
    return {sums};
}

/* The largest |m| whose floor may be rounded to 16 bits. The rounded floor is off by at most 4. So
 * e^floor is still a normal number, and so small that it changes no sum. */
constexpr float LARGEST_OF_16_BITS = 1024;

/* Fills x, pack by pack, with the lifted exponentials of a tile, and returns this lane's sums.
 * Whole warps must call it. */
template <typename How = in_a_tree, typename X, int C, int K, int ALONG, typename Real>
__device__ __forceinline__ lifted_sum<each_column<Real, C>> exponentiate(
    const column_tile<X, C, K, ALONG> &tile, const reference<each_column<Real, C>> &to,
    Real (&x)[K * C]) {
    /* If few lanes share a column, a column often ends inside a lane's tile. The rest of the tile
     * is -inf. So all 16-bit elements are raised to the floor. If more lanes share a column, most
     * tiles are full, and it is cheaper to compare only the smallest element with the floor. */
    constexpr bool IS_16_BIT = sizeof(X) == 2, RAISES = IS_16_BIT && ALONG < C;
    constexpr Real MOST = RAISES ? LARGEST_OF_16_BITS : LARGEST;
    bool ordinary = true;
#pragma unroll
    for (int c = 0; c < C; c++) ordinary = ordinary && fabs(to.m.each[c]) <= MOST;
    if (__all_sync(~0u, ordinary)) {
        auto exponential = [&](int c) {
            return exponentials<Real>(arithmetic<Real>::biased_c(to.m.each[c]));
        };
        auto from_floor_on = [&](int c) {
            return [own = exponential(c)](Real v) { return own.from_floor_on(v); };
        };
        if constexpr (RAISES) {
            const auto floors = for_each_column<C>([&](int c) { return exponential(c).floor; });
            return fill_columns(tile.not_below(floors), x, from_floor_on);
        } else if constexpr (IS_16_BIT) {
            const each_column<Real, C> smallest = tile.smallest();
            bool above = true;
#pragma unroll
            for (int c = 0; c < C; c++) above = above && smallest.each[c] >= exponential(c).floor;
            if (__all_sync(~0u, above)) return fill_columns(tile, x, from_floor_on);
        } else {
            return fill_columns(tile, x, exponential);
        }
    }
    return fill_columns(tile, x, [&](int c) {
        return [own = reference<Real>(to.m.each[c])](Real v) {
            return own.exponential(v - own.anchor);
        };
    });
}

/* The sums of a tile's lifted exponentials. Nothing is kept. */
template <typename How = in_a_tree, typename X, int C, int K, int ALONG, typename Real>
__device__ __forceinline__ auto sum_exponentials(const column_tile<X, C, K, ALONG> &tile,
                                                 const reference<each_column<Real, C>> &to) {
    Real lifted[K * C];
    return exponentiate(tile, to, lifted);
}

/* The finish of each column, by the column's own state. */
template <typename One, typename Real, int C>
__device__ each_column<One, C> finish_each(const state<each_column<Real, C>> &row) {
    return for_each_column<C>(
        [&](int c) { return One(state<Real>{row.m.each[c], row.d.each[c]}); });
}

/* A lane writes the values of n of its thread's columns. `first` is the first of these columns. */
template <int n>
struct columns_to_write {
    unsigned first;
};
template <typename Op, typename Arguments, typename Row, typename Real, int C, int n>
__device__ __forceinline__ void put_value(const Arguments &args, int64_t index,
                                          columns_to_write<n> own, const Row &row,
                                          const state<each_column<Real, C>> &all) {
#pragma unroll
    for (int i = 0; i < n; i++) {
        state<Real> one = {all.m.each[i], all.d.each[i]};
#pragma unroll
        for (int c = n; c < C; c += n)
            if (own.first == c) one = {all.m.each[c + i], all.d.each[c + i]};
        row.template put_value<Op>(args, index + own.first + i, one);
    }
}

template <typename Op, typename Real, int C>
class finish_of<Op, each_column<Real, C>, ONS_KEEP_EXPONENTIALS> {
    using one_column = finish_of<Op, Real>;

   public:
    __device__ explicit finish_of(const state<each_column<Real, C>> &row)
        : column(finish_each<one_column>(row)) {}
    __device__ explicit finish_of(const each_column<row_constants<Real>, C> &rows)
        : column(for_each_column<C>([&](int c) { return one_column(rows.each[c]); })) {}

    /* `rows` stay in shared memory. If all were read at once, they would take the elements'
     * registers. */
    __device__ finish_of(const each_column<Real, C> &own, const row_constants<Real> *rows) {
        bool near = true;
#pragma unroll
        for (int c = 0; c < C; c++) near = near && one_column::is_near(own.each[c], rows[c]);
        if (near)
            column =
                for_each_column<C>([&](int c) { return one_column::near(own.each[c], rows[c]); });
        else
            column = for_each_column<C>([&](int c) { return one_column(own.each[c], rows[c]); });
    }

    template <int n>
    __device__ void operator()(Real (&x)[n]) const {
        bool moves = false;
#pragma unroll
        for (int c = 0; c < C; c++) moves = moves || column.each[c].moves();
        if (moves) {
#pragma unroll
            for (int i = 0; i < n; i++) x[i] = column.each[i % C].moved_by_factor(x[i]);
        }
#pragma unroll
        for (int i = 0; i < n; i++) x[i] = column.each[i % C].element(x[i]);
    }

   private:
    each_column<one_column, C> column;
};

/* Fills x with the elements of a tile, and returns the sums of their exponentials. */
template <typename How = in_a_tree, typename X, int C, int K, int ALONG, typename Real>
__device__ __forceinline__ lifted_sum<each_column<Real, C>> take_and_sum(
    const column_tile<X, C, K, ALONG> &tile, const reference<each_column<Real, C>> &to,
    Real (&x)[K * C]) {
    Real lifted[K * C];
    const auto sums = exponentiate(tile, to, lifted);
    tile.take(x);
    return sums;
}

template <typename Op, typename Real, int C>
class finish_of<Op, each_column<Real, C>, ONS_KEEP_ELEMENTS> {
    using one_column = finish_of<Op, Real>;

   public:
    __device__ explicit finish_of(const state<each_column<Real, C>> &row)
        : column(finish_each<one_column>(row)) {}
    __device__ explicit finish_of(const each_column<row_constants<Real>, C> &rows)
        : column(for_each_column<C>([&](int c) { return one_column(rows.each[c]); })) {}
    __device__ finish_of(const each_column<Real, C> &, const row_constants<Real> *rows)
        : column(for_each_column<C>([&](int c) { return one_column(rows[c]); })) {}

    template <int n>
    __device__ void operator()(Real (&x)[n]) const {
#pragma unroll
        for (int i = 0; i < n; i++) x[i] = column.each[i % C].element(x[i]);
    }

   private:
    each_column<one_column, C> column;
};

/* ------- Who shares a column ------- */

/* ALONG lanes of a warp share a column. */
template <int C, int ALONG>
struct lanes_of_packs {
    static constexpr int ACROSS = WARP / ALONG; /* lanes */
    static constexpr int STRIDE = ALONG;
    static constexpr bool CHECK_ROW = true, ONE_REFERENCE = true, FETCHES = false, STREAM = false;
    using sums = in_a_tree_of_column;

    /* This thread's first column. */
    __device__ static int64_t row() {
        return (int64_t)blockIdx.x * (blockDim.x / ALONG * C) +
               (threadIdx.x / WARP * ACROSS + threadIdx.x % ACROSS) * C;
    }
    template <int K>
    __device__ static int chunk() {
        return threadIdx.x % WARP / ACROSS * K;
    }
    __device__ static bool leaves() { return false; }
    /* The ALONG lanes share the C values: each lane writes C / ALONG of them. */
    __device__ static auto writes() {
        return columns_to_write<C / ALONG>{threadIdx.x % WARP / ACROSS * (C / ALONG)};
    }

    /* largest() has already merged all ALONG lanes. */
    template <typename Real>
    __device__ static each_column<Real, C> near(const largest<each_column<Real, C>> &mine) {
        return mine.m;
    }
    /* Adds the nearest lanes first, as sum_as_tree adds the smallest halves first. */
    template <typename Real>
    __device__ static each_column<Real, C> near(const lifted_sum<each_column<Real, C>> &mine) {
        each_column<Real, C> lifted = mine.d;
#pragma unroll
        for (int apart = ACROSS; apart < WARP; apart *= 2)
            lifted = for_each_column<C>([&](int c) {
                return lifted.each[c] + __shfl_xor_sync(~0u, lifted.each[c], apart);
            });
        return for_each_column<C>(
            [&](int c) { return lifted.each[c] * arithmetic<Real>::LOWERED; });
    }
    __device__ static nothing near(nothing) { return {}; }
    template <typename Real>
    __device__ static auto near(const each_column<sum_in_double<Real>, C> &mine) {
        each_column<sum_in_double<Real>, C> sums = mine;
#pragma unroll
        for (int apart = ACROSS; apart < WARP; apart *= 2)
#pragma unroll
            for (int c = 0; c < C; c++) sums.each[c].add(sums.each[c].of_lane_across(apart));
        return sums;
    }
    template <typename Own, typename Sum, typename Make>
    __device__ static auto far(const Own &own, const Sum &sum, Make) {
        return whole(own, sum);
    }
};

/* In each warp of a block, ALONG lanes share C columns, and ALONG is C. So each lane owns one of
 * these columns, and has its state. */
template <int C>
struct block_of_packs : lanes_of_packs<C, C> {
    using lanes_of_packs<C, C>::ACROSS;
    static constexpr int ROWS = WARP, LANES_ALONG = C;

    template <typename Real>
    struct running; /* below */

    __device__ static int row() { return threadIdx.x % ACROSS * C; }
    template <int K>
    __device__ static int chunk(int warp) {
        return (warp * C + along()) * K;
    }

    using lanes_of_packs<C, C>::near;
    /* Sums this lane's own column. At each step a lane sends its partner's columns. */
    template <typename Real>
    __device__ static Real near(const lifted_sum<each_column<Real, C>> &mine) {
        return lifted_sum<Real>{from_nearest(mine.d)}.value();
    }
    template <typename Real>
    __device__ static auto near(const each_column<sum_in_double<Real>, C> &mine) {
        return from_nearest(mine);
    }

    /* The number of this lane's own column among the columns of its thread. */
    __device__ static int along() { return threadIdx.x % WARP / ACROSS; }
    __device__ static int own_column() { return row() + along(); }
    /* The lane that owns column c of this thread. */
    __device__ static int owner(int c) { return threadIdx.x % ACROSS + c * ACROSS; }
    template <typename Sum>
    __device__ static each_column<Sum, C> of_columns(const Sum &own) {
        return for_each_column<C>([&](int c) { return own.of_lane(owner(c)); });
    }
    template <typename Real>
    __device__ static state<Real> own(const each_column<Real, C> &m, Real d) {
        Real mine = m.each[0];
#pragma unroll
        for (int c = 1; c < C; c++) mine = along() == c ? m.each[c] : mine;
        return {mine, d};
    }
    template <typename T>
    __device__ static const T *of_thread(const T *strip) {
        return strip + row();
    }

    /* The functions that `online` needs (team/forms.cuh). */
    template <typename Real>
    __device__ static state<Real> merge_warp(state<Real> mine) {
        return mine;
    }
    __device__ static int slot(int part) { return part * ROWS + own_column(); }
    __device__ static bool writes() { return true; }
    template <typename Real, typename Make>
    __device__ static auto of_rows(const state<Real> &own, Make make) {
        return for_each_column<C>([&](int c) {
            return make(
                state<Real>{__shfl_sync(~0u, own.m, owner(c)), __shfl_sync(~0u, own.d, owner(c))});
        });
    }

   private:
    /* Sums over the lanes, the nearest first, as sum_as_tree adds the smallest halves first. */
    template <typename Sum, int n>
    __device__ static Sum from_nearest(const each_column<Sum, n> &of_lane) {
        if constexpr (n == 1) {
            return of_lane.each[0];
        } else {
            constexpr int STEP = C / n;
            const bool odd = along() & STEP;
            return from_nearest(for_each_column<n / 2>([&](int i) {
                const Sum even_one = of_lane.each[2 * i], odd_one = of_lane.each[2 * i + 1];
                return with_partner(odd ? odd_one : even_one, odd ? even_one : odd_one,
                                    STEP * ACROSS);
            }));
        }
    }

    /* Exchanges sums with the lane that is `apart` lanes away. Returns `own` and what it gives. */
    template <typename Real>
    __device__ static Real with_partner(Real own, Real given, int apart) {
        return own + __shfl_xor_sync(~0u, given, apart);
    }
    template <typename Real>
    __device__ static auto with_partner(sum_in_double<Real> own, const sum_in_double<Real> &given,
                                        int apart) {
        own.add(given.of_lane_across(apart));
        return own;
    }
};

/* What a thread keeps while it reads its columns: the maximum of each of them, and the (m, d) of
 * this lane's own column. */
template <int C>
template <typename Real>
struct block_of_packs<C>::running {
    each_column<Real, C> m;
    running_state<Real> own;

    __device__ running() {
#pragma unroll
        for (int c = 0; c < C; c++) m.each[c] = own.m;
    }
    __device__ state<Real> rounded() const { return own.rounded(); }
};

/* Does for C columns what online_step of statistic/running_pair.cuh does for one row. */
template <typename X, int C, int K, typename Real = typename compute_of<X>::type>
__device__ inline void online_step(
    typename block_of_packs<C>::template running<typename compute_of<X>::type> &so_far,
    const column_tile<X, C, K, C> &tile) {
    using Form = block_of_packs<C>;
    const each_column<Real, C> top = tile.largest();
    so_far.m = for_each_column<C>([&](int c) { return larger(so_far.m.each[c], top.each[c]); });
    const Real m = Form::own(so_far.m, Real()).m;
    if (m != so_far.own.m) so_far.own.raise(m);
    Real x[K * C];
    const auto sums = exponentiate(tile, reference<each_column<Real, C>>(so_far.m), x);
    so_far.own.sum.add(Form::near(sums));
}

#endif
