/* gradient_warp_staged.cu - gradient_warp where rows are short, lie one after the other and begin
 * between two packs. A block stages all its rows of both inputs in shared memory at once
 * (staged.cuh). A lane takes its chunks from there, the same ones as in gradient_warp.cu, and the
 * results take the place of y. */
#include "kernel/launch_gradient.cuh"
#include "team/warp_row.cuh"
#include "rows/staged.cuh"

template <typename T>
struct staged_gradient_arguments {
    const T *y, *dy;
    T *dx;
    int64_t rows, N;
    int64_t first; /* row of this launch */
    float scale;
    ons_operation operation;
};

/* A lane's K chunks of a row in shared memory, every LANES-th. */
template <typename T, int LANES, int K>
class row_in_place {
    static constexpr int V = CHUNK<float>;

   public:
    __device__ row_in_place(T *row_, int N_)
        : row(row_),
          N(N_),
          chunks(row_, N_, threadIdx.x % LANES, (uintptr_t)row_ % 4 != 0, element_format<T>()) {}

    /* 0 after the row's end. */
    __device__ __forceinline__ raw_tile<T, K> load() const {
        raw_tile<T, K> tile;
#pragma unroll
        for (int k = 0; k < K; k++) tile.raw[k] = {};
        each([&](int k) { tile.raw[k] = chunks.whole(k); },
             [&](int e, const T *at) { tile.raw[e / V].put(e % V, *at); });
        return tile;
    }

    /* make(e): the result of element e. */
    template <typename Make>
    __device__ __forceinline__ void store(Make make) const {
        each(
            [&](int k) {
                float some[V];
#pragma unroll
                for (int i = 0; i < V; i++) some[i] = make(k * V + i);
                pack<T, V> raw[1];
                round_to_packs(some, raw, element_format<T>());
                chunks.put_whole(k, raw[0]);
            },
            [&](int e, T *at) { *at = from_real<T>(make(e)); });
    }

   private:
    /* Calls whole(k) for the chunks that lie in the row, and one(e, where element e lies) for the
     * elements of the last one. */
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

template <typename T, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    gradient_warp_staged_kernel(const __grid_constant__ staged_gradient_arguments<T> args) {
    await_earlier_work();
    using Form = lanes_a_row<LANES>;
    using Place = row_in_place<T, LANES, K>;
    extern __shared__ __align__(16) unsigned char memory[];
    const int64_t first = args.first + (int64_t)blockIdx.x * Form::rows();
    const int bytes = staged_bytes<T>(Form::rows(), args.N) + 15 & ~15;
    const staged_arguments<T> of_y = {args.y, args.dx, args.rows, args.N, 0, {}},
                              of_dy = {args.dy, args.dx, args.rows, args.N, 0, {}};
    const staged_rows<T> y(of_y, first, Form::rows(), memory),
        dy(of_dy, first, Form::rows(), memory + bytes);
    y.start();
    dy.start();
    dy.arrive();
    const int N = first + Form::row() < args.rows ? (int)args.N : 0;
    const int used = ((int)args.N + LANES * CHUNK<float> - 1) / (LANES * CHUNK<float>);
    const Place place(y.row(Form::row()), N), other(dy.row(Form::row()), N);
    const gradient_tile<raw_tile<T, K>> tile = {place.load(), other.load()};
    with_gradient(args.operation, [&](auto op) {
        using Op = decltype(op);
        const auto sum = merge_sums<LANES>(tile.template sum<Op>(used));
        const gradient_of_row<Op, float> of_row(sum.rounded(), args.scale);
        place.store([&](int e) { return of_row.element(tile.dy.element(e), tile.y.element(e)); });
    });
    y.write();
}

template <typename T>
static ons_status launch_rows_of(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const ons_problem *problem = request.problem;
    const staged_gradient_arguments<T> arguments = {(const T *)problem->operand[ONS_X].data,
                                                    (const T *)problem->operand[ONS_GRADIENT].data,
                                                    (T *)problem->operand[ONS_Y].data,
                                                    plan->rows,
                                                    plan->N,
                                                    0,
                                                    (float)problem->scale_by,
                                                    problem->operation};
    launch_shape shape = {1, plan->threads};
    shape.shared_bytes = 2 * (staged_bytes<T>(plan->width, plan->N) + 15);
    const int chunks = plan->elements_a_thread / CHUNK<float>;
    ons_status status = ONS_E_OPERAND;
#define ONS_GRADIENT_SHAPE(L, K)         \
    if (plan->lanes == L && chunks == K) \
        status = launch_strips(request, shape, gradient_warp_staged_kernel<T, L, K>, arguments);
#include "kernel/instances.def"
#undef ONS_GRADIENT_SHAPE
    return status;
}

ons_status gradient_warp_staged(const launch_request &request) {
    switch (request.problem->operand[ONS_X].dtype) {
    case ONS_FLOAT16: return launch_rows_of<__half>(request);
    case ONS_BFLOAT16: return launch_rows_of<__nv_bfloat16>(request);
    default: return launch_rows_of<float>(request);
    }
}
