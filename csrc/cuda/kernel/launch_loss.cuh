/* launch_loss.cuh - the rows of a loss whose kernel finds the loss and the gradient at once, and
 * the launches around this kernel. */
#ifndef ONS_LAUNCH_LOSS_CUH
#define ONS_LAUNCH_LOSS_CUH

#include "launch_rows.cuh"
#include "loss_gradient.cuh"

/* contiguous_rows with the terms of a loss. */
template <typename X, alignment ALIGNED>
struct loss_rows : contiguous_rows<X, ALIGNED> {
    using base = contiguous_rows<X, ALIGNED>;
    struct arguments : base::arguments {
        ons_loss loss;
    };

    template <typename Index>
    using pointers = typename base::template pointers<Index, X>;

    template <typename Index>
    struct row_of_loss : row_without_gaps<ALIGNED, X, X, pointers<Index>> {
        using Own = row_without_gaps<ALIGNED, X, X, pointers<Index>>;
        using Real = typename base::Real;
        static constexpr bool IS_16_BIT = base::IS_16_BIT;

        __device__ row_of_loss(const arguments &args_, Index index_, int64_t N)
            : Own(pointers<Index>(args_, index_), N), args(args_), index(index_) {}
        __device__ const ons_loss &loss() const { return args.loss; }
        /* The row's number among all rows, and an element of it. */
        __device__ int64_t number() const { return index + args.launch.first_row; }
        __device__ Real element(int64_t j) const {
            const X *at = args.x + number() * args.x_pitch + j;
            return args.format.with(
                [&](auto type) { return to_real<Real>(*(const decltype(type) *)at); });
        }

       private:
        const arguments &args;
        Index index;
    };

    template <bool CHECK_ROW, typename Index>
    __device__ __forceinline__ static auto row(const arguments &args, Index index) {
        return row_of_loss<Index>(
            args, index, CHECK_ROW && index + args.launch.first_row >= args.rows ? 0 : args.N);
    }
};

template <typename Rows>
struct loss_rows_of_;
template <typename X, alignment ALIGNED>
struct loss_rows_of_<contiguous_rows<X, ALIGNED>> {
    using type = loss_rows<X, ALIGNED>;
};
template <typename Rows>
using loss_rows_of = typename loss_rows_of_<Rows>::type;

/* loss.cu: the divisor of a mean, before the kernel, and the reduced loss, after it. */
ons_status find_divisor(const launch_request &request);
ons_status reduce_losses(const launch_request &request, bool finds_divisor);

/* Calls body(rows_of<Rows>), which launches the kernel, between these two. */
template <ons_family FAMILY, typename Body>
ons_status with_loss_rows(const launch_request &request, Body body) {
    const ons_problem *problem = request.problem;
    auto launch_with = [&]([[maybe_unused]] auto ops, auto rows) {
        using base = typename decltype(rows)::Rows;
        return body(rows_of<loss_rows_of<base>>{{rows.arguments, *problem->loss}});
    };
    ons_status status = find_divisor(request);
    if (status != ONS_OK) return status;
    status = problem->operand[ONS_X].dtype == ONS_FLOAT32
                 ? with_contiguous<FAMILY, row_shaped, float>(request, launch_with)
                 : with_contiguous<FAMILY, row_shaped, any_16_bit>(request, launch_with);
    return status == ONS_OK ? reduce_losses(request, false) : status;
}

#endif
