/* fused_warp_staged.cu - fused_warp where rows are short and lie one after the other. A block
 * stages all its rows in shared memory at once (staged.cuh), and a lane takes its chunks from
 * there.
 *
 * LANES share a row, K chunks each: as few lanes as hold it, since what is done once a lane costs
 * such rows more than their elements do.
 *
 * All operations on a row alone have one kernel. Exponentials are kept for those that take them;
 * elements are read again. */
#include "rows/finish.cuh"
#include "launch.cuh"
#include "rows/staged.cuh"

template <typename T>
struct rows_and_results : staged_arguments<T> {
    int64_t y_pitch; /* in elements */
    ons_operation which;
    bool one_a_row;

    __device__ ons_operation operation() const { return which; }
};

template <typename T, int LANES, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    fused_warp_staged_kernel(const __grid_constant__ rows_and_results<T> args) {
    using Form = lanes_a_row<LANES>;
    extern __shared__ __align__(16) unsigned char memory[];
    const int64_t index = (int64_t)blockIdx.x * Form::rows() + Form::row();
    const staged_rows<T> staged(args, args.first + (int64_t)blockIdx.x * Form::rows(), Form::rows(),
                                memory);
    staged.read();
    const auto chunks = staged.template chunks<K, LANES>(Form::row(), Form::template chunk<K>());
    const auto tile = opened(chunks.load());
    float x[K * CHUNK<float>];
    const auto m = Form::max(tile.largest());
    const auto d = Form::normalizer(exponentiate<in_any_order>(tile, reference(m), x));
    if (args.one_a_row) {
        const fitting_row<T, T, true> row(nullptr, args.y + (index + args.first) * args.y_pitch,
                                          args.N, args.of);
        put_value<one_a_row>(args, index, Form::writes(), row, state{m, d});
        return;
    }
    with_operation<of_rows>(args.which, [&](auto op) {
        using Op = decltype(op);
        if constexpr (Op::KEEPS == ONS_KEEP_ELEMENTS) {
            __syncwarp(); /* so that the elements are not kept meanwhile */
            opened(chunks.load()).take(x);
        }
        finish_kept<Op, float>(args.which, x, state{m, d});
    });
    chunks.store(x);
    staged.write();
}

template <typename T>
static ons_status launch_rows_of(const launch_request &request) {
    const ons_plan *plan = request.plan;
    const ons_problem *problem = request.problem;
    const rows_and_results<T> arguments = {
        {(const T *)problem->operand[ONS_X].data, (T *)problem->operand[ONS_Y].data, plan->rows,
         plan->N, 0, format<T>(problem->operand[ONS_X].dtype)},
        problem->operand[ONS_Y].stride[0] / (int64_t)sizeof(T),
        problem->operation,
        ons_operations[problem->operation].one_a_row};
    launch_shape shape = {1, plan->threads};
    shape.shared_bytes = staged_bytes<T>(plan->width, plan->N);
    int chunks = plan->elements_a_thread / CHUNK<float>;
    return with_constant<1, 2, 4, 8, 16, 32>(plan->lanes, [&](auto lanes) {
        constexpr int LANES = decltype(lanes)::value;
        auto launch_chunks = [&](auto chunks_of_lane) {
            constexpr int K = decltype(chunks_of_lane)::value;
            return launch_strips(request, shape, fused_warp_staged_kernel<T, LANES, K>, arguments);
        };
        if constexpr (LANES == 1)
            return with_constant<1, 2, 3, 4, 5, 6>(chunks, launch_chunks);
        else if constexpr (LANES == 2)
            return with_constant<4, 5, 6, 7, 8>(chunks, launch_chunks);
        else if constexpr (LANES == 4 || (LANES < WARP && sizeof(T) == 4))
            return with_constant<5, 6, 7, 8>(chunks, launch_chunks);
        else if constexpr (LANES == 8)
            return with_constant<5, 6, 7, 8, 9, 10, 11, 12>(chunks, launch_chunks);
        else if constexpr (sizeof(T) == 2)
            return with_constant<7, 8, 9, 10, 11, 12>(chunks, launch_chunks);
        else
            return ONS_E_OPERAND;
    });
}

ons_status fused_warp_staged(const launch_request &request) {
    return request.problem->operand[ONS_X].dtype == ONS_FLOAT32 ? launch_rows_of<float>(request)
                                                                : launch_rows_of<narrow>(request);
}
