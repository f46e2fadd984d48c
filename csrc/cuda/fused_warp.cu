/* fused_warp.cu - the row stays in the registers of one warp, or of as few of its lanes as hold it
 * and still read side by side, and a block has several rows. Nothing but shuffles between lanes. In
 * the column form a lane has a whole row: it is neighbouring rows that lie side by side. In packs
 * it has four of them, up to 16 elements of each, and two lanes share longer ones.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at 32 lanes of 8 chunks, of 12
 * in 16 bits; in the column form at one lane.
 *
 * Short rows that are faster taken several together are fused_warp_span.cu's. */
#include "finish.cuh"
#include "launch.cuh"

/* As how many chunks those of each of a warp's lanes are added up, which may have fewer. */
template <int K>
constexpr int CHUNKS_FOR_BITS = ons_chunks_for_bits(K);

template <typename Form, int K, int GROUPS, typename Tile, typename Reference, typename Real, int n>
__device__ __forceinline__ auto exponentiate_as(const Tile &tile, const Reference &to,
                                                Real (&x)[n]) {
    if constexpr (Form::STRIDE == WARP)
        return exponentiate<GROUPS, TURN_BY_TURN, CHUNKS_FOR_BITS<K>>(tile, to, x);
    else
        return exponentiate<GROUPS>(tile, to, x);
}

/* GROUPS: as often the lanes that the row has for its bits share it in fact; these rows are of 16
 * bits, and are short: what is done once a lane costs them more than their elements do. */
template <typename Rows, typename Form, int K, int GROUPS = 1>
__global__ void __launch_bounds__(WARP_ROW_THREADS)
    fused_warp_kernel(const __grid_constant__ typename Rows::arguments of) {
    using Real = typename Rows::Real;
    Rows::template visit<true>(
        of, (int64_t)blockIdx.x * Form::rows() + Form::row(), [&](const auto &row) {
            const int chunk = Form::template chunk<K>();
            auto tile = row.template load<K, Form::STRIDE>(chunk);
            Real x[K * Rows::V];
            auto m = Form::max(tile.largest());
            auto d = Form::normalizer(exponentiate_as<Form, K, GROUPS>(tile, reference(m), x));
            softmax_finish finish(state{m, d});
            finish(x);
            row.template store<K, Form::STRIDE, false>(chunk, x, tile.kept());
        });
}

ons_status ons_cuda_fused_warp(const launch_request &request) {
    const ons_plan *plan = request.plan;
    if (plan->in_spans) return fused_warp_span(request);
    return with_rows_or_packs(request, [&](auto rows, auto is_columns) {
        using Rows = typename decltype(rows)::Rows;
        auto launch_with = [&](auto kernel) {
            return launch_panels(request, {1, plan->threads}, kernel, rows.arguments);
        };
        int lanes = plan->threads / (int)plan->width, chunks = plan->elements_a_thread / Rows::V;
        if constexpr (is_packed<decltype(is_columns)>)
            return with_constant<4, 8, 16, 32>((int)plan->tile, [&](auto N) {
                constexpr int ALONG = decltype(N)::value > PACKS_A_LANE ? 2 : 1;
                return launch_with(fused_warp_kernel<Rows, warp_of_packs<Rows::C, ALONG>,
                                                     decltype(N)::value / ALONG>);
            });
        else if constexpr (decltype(is_columns)::value)
            return with_constant<1, 2, 4, 8>(chunks, [&](auto K) {
                return launch_with(fused_warp_kernel<Rows, lanes_a_row<1>, decltype(K)::value>);
            });
        else if (lanes == WARP) {
            auto launch_chunks = [&](auto K) {
                return launch_with(fused_warp_kernel<Rows, lanes_a_row<WARP>, decltype(K)::value>);
            };
            if constexpr (Rows::NARROW)
                return with_constant<3, 4, 6, 8, 10, 12>(chunks, launch_chunks);
            else
                return with_constant<2, 3, 4, 6, 8>(chunks, launch_chunks);
        } else if (chunks == 1)
            return with_constant<1, 2>(lanes, [&](auto L) {
                return launch_with(fused_warp_kernel<Rows, lanes_a_row<decltype(L)::value>, 1>);
            });
        else if constexpr (Rows::NARROW)
            return with_constant<1, 2, 4, 8, 16>(lanes, [&](auto L) {
                using Form = lanes_a_row<decltype(L)::value>;
                auto launch_chunks = [&](auto K) {
                    return launch_with(fused_warp_kernel<Rows, Form, decltype(K)::value, 2>);
                };
                if constexpr (decltype(L)::value == WARP / 2)
                    return with_constant<3, 4, 5, 6, 7>(chunks, launch_chunks);
                else
                    return with_constant<3, 4>(chunks, launch_chunks);
            });
        else
            return with_constant<2, 4, 8, 16>(lanes, [&](auto L) {
                return launch_with(
                    fused_warp_kernel<Rows, lanes_a_row<decltype(L)::value>, FEW_WARP_CHUNKS>);
            });
    });
}
