/* launch_divergence.cuh - held rows of a divergence (statistic/divergence.cuh), and the launches of
 * their kernels. Only the two kinds of kl_divergence are held. */
#ifndef ONS_LAUNCH_DIVERGENCE_CUH
#define ONS_LAUNCH_DIVERGENCE_CUH

#include "launch_gradient.cuh"
#include "../statistic/divergence.cuh"

/* contiguous_gradients with the weights in place of y, and the rest in place of dy. x is either of
 * the two. */
template <typename T, alignment ALIGNED>
struct divergence_rows : contiguous_gradients<T, ALIGNED, tiles_of_logits> {
    using base = contiguous_gradients<T, ALIGNED, tiles_of_logits>;
    using Real = typename base::Real;
    static constexpr bool EMPTY_WARPS_LEAVE = true;
    struct arguments : base::arguments {
        ons_loss loss;
    };

    template <typename Row>
    struct row_of_divergence : Row {
        const arguments &args;
        int64_t number; /* among all rows */

        __device__ row_of_divergence(const Row &row, const arguments &args_, int64_t number_)
            : Row(row), args(args_), number(number_) {}
    };

    template <bool CHECK_ROW>
    __device__ __forceinline__ static auto row(const arguments &args, int64_t index) {
        const auto row = base::template row<CHECK_ROW>(args, index);
        return row_of_divergence<std::decay_t<decltype(row)>>(row, args,
                                                              index + args.launch.first_row);
    }
};

/* What a row has beside its elements. */
template <int K, int STRIDE, typename Row, typename Chunk>
class beside_divergence {
    using Real = typename Row::Real;
    static constexpr int V = Row::V;

   public:
    __device__ beside_divergence(const Row &row_, const Chunk &chunk_)
        : row(row_), chunk(chunk_), by(0) {}

    __device__ void read_first() {
        const ons_loss &loss = row.args.loss;
        if (row.N == 0 || !loss.gradient) return; /* N = 0: after the last row */
        by = loss.given ? ((const Real *)loss.given)[row.number * loss.given_step] : (Real)1;
    }
    __device__ void read() const {}

    template <bool STREAM, typename Tile>
    __device__ __forceinline__ void leave(Tile &tile, const divergence_state<Real, Real> &whole,
                                          bool writes) const {
        const ons_loss &loss = row.args.loss;
        if (loss.gradient) store<STREAM>(tile.weights, tile.rest, whole, by * (Real)loss.share);
        if (writes && row.N > 0)
            ((Real *)loss.loss)[row.number] = divergence_of_row<Real>(whole).value();
    }

   private:
    template <bool STREAM, typename Tile>
    __device__ __forceinline__ void store(Tile &weights, Tile &rest,
                                          const divergence_state<Real, Real> &whole,
                                          Real scale) const {
        const bool is_of_rest = row.args.which == ONS_OPERATION_reverse_kl_divergence;
        forget(weights);
        forget(rest);
        if constexpr (Tile::HAS_SMALLEST) {
            if (__all_sync(~0u, is_near_all(weights, whole.m.weights) &&
                                    is_near_all(rest, whole.m.rest))) {
                const quick_gradient_of_divergence gradient(whole, scale);
                if (is_of_rest)
                    store_all<STREAM>([&](int e) {
                        return gradient.of_rest(weights.element(e), rest.element(e));
                    });
                else
                    store_all<STREAM>([&](int e) {
                        return gradient.of_weight(weights.element(e), rest.element(e));
                    });
                return;
            }
            const divergence_of_row<Real> of_row(whole);
            const gradient_of_divergence<Real> gradient(of_row, scale);
            int64_t at = chunk;
            for_each_chunk(weights, rest, [&](const Real(&x)[V], const Real(&other)[V]) {
                row.template store<1, STRIDE, STREAM>(
                    at, [&](int e) { return gradient.element(is_of_rest, x[e], other[e]); }, ~0, 0);
                at += STRIDE;
            });
        } else {
            const divergence_of_row<Real> of_row(whole);
            const gradient_of_divergence<Real> gradient(of_row, scale);
            if (is_of_rest)
                store_all<STREAM>(
                    [&](int e) { return gradient.of_rest(weights.element(e), rest.element(e)); });
            else
                store_all<STREAM>(
                    [&](int e) { return gradient.of_weight(weights.element(e), rest.element(e)); });
        }
    }
    template <bool STREAM, typename Result>
    __device__ __forceinline__ void store_all(const Result &result) const {
        row.template store<K, STRIDE, STREAM>(chunk, result, ~0, 0);
    }

