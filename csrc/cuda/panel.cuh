/* panel.cuh - the columns of a panel, held by the warps of a block or a cluster: each lane has the
 * state of a part of one column (Form::own). All parts of a column meet in one place, where a few
 * lanes merge them and make of them what every thread that has elements of the column needs. */
#ifndef ONS_PANEL_CUH
#define ONS_PANEL_CUH

#include "arrivals.cuh"
#include "finish.cuh"

/* How far apart the parts of two columns lie: odd, so that a warp writes to all banks. */
__host__ __device__ constexpr int column_stride(int parts) { return parts | 1; }

/* In the shared memory of a block that has all of a panel. */
template <typename Real, int WARPS>
struct panel_of_block {
    divisor<Real> divisors[WARP];
    state<Real> parts[WARP * column_stride(WARPS)];

    /* The divisors of this thread's columns. To be called by the whole block, once. */
    template <typename Form, typename M, typename D>
    __device__ auto merge(const M &m, const D &d) {
        const int warps = warps_of_block(), stride = column_stride(warps);
        parts[Form::own_column() * stride + warp_of_block()] = Form::own(m, d);
        __syncthreads();
        merge_columns<true>(parts, warps, 1, stride,
                            [&](int column, int lane, const state<Real> &all) {
                                if (lane == 0) divisors[column] = divisor<Real>(all);
                            });
        __syncthreads();
        return Form::of_thread(divisors);
    }
};

/* In the shared memory of each block of a cluster that has a panel: the divisors of its columns,
 * their parts by block, and those of this block by warp. */
template <typename Real>
__host__ __device__ constexpr int panel_bytes(int blocks, int warps) {
    return WARP * (int)(sizeof(divisor<Real>) +
                        (column_stride(blocks) + column_stride(warps)) * sizeof(state<Real>));
}

#if __CUDA_ARCH__ >= 900

/* The divisors of this thread's columns: each block merges what its warps have, and sends it to all
 * blocks. To be called by the whole cluster, once; `shared` is as panel_bytes says. */
template <typename Form, typename Real, typename M, typename D>
__device__ auto merge_cluster(unsigned char *shared, arrivals &arrived, const M &m, const D &d) {
    const int blocks = cluster_size(), rank = cluster_rank(), warps = warps_of_block();
    const int by_block = column_stride(blocks), by_warp = column_stride(warps);
    auto *divisors = (divisor<Real> *)shared;
    auto *of_blocks = (state<Real> *)(divisors + WARP), *of_warps = of_blocks + WARP * by_block;
    of_warps[Form::own_column() * by_warp + warp_of_block()] = Form::own(m, d);
    arrivals::await_ready();
    arrived.announce(WARP * blocks * sizeof(state<Real>));
    __syncthreads();
    merge_columns<true>(of_warps, warps, 1, by_warp,
                        [&](int column, int lane, const state<Real> &mine) {
                            for (int to = lane; to < blocks; to += MERGERS)
                                arrived.send(of_blocks + column * by_block + rank, to, mine);
                        });
    arrived.await();
    merge_columns<true>(of_blocks, blocks, 1, by_block,
                        [&](int column, int lane, const state<Real> &all) {
                            if (lane == 0) divisors[column] = divisor<Real>(all);
                        });
    __syncthreads();
    return Form::of_thread(divisors);
}

#endif

#endif
