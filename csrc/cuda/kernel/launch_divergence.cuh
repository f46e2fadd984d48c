/* launch_divergence.cuh - held rows of a divergence (statistic/divergence.cuh), and the launches of
 * their kernels. Only the two kinds of kl_divergence are held. */
#ifndef ONS_LAUNCH_DIVERGENCE_CUH
#define ONS_LAUNCH_DIVERGENCE_CUH

#include "launch_gradient.cuh"
#include "../statistic/divergence.cuh"

/* contiguous_gradients whose y are the weights and whose dy are the rest. x is either. */
template <typename T, alignment ALIGNED>
struct divergence_rows : contiguous_gradients<T, ALIGNED, tile_of_logits> {
    using base = contiguous_gradients<T, ALIGNED, tile_of_logits>;
    using Real = typename base::Real;
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
        return row_of_divergence<std::decay_t<decltype(row)>>(row, args, index + args.first_row);
    }
};

/* What a row has beside its elements. */
template <typename Row>
class beside_divergence {
    using Real = typename Row::Real;

   public:
    __device__ explicit beside_divergence(const Row &row_) : row(row_), by(0) {}

    __device__ void read_first() {
        const ons_loss &loss = row.args.loss;
        if (row.N == 0 || !loss.gradient) return; /* N = 0: after the last row */
        by = loss.given ? ((const Real *)loss.given)[row.number * loss.given_step] : (Real)1;
    }
    __device__ void read() const {}

    template <typename Tile, typename Store>
    __device__ __forceinline__ void leave(Tile &tile,
                                          const divergence_state<Real, Real> &whole, bool writes,
                                          const Store &store) const {
        const ons_loss &loss = row.args.loss;
        const divergence_of_row<Real> of_row(whole);
        if (loss.gradient) {
            forget(tile.weights);
            forget(tile.rest);
            const gradient_of_divergence<Real> gradient(of_row, by * (Real)loss.share);
            if (row.args.which == ONS_OPERATION_kl_divergence)
                store([&](int e) {
                    return gradient.of_weight(tile.weights.element(e), tile.rest.element(e));
                }, 0);
            else
                store([&](int e) {
                    return gradient.of_rest(tile.weights.element(e), tile.rest.element(e));
                }, 0);
        }
        if (writes && row.N > 0)
            ((Real *)loss.loss)[row.number] = of_row.value();
    }

   private:
    const Row &row;
    Real by;
};

struct divergence_statistic {
    static constexpr bool FILLS_X = false, LEAVES_MORE = true;

    template <int K, int STRIDE, typename Row, typename Chunk>
    __device__ static auto beside(const Row &row, const Chunk &) {
        return beside_divergence<Row>(row);
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
            return body(rows_of<Rows>{{base.arguments, *request.problem->loss}});
        });
    };
    auto of_type = [&](auto type) {
        using T = decltype(type);
        if (request.plan->all_aligned) return of_rows(divergence_rows<T, alignment::ALL>());
        return of_rows(divergence_rows<T, alignment::NOT_ALL>());
    };
    ons_status status = ONS_E_OPERAND;
    switch (request.problem->operand[ONS_X].dtype) {
    case ONS_FLOAT16: status = of_type(__half()); break;
    case ONS_BFLOAT16: status = of_type(__nv_bfloat16()); break;
    case ONS_FLOAT32: status = of_rows(divergence_rows<float, alignment::EITHER>()); break;
    default: break;
    }
    return status == ONS_OK ? reduce_divergences(request) : status;
}

#endif
