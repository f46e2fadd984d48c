/* aligned.cuh - aligned_row: a row that begins with a pack, in x and in y. One access reads or
 * writes a chunk. Single elements are accessed only at the row's end. */
#ifndef ONS_ALIGNED_CUH
#define ONS_ALIGNED_CUH

#include "tile.cuh"

/* The addresses of a row's elements and results, and their format. */
template <typename X, typename Y>
class row_pointers {
   public:
    __device__ row_pointers(const X *x_, Y *y_, const element_format<X> &format_)
        : from(x_), to(y_), row_format(format_) {}
    __device__ const X *x() const { return from; }
    __device__ Y *y() const { return to; }
    __device__ const element_format<X> &format() const { return row_format; }

   private:
    const X *from;
    Y *to;
    element_format<X> row_format;
};

/* TAIL: the row may end inside a pack. */
template <typename X, typename Y, bool TAIL, typename Pointers = row_pointers<X, Y>>
class aligned_row {
   public:
    using Real = typename compute_of<X>::type;
    static constexpr int V = CHUNK<Real>;

    __device__ aligned_row(const Pointers &pointers_, int64_t N_) : N(N_), pointers(pointers_) {}
    __device__ aligned_row(const X *x, Y *y, int64_t N_,
                           const element_format<X> &format = element_format<X>())
        : N(N_), pointers(x, y, format) {}

    template <int K, int STRIDE>
    __device__ __forceinline__ raw_tile<X, K> load(int64_t chunk) const {
        const X *from = pointers.x() + chunk * V;
        const int left = elements_left(N, chunk * V);
        raw_tile<X, K> tile(pointers.format());
        if (has_all<K, STRIDE, V>(left)) {
#pragma unroll
            for (int k = 0; k < K; k++) tile.raw[k] = ((const pack<X, V> *)from)[k * STRIDE];
            return tile;
        }
        pack<X, V> none;
        none.cut(0, tile.format);
        if constexpr (sizeof(X) == 2) /* else it would be computed again for each chunk */
            asm volatile("" : "+r"(none.word[0]), "+r"(none.word[1]));
#pragma unroll
        for (int k = 0; k < K; k++)
            tile.raw[k] =
                left >= place<STRIDE, V>(k * V) + V ? ((const pack<X, V> *)from)[k * STRIDE] : none;
        const int end = last_place<K, STRIDE, V>(left);
        if (TAIL && end < left && end + V > left) {
            pack<X, V> last = edge(from + end, 0, left - end);
            last.cut(left - end, tile.format);
#pragma unroll
            for (int k = 0; k < K; k++)
                if (k * (STRIDE * V) == end) tile.raw[k] = last;
        }
        return tile;
    }

    template <int K, int STRIDE, bool STREAM>
    __device__ __forceinline__ void store(int64_t chunk, const Real (&from)[K * V],
                                          allowed_bits<K * V>, Real) const {
        Y *to = pointers.y() + chunk * V;
        const int left = elements_left(N, chunk * V), end = last_place<K, STRIDE, V>(left);
        pack<Y, V> raw[K];
        round_to_packs(from, raw, of_results());
        if (has_all<K, STRIDE, V>(left)) {
#pragma unroll
            for (int k = 0; k < K; k++) write_pack<STREAM>((pack<Y, V> *)to + k * STRIDE, raw[k]);
            return;
        }
#pragma unroll
        for (int k = 0; k < K; k++)
            if (place<STRIDE, V>(k * V) + V <= left)
                write_pack<STREAM>((pack<Y, V> *)to + k * STRIDE, raw[k]);
        if (TAIL && end < left && end + V > left) {
            pack<Y, V> last = chunk_at<STRIDE, V>(raw, end);
#pragma unroll
            for (int i = 0; i < V; i++)
                if (end + i < left) to[end + i] = last.element(i);
        }
    }

    /* Writes the one value of the row, or one of its elements. */
    __device__ void put(Real v, int64_t at = 0) const {
        pointers.y()[at] = of_results().rounded(v);
    }
    __device__ void put(const ons_pair &pair) const { *(ons_pair *)pointers.y() = pair; }

    /* Rounds numbers to the elements' type. */
    template <int n>
    __device__ void round(Real (&v)[n]) const {
        pointers.format().with([&](auto type) {
#pragma unroll
            for (int i = 0; i < n; i++) v[i] = to_real<Real>(from_real<decltype(type)>(v[i]));
        });
    }

    int64_t N;

   protected:
    __device__ element_format<Y> of_results() const {
        return format_of_results<Y>(pointers.format());
    }

    /* Reads elements `begin` to `end` of a pack, and no others. */
    __device__ static pack<X, V> edge(const X *from, int begin, int end) {
        pack<X, V> some = {};
#pragma unroll
        for (int i = 0; i < V; i++)
            if (i >= begin && i < end) some.put(i, from[i]);
        return some;
    }

    Pointers pointers;
};

#endif
