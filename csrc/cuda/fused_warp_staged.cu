/* fused_warp_staged.cu - fused_warp for short rows that lie one after the other. A block stages all
 * its rows in shared memory (staged.cuh), and a lane takes its chunks from there. LANES lanes share
 * a row, K chunks each (kernels.def). If LANES is 1, a lane takes several rows, one after the
 * other.
 *
 * All operations on a row alone share one kernel. It keeps the exponentials, or reads the elements
 * again if the operation needs them. */
#include "driver/launch.cuh"
#include "team/lanes.cuh"
#include "statistic/finish.cuh"
#include "rows/aligned.cuh"
#include "rows/staged.cuh"

template <typename T>
struct rows_and_results : staged_arguments<T> {
    int64_t y_pitch; /* in elements */
    int rows_a_lane;
    ons_operation which;
    bool one_a_row;

    __device__ ons_operation operation() const { return which; }
};

template <typename T, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    fused_warp_staged_kernel(const __grid_constant__ rows_and_results<T> args) {
    await_earlier_work(args.launch.next_may_start);
    using Team = lanes<LANES>;
    extern __shared__ __align__(16) unsigned char memory[];
    const int rows = LANES == 1 ? args.rows_a_lane * Team::rows() : Team::rows();
    const staged_rows<T> staged(args, args.x, args.launch.first_row + (int64_t)blockIdx.x * rows,
                                rows, memory);
    staged.read();
    /* Returns true if the row's one value is written. */
    auto process = [&](int r, int64_t index) {
        const auto chunks = staged.template chunks<K, LANES>(r, Team::template chunk<K>());
        const auto tile = converted(chunks.load(args.format.minus_infinity()));
        float x[K * CHUNK<float>];
        const auto m = Team::near(largest{tile.largest()});
        const auto d = Team::near(exponentiate<in_any_order>(tile, reference(m), x));
        if (args.one_a_row) {
            const aligned_row<T, T, false> row(
                nullptr, args.y + (index + args.launch.first_row) * args.y_pitch, args.N,
                args.format);
            put_value<one_a_row>(args, index, Team::writes(), row, state{m, d});
            return true;
        }
        with_operation<row_shaped>(args.which, [&](auto op) {
            using Op = decltype(op);
            if constexpr (Op::KEEPS == ONS_KEEP_ELEMENTS) {
                __syncwarp(); /* so the compiler does not keep the elements in registers */
                converted(chunks.load(args.format.minus_infinity())).take(x);
            }
            finish_kept<Op, float>(args.which, x, state{m, d});
        });
        chunks.store(x);
        return false;
    };
    if constexpr (LANES == 1) {
#pragma unroll 1
        for (int r = threadIdx.x; r < rows; r += blockDim.x)
            process(r, (int64_t)blockIdx.x * rows + r);
    } else {
        if (process(Team::row_of_block(), Team::row())) return;
    }
    if (LANES == 1 && args.one_a_row) return;
    staged.write();
}

template <typename T>
static ons_status launch_rows_of(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const ons_problem *problem = request.problem;
    const rows_and_results<T> arguments = {{(const T *)problem->operand[ONS_X].data,
                                            (T *)problem->operand[ONS_Y].data,
                                            plan->rows,
                                            plan->N,
                                            {},
                                            element_format<T>(problem->operand[ONS_X].dtype)},
                                           problem->operand[ONS_Y].stride[0] / (int64_t)sizeof(T),
                                           (int)plan->width * plan->lanes / plan->threads,
                                           problem->operation,
                                           ons_operations[problem->operation].one_a_row};
    launch_shape shape = {1, plan->threads};
    shape.shared_bytes = staged_bytes<T>(plan->width, plan->N);
    const int chunks = plan->elements_a_thread / CHUNK<float>;
    ons_status status = ONS_E_OPERAND;
#define ONS_STAGED_SHAPES(rows, L, MIN, MAX)                                             \
    if constexpr ((sizeof(T) == 2) == (ONS_##rows##_ROWS == ONS_16_BIT_ROWS))            \
        if (plan->lanes == L)                                                            \
            status = with_constant_of<MIN, MAX>(chunks, [&](auto K) {                    \
                return launch_strips(request, shape,                                     \
                                     fused_warp_staged_kernel<T, L, decltype(K)::value>, \
                                     arguments);                                         \
            });
#include "kernels.def"
#undef ONS_STAGED_SHAPES
    return status;
}

ons_status launch_fused_warp_staged(const launch_request &request) {
    return request.problem->operand[ONS_X].dtype == ONS_FLOAT32
               ? launch_rows_of<float>(request)
               : launch_rows_of<any_16_bit>(request);
}
