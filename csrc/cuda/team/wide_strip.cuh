/* wide_strip.cuh - the team of a wide strip: a block has args.columns columns, often whole narrow
 * slices. Thread t has part t / columns of column t % columns, so a warp may hold threads of two
 * parts. Then one block uses most of each memory line. A thread's part is the part that a warp of
 * strip_of_block has, so the bits are the same. */
#ifndef ONS_WIDE_STRIP_CUH
#define ONS_WIDE_STRIP_CUH

#include "strips_of_columns.cuh"

struct wide {};
template <typename Real, int THREADS>
class wide_strip : public strip<block_of_columns> {
   public:
    template <typename Arguments>
    __device__ explicit wide_strip(const Arguments &args)
        : columns(args.columns),
          parts(((int)args.N + CHUNK<Real> * BLOCK_CHUNKS - 1) / (CHUNK<Real> * BLOCK_CHUNKS)),
          part((int)threadIdx.x / columns),
          column((int)threadIdx.x - part * columns) {}

    __device__ int64_t row() const { return (int64_t)blockIdx.x * columns + column; }
    template <int K>
    __device__ int chunk() const {
        return part * K;
    }
    __device__ bool writes() const { return part == 0; }

    template <typename M, typename Make>
    __device__ auto far(const M &m, Real d, Make make) const {
        using Made = decltype(make(state<Real>()));
        memory &shared = shared_memory();
        Made *const made = (Made *)shared.made;
        const int stride = column_stride(parts);
        if (part < parts) shared.parts[column * stride + part] = block_of_columns::own(m, d);
        __syncthreads();
        merge_held_strip(shared.parts, columns, parts, stride,
                         [&](int one, int lane, const state<Real> &all) {
                             if (lane == 0) made[one] = make(all);
                         });
        __syncthreads();
        return made[column];
    }

    template <typename Make>
    __device__ auto far(nothing, const sum_in_double<Real> &mine, Make make) const {
        sum_in_double<Real> *const sums = shared_sums();
        if (part < parts) sums[part * columns + column] = mine;
        __syncthreads();
        sum_in_double<Real> sum;
        for (int one = 0; one < parts; one++) sum.add(sums[one * columns + column]);
        return make(sum);
    }

   private:
    struct memory {
        row_constants<Real> made[THREADS / 2];
        state<Real> parts[THREADS + THREADS / 2];
    };
    /* All operations of a kernel share both. */
    __device__ static memory &shared_memory() {
        __shared__ memory shared;
        return shared;
    }
    __device__ static sum_in_double<Real> *shared_sums() {
        __shared__ sum_in_double<Real> sums[THREADS];
        return sums;
    }

    const int columns, parts, part, column;
};

#endif
