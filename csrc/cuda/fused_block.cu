/* fused_block.cu - the row stays in the registers of one block. Each warp takes its own maximum and
 * keeps its exponentials relative to it; one exchange of (m, d) through shared memory; then every
 * thread moves its exponentials to the row's reference, an exact power of two.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at Rows::BLOCK_THREADS threads of
 * 8 chunks. */
#include "finish.cuh"
#include "launch.cuh"

template <typename Rows, typename Form, int K>
__global__ void __launch_bounds__(Rows::BLOCK_THREADS, 1)
    fused_block_kernel(const __grid_constant__ typename Rows::arguments of) {
    using Real = typename Rows::Real;
    __shared__ state<Real> parts[Rows::BLOCK_THREADS / WARP * Form::ROWS];
    Rows row(of, (int64_t)blockIdx.x * Form::ROWS + Form::row());
    Real x[K * Rows::V];
    int64_t chunk = Form::template chunk<K>(warp_of_block());
    unsigned keep = row.template load<K, Form::STRIDE>(chunk, x);
    Real m = Form::max(largest(x));
    Real d = Form::sum(exponentiate(x, reference<Real>(m))) * arithmetic<Real>::LOWERED;
    softmax_finish<Real> finish(m, merge_block<Form>(state<Real>{m, d}, parts));
    finish(x);
    row.template store<K, Form::STRIDE>(chunk, x, keep);
}

ons_status ons_cuda_fused_block(const launch_request &request) {
    return with_rows(request, [&](auto rows, auto is_columns) {
        using Rows = typename decltype(rows)::Rows;
        using Form = block_form<decltype(is_columns)>;
        const ons_plan *plan = request.plan;
        return with_chunks<2, 8>(plan->elements_a_thread / Rows::V, [&](auto K) {
            return launch_panels(request, {1, plan->threads},
                                 fused_block_kernel<Rows, Form, decltype(K)::value>,
                                 rows.arguments);
        });
    });
}
