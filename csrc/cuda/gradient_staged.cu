/* gradient_staged.cu - fused_warp for short rows that lie one after the other, in an operation that
 * takes a gradient. A block stages all its rows of both inputs in shared memory (rows/staged.cuh).
 * LANES lanes share a row, K chunks each (kernels.def). These lanes may take several rows, one
 * after the other. The results replace y. */
#include "driver/launch.cuh"
#include "team/lanes.cuh"
#include "statistic/gradient_sum.cuh"
#include "rows/gradient.cuh"
#include "rows/staged.cuh"

template <typename T>
struct staged_gradients : staged_arguments<T> { /* y and dx */
    const T *dy;
    int rows_a_lane;
    float scale;
    ons_operation which;
};

/* The lanes that share a row of at most `chunks` chunks in fused_warp.cu. They set the order of the
 * row's sum. */
__host__ __device__ constexpr int lanes_of_sum(int chunks) {
    int lanes = 0;
#define ONS_GRADIENT_SHAPE(L, K) \
    if (lanes == 0 && L * K >= chunks) lanes = L;
#include "kernels.def"
#undef ONS_GRADIENT_SHAPE
    return lanes;
}

template <typename T, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    gradient_staged_kernel(const __grid_constant__ staged_gradients<T> args) {
    await_earlier_work(args.launch.next_may_start);
    using Team = lanes<LANES>;
    extern __shared__ __align__(16) unsigned char memory[];
    const int rows = args.rows_a_lane * Team::rows();
    const int64_t first = args.launch.first_row + (int64_t)blockIdx.x * rows;
    const staged_rows<T> y(args, args.x, first, rows, memory),
        dy(args, args.dy, first, rows, memory + (staged_bytes<T>(rows, args.N) + 15 & ~15));
    y.start();
    dy.start();
    dy.arrive();
    with_operation<gradient_operations>(args.which, [&](auto op) {
        using Op = decltype(op);
#pragma unroll 1
        for (int r = Team::row_of_block(); r < rows; r += Team::rows()) {
            const int chunk = Team::template chunk<K>();
            const auto own = y.template chunks<K, LANES>(r, chunk);
            const T end = from_real<T>(0.0f);
            const gradient_tile<raw_tile<T, K>> tile = {
                own.load(end), dy.template chunks<K, LANES>(r, chunk).load(end), args.scale};
            constexpr int SHARES = lanes_of_sum(LANES * K) / LANES;
            const auto sum = Team::near(tile.template sum<Op, Team::sums, SHARES>());
            float dx[K * CHUNK<float>];
            tile.template results<Op>(sum).put_all(dx);
            own.store(dx);
        }
    });
    y.write();
}

template <typename T>
static ons_status launch_of_type(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const ons_problem *problem = request.problem;
    const staged_gradients<T> arguments = {{(const T *)problem->operand[ONS_X].data,
                                            (T *)problem->operand[ONS_Y].data,
                                            plan->rows,
                                            plan->N,
                                            {},
                                            {}},
                                           (const T *)problem->operand[ONS_GRADIENT].data,
                                           (int)plan->width * plan->lanes / plan->threads,
                                           (float)problem->scale_by,
                                           problem->operation};
    launch_shape shape = {1, plan->threads};
    shape.shared_bytes = 2 * (staged_bytes<T>(plan->width, plan->N) + 15);
    const int chunks = plan->elements_a_thread / CHUNK<float>;
    ons_status status = ONS_E_OPERAND;
#define ONS_STAGED_GRADIENT_SHAPES(L, MIN, MAX)                                                    \
    if (plan->lanes == L)                                                                          \
        status = with_constant_of<MIN, MAX>(chunks, [&](auto K) {                                  \
            return launch_strips(request, shape, gradient_staged_kernel<T, L, decltype(K)::value>, \
                                 arguments);                                                       \
        });
#include "kernels.def"
#undef ONS_STAGED_GRADIENT_SHAPES
    return status;
}

ons_status launch_gradients_in_warp_staged(const launch_request &request) {
    return with_type_up_to_32_bits(
        request, [&](auto type) { return launch_of_type<decltype(type)>(request); });
}
