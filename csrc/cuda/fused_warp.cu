/* fused_warp.cu - the row stays in the registers of one warp, or of a few of its lanes, and a block
 * has several rows; in the column form a lane has a whole row. Nothing but shuffles between lanes.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at 32 lanes of WARP_CHUNKS chunks.
 */
#include "finish.cuh"
#include "launch.cuh"

enum { WARP_ROW_THREADS = 256 };

template <typename Rows, typename Form, int K>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    fused_warp_kernel(const __grid_constant__ typename Rows::arguments of, int lanes) {
    using Real = typename Rows::Real;
    Form form(lanes);
    Rows row(of, (int64_t)blockIdx.x * form.rows + form.row);
    Real x[K * Rows::V];
    unsigned keep = row.template load<K, Form::STRIDE>(form.chunk(), x);
    Real m = form.max(largest(x));
    Real d = form.sum(exponentiate(x, reference<Real>(m))) * arithmetic<Real>::LOWERED;
    softmax_finish<Real> finish(m, {m, d});
    finish(x);
    row.template store<K, Form::STRIDE>(form.chunk(), x, keep);
}

ons_status ons_cuda_fused_warp(const launch_request &request) {
    return with_rows(request, [&](auto rows, auto is_columns) {
        using Rows = typename decltype(rows)::Rows;
        using Form = std::conditional_t<decltype(is_columns)::value, lane_a_row, lanes_a_row>;
        const ons_plan *plan = request.plan;
        int lanes = plan->threads / (int)plan->width;
        return with_chunks<1, 2, 4, 8>(plan->elements_a_thread / Rows::V, [&](auto K) {
            return launch_panels(request, {1, plan->threads},
                                 fused_warp_kernel<Rows, Form, decltype(K)::value>, rows.arguments,
                                 lanes);
        });
    });
}
