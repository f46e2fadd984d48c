/* cluster_smem.cu - cluster, for longer rows without gaps. Each block has a multiprocessor to
 * itself, since two such clusters would need too many registers to share multiprocessors. A warp
 * keeps the exponentials of its first tiles in registers and the others in shared memory. Bulk
 * copies bring the next row's elements to shared memory while this row's state is exchanged and its
 * results are written (rows/smem.cuh). Each cluster takes one row after the other.
 *
 * Moves 1 read + 1 write of N; one exponential an element. Stops at MAX_SMEM_TILES tiles a warp in
 * shared memory. */
#include "driver/device.cuh"
#include "kernel/passes.cuh"
#include "rows/smem.cuh"

#if __CUDA_ARCH__ >= 900

/* A warp's exponentials of one slot. */
template <typename Real, int CHUNKS>
struct smem_slot {
    static constexpr int V = CHUNK<Real>;
    pack<Real, V> chunk[CHUNKS][WARP];

    /* Writes chunks from `first` on. */
    template <int n>
    __device__ void put(int first, const Real (&x)[n]) {
        pack<Real, V> some[n / V];
        round_to_packs(x, some, element_format<Real>());
#pragma unroll
        for (int k = 0; k < n / V; k++) chunk[first + k][threadIdx.x % WARP] = some[k];
    }

    __device__ void get(Real (&x)[CHUNKS * V]) const {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const pack<Real, V> some = chunk[k][threadIdx.x % WARP];
#pragma unroll
            for (int i = 0; i < V; i++) x[k * V + i] = some.real(i);
        }
    }
};

/* One row. merge(the state of the warp's part) returns the state of the row. */
template <typename Ops, typename Rows_in_smem, typename Row, typename Real, typename Merge>
__device__ __forceinline__ void hold_row(ons_operation operation, const Row &row,
                                         Rows_in_smem &elements, const tiles_of_warp &share,
                                         smem_slot<Real, Rows_in_smem::CHUNKS> *held, Merge merge) {
    using Form = block_a_row;
    constexpr int V = CHUNK<Real>, CHUNKS = Rows_in_smem::CHUNKS, SLOTS = Rows_in_smem::SLOTS;
    const int lane = threadIdx.x % WARP, slots = (share.tiles - REGISTER_TILES) * SLOTS;
    auto begin_of = [&](int slot) {
        return share.begin(REGISTER_TILES + slot / SLOTS) + slot % SLOTS * (CHUNKS * WARP);
    };
    auto keep = [&](const auto &tile, const reference<Real> &to, auto &to_keep) {
        lifted_sum<Real> sum = {};
        with_operation<Ops>(operation,
                            [&](auto op) { sum = keep_and_sum<decltype(op)>(tile, to, to_keep); });
        return sum;
    };
    Real x[CLUSTER_CHUNKS * V];
    auto kept = elements.register_tiles();
    running_state<Real> so_far;
    Real m = so_far.m = max_over_lanes<WARP>(kept.largest()); /* the maximum that x is relative
                                                               * to */
    so_far.sum.d = keep(kept, reference<Real>(m), x).value();
    Real m_of_slot = m;            /* lane i: the maximum that held[i] is relative to */
    lifted_sum<Real> of_tile = {}; /* sum of a tile's slots so far; so_far gets whole tiles */
#pragma unroll 1
    for (int slot = 0; slot < slots; slot++) {
        const auto tile = elements.next(begin_of(slot));
        const Real largest = larger(so_far.m, max_over_lanes<WARP>(tile.largest()));
        if (largest != so_far.m) {
            if constexpr (SLOTS > 1) of_tile.d *= rescale(so_far.m, largest);
            so_far.raise(largest);
        }
        const reference<Real> to(largest);
#pragma unroll
        for (int k = 0; k < CHUNKS; k += TILE_CHUNKS) { /* all at once would take more registers */
            Real some[TILE<Real>];
            const auto part = converted(tile.template part<TILE_CHUNKS>(k));
            of_tile += keep(part, to, some);
            held[slot].put(k, some);
        }
        if (slot % SLOTS == SLOTS - 1) {
            so_far.sum.add(of_tile.value());
            of_tile = {};
        }
        if (lane == slot) m_of_slot = largest;
    }
    const state<Real> total = merge(Form::merge_warp(so_far.rounded()));

    const Real excluded = finish_kept<Ops, Real>(operation, x, m, total);
    row.template store<CLUSTER_CHUNKS, WARP, true>(share.begin(0) + lane, x, 0, excluded);
#pragma unroll 1
    for (int slot = 0; slot < slots; slot++) {
        Real some[CHUNKS * V];
        held[slot].get(some);
        finish_kept<Ops, Real>(operation, some, __shfl_sync(~0u, m_of_slot, slot), total);
        row.template store<CHUNKS, WARP, true>(begin_of(slot) + lane, some, 0, excluded);
    }
}

