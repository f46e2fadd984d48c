/* staged_gradient.cuh - staged_gradients: short rows of both inputs, one after the other. Most
 * begin inside a pack. A block stages all its rows in shared memory (staged.cuh). A lane takes its
 * chunks from there, and the results replace y. */
#ifndef ONS_STAGED_GRADIENT_CUH
#define ONS_STAGED_GRADIENT_CUH

#include "../team/lanes.cuh"
#include "gradient.cuh"
#include "staged.cuh"

/* A lane's K chunks of a row in shared memory, every LANES-th. */
template <typename T, int LANES, int K>
class row_in_place {
    static constexpr int V = CHUNK<float>;

   public:
    __device__ row_in_place(T *row_, int N_)
        : row(row_),
          N(N_),
          chunks(row_, N_, threadIdx.x % LANES, (uintptr_t)row_ % 4 != 0, element_format<T>()) {}

    /* The elements after the row's end are 0. */
    __device__ __forceinline__ raw_tile<T, K> load() const {
        raw_tile<T, K> tile;
#pragma unroll
        for (int k = 0; k < K; k++) tile.raw[k] = {};
        each([&](int k) { tile.raw[k] = chunks.whole(k); },
             [&](int e, const T *at) { tile.raw[e / V].put(e % V, *at); });
        return tile;
    }

    /* result(e): the result of element e. */
    template <typename Result>
    __device__ __forceinline__ void store(const Result &result) const {
        each(
            [&](int k) {
                float some[V];
#pragma unroll
                for (int i = 0; i < V; i++) some[i] = result(k * V + i);
                pack<T, V> raw[1];
                round_to_packs(some, raw, element_format<T>());
                chunks.put_whole(k, raw[0]);
            },
            [&](int e, T *at) { *at = from_real<T>(result(e)); });
    }

   private:
    /* Calls whole(k) for the chunks that lie in the row, and one(e, address of element e) for the
     * elements of the last chunk. */
    template <typename Whole, typename One>
    __device__ __forceinline__ void each(Whole whole, One one) const {
        const int first = threadIdx.x % LANES * V;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int begin = first + k * (LANES * V);
            if (begin + V <= N) {
                whole(k);
            } else if (begin < N) {
#pragma unroll
                for (int i = 0; i < V; i++)
                    if (begin + i < N) one(k * V + i, row + begin + i);
            }
        }
    }

    T *row;
    int N;
    staged_chunks<T, K, LANES> chunks;
};

/* Only the first `used` chunks of a lane have elements. */
template <typename Tile>
struct staged_gradient_tile : gradient_tile<Tile> {
    int used;

    template <typename Op>
    __device__ __forceinline__ auto sum() const {
        return gradient_tile<Tile>::template sum<Op>(used);
    }
};

template <typename T, int LANES>
struct staged_gradients {
    using Real = float;
    static constexpr int V = CHUNK<float>;
    static constexpr bool IS_16_BIT = sizeof(T) == 2;

    struct arguments : staged_arguments<T> { /* y and dx */
        const T *dy;
        float scale;
        ons_operation which;

        __device__ ons_operation operation() const { return which; }
    };

    class staged_row {
       public:
        /* Reads the block's rows. The destructor writes their results. All threads of the block
         * must have one. */
        __device__ explicit staged_row(const arguments &args_)
            : args(args_), y(rows_of(args_.x, memory())) {
            const staged_rows<T> dy = rows_of(args.dy, memory() + bytes());
            y.start();
            dy.start();
            dy.arrive();
            N = first() + Team::row_of_block() < args.rows ? (int)args.N : 0;
        }

        __device__ ~staged_row() { y.write(); }
        staged_row(const staged_row &) = delete;

        template <int K, int STRIDE>
        __device__ __forceinline__ auto load(int64_t) const {
            const int used = ((int)args.N + LANES * V - 1) / (LANES * V);
            return staged_gradient_tile<raw_tile<T, K>>{
                {of_y<K>().load(), of_y<K>(bytes() / (int)sizeof(T)).load(), args.scale}, used};
        }
        template <int K, int STRIDE, bool STREAM, typename Result>
        __device__ __forceinline__ void store(int64_t, const Result &result, allowed_bits<K * V>,
                                              float) const {
            of_y<K>().store(result);
        }

       private:
        using Team = lanes<LANES>;
        __device__ int64_t first() const {
            return args.launch.first_row + (int64_t)blockIdx.x * Team::rows();
        }
        __device__ int bytes() const { return staged_bytes<T>(Team::rows(), args.N) + 15 & ~15; }
        __device__ static unsigned char *memory() {
            extern __shared__ __align__(16) unsigned char memory_of_block[];
            return memory_of_block;
        }
        __device__ staged_rows<T> rows_of(const T *x, unsigned char *at) const {
            return {args, x, first(), Team::rows(), at};
        }

        /* This thread's row of y. With `later`, its row of dy, which begins so many elements
         * later. */
        template <int K>
        __device__ row_in_place<T, LANES, K> of_y(int later = 0) const {
            return {y.row(Team::row_of_block()) + later, N};
        }

        const arguments &args;
        const staged_rows<T> y;
        int N;
    };

    template <bool CHECK_ROW>
    __device__ __forceinline__ static staged_row row(const arguments &args, int64_t) {
        return staged_row(args);
    }
};

#endif
