/* gradient_sum.cuh - the statistic of an operation that takes a gradient: the sum of the gradients,
 * or of the products of elements and gradients (sum_in_double.cuh). */
#ifndef ONS_GRADIENT_SUM_CUH
#define ONS_GRADIENT_SUM_CUH

#include "../../api/onsoftmax.h"
#include "operations.cuh"
#include "sum_in_double.cuh"

struct gradient_sum : nothing_beside {
    static constexpr bool FILLS_X = false; /* only the tile is kept */

    template <typename Tile>
    __device__ static const Tile &as_held(const Tile &tile) {
        return tile;
    }
    template <typename Tile>
    __device__ static nothing part(const Tile &) {
        return {};
    }
    template <typename Op, typename How, typename Tile, typename Real, int n>
    __device__ __forceinline__ static auto sum(const Tile &tile, nothing, Real (&)[n]) {
        return tile.template sum<Op, How>();
    }
    template <typename Op, typename Sum>
    __device__ static const Sum &of_row(const Sum &whole) {
        return whole;
    }
    /* The results of the tile's elements (gradient_results). */
    template <typename Op, typename Tile, typename Sum>
    __device__ static auto results(const Tile &tile, const Sum &sum) {
        return tile.template results<Op>(sum);
    }
};

/* ------- The operations: the file of an operation NAME defines a struct NAME here, with
 *
 *   ADDS_PRODUCTS                    whether the row adds up dy * y, or dy
 *   row(sum, power, first, second)   computes the two constants of a row
 *   element(dy, y, first, second, power)   a result times power, a power of two
 *   plain(dy, y, first)              if HAS_PLAIN: the same for power = 1, in fewer instructions.
 *                                    y is at least -LOWER, unless ALWAYS_PLAIN ------- */

#define ONS_OPERATION(name, result, keeps, excluded, summary) \
    struct operation_##name {                                 \
        static constexpr bool ONE_A_ROW = false;              \
        static constexpr bool HAS_PLAIN = false;              \
        static constexpr float EXCLUDED = (float)(excluded);  \
    };
#include "../../op/gradient_and_topk_operations.def"
#undef ONS_OPERATION

#define ONS_OPERATION_ON_CUDA
#include "../../op/gradient_and_topk_operations.def"
#undef ONS_OPERATION_ON_CUDA

#define OF_GRADIENT(code) code
#define OF_TOPK(code)
#define OF_LOSS(code)
#define OF_LOSS_GRADIENT(code)
#define OF_DIVERGENCE(code)
#define OF_ROUTE(code)

struct gradient_operations : several_operations {
    using statistic = gradient_sum;
    static constexpr bool ONE_A_ROW = false;

    template <typename Body>
    __device__ __forceinline__ static void with(ons_operation operation, Body body) {
        switch (operation) {
#define ONS_OPERATION(name, result, keeps, excluded, summary) \
    OF_##result(case ONS_OPERATION_##name : body(name()); break;)
#include "../../op/gradient_and_topk_operations.def"
#undef ONS_OPERATION
        default: __builtin_unreachable();
        }
    }
};

#undef OF_GRADIENT
#undef OF_TOPK
#undef OF_LOSS
#undef OF_LOSS_GRADIENT
#undef OF_DIVERGENCE
#undef OF_ROUTE

#endif