/* The first warp waits for all other warps of the block; these do not wait. Returns whether this is
 * the first warp. */
__device__ inline bool first_awaits_block() {
    const bool first = warp_of_block() == 0;
    __syncwarp();
    if (first)
        asm volatile("barrier.sync 1, %0;" ::"n"((int)SMEM_THREADS) : "memory");
    else
        asm volatile("barrier.arrive 1, %0;" ::"n"((int)SMEM_THREADS) : "memory");
    return first;
}

#endif

template <typename Ops, typename Rows>
__global__ void __launch_bounds__(SMEM_THREADS, 1)
    cluster_smem_kernel(const __grid_constant__ typename Rows::arguments args, int slots,
                        int smem_tiles) {
#if __CUDA_ARCH__ >= 900
    using Real = typename Rows::Real;
    using Rows_in_smem = rows_in_smem<Rows>;
    constexpr int SMEM_TILE_BYTES = SMEM_TILE * 16;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ arrivals arrived[2];
    __shared__ uint64_t barriers[SMEM_THREADS / WARP * MAX_SLOTS];
    static_assert(sizeof arrived + sizeof barriers <= SMEM_BESIDES);
    const int blocks = cluster_size(), step = gridDim.x / blocks;
    const tiles_of_warp share((int)((args.N + Rows::V - 1) / Rows::V), cluster_rank(), blocks);
    /* states of the cluster's blocks and of this block's warps, each for even rows and for odd
     * rows */
    auto *parts = (state<Real> *)shared, *parts_of_block = parts + 2 * blocks;
    unsigned char *memory = (unsigned char *)(parts_of_block + 2 * warps_of_block()) +
                            warp_of_block() * (smem_tiles * SMEM_TILE_BYTES + slots * SLOT_ROOM);
    auto *held = (smem_slot<Real, Rows_in_smem::CHUNKS> *)memory;
    arrived[0].make_ready();
    arrived[1].make_ready();
    arrivals::say_ready();
    await_earlier_work();
    int row_number = blockIdx.x / blocks;
    Rows_in_smem elements(args, share, memory + smem_tiles * SMEM_TILE_BYTES,
                          barriers + warp_of_block() * MAX_SLOTS, slots, row_number, step);
    arrivals::await_ready();
    for (int turn = 0; row_number < args.rows; row_number += step, turn++) {
        const auto row = elements.enter(row_number);
        hold_row<Ops>(args.operation(), row, elements, share, held, [&](state<Real> mine) {
            /* A block that is one row ahead sends to the other half of the parts. No block can be
             * two rows ahead, since each waits for all. */
            arrivals &arriving = arrived[turn % 2];
            state<Real> *of_row = parts + turn % 2 * blocks;
            state<Real> *of_block = parts_of_block + turn % 2 * warps_of_block();
            arriving.announce(blocks * sizeof(state<Real>));
            if (block_a_row::writes()) of_block[warp_of_block()] = mine;
            if (first_awaits_block()) {
                mine = block_a_row::merge_parts(of_block, warps_of_block());
                if (threadIdx.x % WARP < blocks)
                    arriving.send(of_row + cluster_rank(), threadIdx.x % WARP, mine);
            }
            arriving.await(turn / 2 % 2);
            return block_a_row::merge_parts(of_row, blocks);
        });
    }
#endif
}

template <typename Ops, typename X, alignment ALIGNED>
static ons_status launch_smem(const launch_request &request,
                              const rows_of<contiguous_rows<X, ALIGNED>> &rows) {
    using Rows = contiguous_rows<X, ALIGNED>;
    const ons_plan *plan = request.plan;
    launch_shape shape = {plan->clusters * plan->blocks_a_row, plan->threads};
    shape.cluster = (int)plan->blocks_a_row;
    shape.shared_bytes = (int)ons_smem_bytes(plan->blocks_a_row, sizeof(typename Rows::Real),
                                             plan->smem_tiles, plan->slots) -
                         SMEM_BESIDES;
    return launch(request, shape, cluster_smem_kernel<Ops, Rows>, rows.arguments, plan->slots,
                  plan->smem_tiles);
}

ons_status launch_cluster_smem(const launch_request &request) {
    return with_rows<ONS_FAMILY_cluster_smem>(
        request, [&](auto ops, auto rows) { return launch_smem<decltype(ops)>(request, rows); });
}

int smem_clusters(int blocks, int shared_bytes) {
    return active_clusters(
        (const void *)cluster_smem_kernel<row_shaped, contiguous_rows<float, alignment::ALL>>,
        blocks, SMEM_THREADS, shared_bytes - SMEM_BESIDES);
}