    const Row &row;
    const Chunk chunk;
    Real by;
};

struct divergence_statistic {
    static constexpr bool FILLS_X = false, LEAVES_MORE = true;

    template <int K, int STRIDE, typename Row, typename Chunk>
    __device__ static auto beside(const Row &row, const Chunk &chunk) {
        return beside_divergence<K, STRIDE, Row, Chunk>(row, chunk);
    }
    template <typename Tile>
    __device__ static const Tile &as_held(const Tile &tile) {
        return tile;
    }
    template <typename Tile>
    __device__ static auto part(const Tile &tile) {
        return largest_of_two<typename Tile::Real>{tile.weights.largest(), tile.rest.largest()};
    }
    template <typename Op, typename How, typename Tile, typename Real, int n>
    __device__ __forceinline__ static auto sum(Tile &tile, const largest_of_two<Real> &m,
                                               Real (&)[n]) {
        tile.fill_after_end(m.weights, m.rest);
        return sums_of_tile(tile.weights, tile.rest, m);
    }
    template <typename Op, typename Real>
    __device__ static auto of_row(const divergence_state<Real, Real> &whole) {
        return whole;
    }
};

/* The one operation of kernels with this statistic. */
struct divergence_operation {
    using statistic = divergence_statistic;
    static constexpr bool ONE_A_ROW = false;
};

/* Whether kernels of Ops hold two rows. */
template <typename Ops>
constexpr bool TAKES_TWO_ROWS =
    std::is_same_v<Ops, gradient_operations> || std::is_same_v<Ops, divergence_operation>;

/* divergence.cu: adds up the values of the rows. */
ons_status reduce_divergences(const launch_request &request);

/* The request with the weights in ONS_X and the rest in ONS_GRADIENT. */
class weights_first {
   public:
    explicit weights_first(const launch_request &request)
        : problem(*request.problem), first(request) {
        first.problem = &problem;
        if (problem.operation != ONS_OPERATION_reverse_kl_divergence) return;
        problem.operand[ONS_X] = request.problem->operand[ONS_GRADIENT];
        problem.operand[ONS_GRADIENT] = request.problem->operand[ONS_X];
    }
    const launch_request &request() const { return first; }

   private:
    ons_problem problem;
    launch_request first;
};

/* Calls body(rows_of<Rows>), which launches a kernel of held rows. Then reduces the values. */
template <typename Body>
ons_status with_divergence_rows(const launch_request &request, Body body) {
    const weights_first swapped(request);
    auto of_rows = [&](auto rows) {
        using Rows = decltype(rows);
        return with_contiguous_gradient<typename Rows::base>(swapped.request(), [&](auto base) {
            typename Rows::arguments arguments = {base.arguments, *request.problem->loss};
            /* The arithmetic of a divergence takes as long as its accesses. So 16-bit rows are
             * prefetched even if all are aligned. */
            if (Rows::IS_16_BIT) arguments.ahead = rows_ahead(request);
            return body(rows_of<Rows>{arguments});
        });
    };
    const ons_status status = with_type_up_to_32_bits(request, [&](auto type) {
        using T = decltype(type);
        if constexpr (sizeof(T) == sizeof(float))
            return of_rows(divergence_rows<T, alignment::EITHER>());
        else if (request.plan->all_aligned)
            return of_rows(divergence_rows<T, alignment::ALL>());
        else
            return of_rows(divergence_rows<T, alignment::NOT_ALL>());
    });
    return status == ONS_OK ? reduce_divergences(request) : status;
}

#endif
