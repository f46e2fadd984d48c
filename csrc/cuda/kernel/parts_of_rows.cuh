/* parts_of_rows.cuh - shared by the kernels whose blocks have parts of rows (split, gradient_split,
 * digits). `parts` blocks share a strip of Form::ROWS rows. All these rows are cut in the same
 * way. The first kernel writes the sum or the pair of each part to the workspace. Part p of row r
 * of strip s is number (s * parts + p) * Form::ROWS + r. If the caller gives the sums of whole
 * rows, the first kernel does not run: another kernel copies them, a thread a row. A later kernel
 * merges the parts of a row. */
#ifndef ONS_PARTS_OF_ROWS_CUH
#define ONS_PARTS_OF_ROWS_CUH

#include "../rows/address.cuh"
#include "../statistic/pair.cuh"
#include "../statistic/sum_in_double.cuh"
#include "passes.cuh"

/* A block's part of its strip's rows. */
template <typename Rows, typename Form>
struct part_of_rows {
    int64_t strip, begin, end; /* chunks `begin` to `end` */

    __device__ part_of_rows(const typename Rows::arguments &args, int parts, int64_t chunks_a_part)
        : strip(blockIdx.x / parts), begin(blockIdx.x % parts * chunks_a_part) {
        const int64_t chunks = (args.N + Rows::V - 1) / Rows::V;
        end = begin + chunks_a_part < chunks ? begin + chunks_a_part : chunks;
    }

    /* This thread's row: its number in this launch, and the row. */
    __device__ int64_t index() const { return strip * Form::ROWS + Form::row(); }
    __device__ auto row(const typename Rows::arguments &args) const {
        return Rows::template row<(Form::ROWS > 1)>(args, index());
    }

    /* The sums of this strip. `all` has `a_row` sums a row. */
    template <typename T>
    __device__ T *of_strip(T *all, const typename Rows::arguments &args, int a_row) const {
        return all + (args.launch.first_row + strip * Form::ROWS) * a_row;
    }
    /* The sum of this thread's row in this part. `all` has the sums of all parts. */
    template <typename T>
    __device__ static T *of_part(T *all, const typename Rows::arguments &args, int parts) {
        return all + args.launch.first_row * parts + (int64_t)blockIdx.x * Form::ROWS + Form::row();
    }
};

/* ------- Kernels in which a thread takes a row ------- */

constexpr int THREAD_A_ROW_THREADS = 128;

/* Calls visit(row) with each row of the problem. */
template <typename Visit>
__device__ inline void for_each_row(const problem_arguments &args, Visit visit) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; row < args.rows; row += step)
        visit(row);
}

/* Launches a kernel that calls for_each_row. */
template <typename... Parameters, typename... Arguments>
ons_status launch_thread_a_row(const launch_request &request,
                               void (*kernel)(problem_arguments, Parameters...),
                               const Arguments &...arguments) {
    constexpr int64_t THREADS = THREAD_A_ROW_THREADS, MAX_BLOCKS = 1 << 16;
    const int64_t blocks = (request.plan->rows + THREADS - 1) / THREADS;
    return launch(request, {blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS, THREADS}, kernel,
                  as_it_is(request), arguments...);
}

/* The sums of a row's parts, merged in the order of the parts. */
template <typename T, typename Merge>
__device__ inline T merged_parts(const T *of_parts, int64_t row, int parts, int width,
                                 Merge merge) {
    const T *of_row = of_parts + row / width * parts * width + row % width;
    T all = of_row[0];
#pragma unroll 1
    for (int part = 1; part < parts; part++) all = merge(all, of_row[part * width]);
    return all;
}

/* Converts the sum that a caller gives for a row. */
template <typename Real>
__device__ inline void take_given(const char *at, state<Real> *to) {
    *to = state_of<Real>(*(const ons_pair *)at);
}
template <typename Real>
__device__ inline void take_given(const char *at, sum_in_double<Real> *to) {
    *to = sum_in_double<Real>::from((const double *)at);
}
template <typename Sum>
__global__ void __launch_bounds__(THREAD_A_ROW_THREADS)
    take_given_kernel(const __grid_constant__ problem_arguments args, Sum *sums) {
    await_earlier_work();
    for_each_row(args, [&](int64_t row) {
        take_given(row_address(args, row, ONS_STATISTIC).x, sums + row);
    });
}

inline bool has_given(const launch_request &request) {
    return request.problem->operand[ONS_STATISTIC].data;
}

/* Launches the first kernel, or the kernel that copies given sums. Launches neither if the caller
 * only asks for the facts of the last kernel. */
template <typename Arguments, typename Sum>
ons_status launch_sums(const launch_request &request, const launch_shape &shape,
                       void (*kernel)(Arguments, int, int64_t, Sum *), const Arguments &rows,
                       int parts, int64_t chunks_a_part, Sum *sums) {
    if (request.facts) return ONS_OK;
    if (has_given(request)) return launch_thread_a_row(request, take_given_kernel<Sum>, sums);
    return launch_strips(request, shape, kernel, rows, parts, chunks_a_part, sums);
}

#endif
