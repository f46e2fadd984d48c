/* strips_of_columns.cuh - the teams of a strip of columns, which the warps of a block or a cluster
 * hold. Each lane has the state of a part of one column (Form::own). A few lanes merge all parts of
 * a column, and compute from them what each thread with elements of the column needs. */
#ifndef ONS_STRIP_CUH
#define ONS_STRIP_CUH

#include "cluster.cuh"
#include "forms.cuh"

/* Distance between the parts of two columns. It is odd, so that a warp writes to all banks. */
__host__ __device__ constexpr int column_stride(int parts) { return parts | 1; }

/* merge_strip (forms.cuh) for parts that are held in registers, like merge_held_by_warp. Part p of
 * row r is parts[r * next + p]. Lanes after the last row repeat it, so that whole warps vote. */
template <typename Real, typename Take>
__device__ inline void merge_held_strip(const state<Real> *parts, int rows, int count, int next,
                                        Take take) {
    using A = arithmetic<Real>;
    const int end = (rows * MERGERS + WARP - 1) / WARP * WARP;
#pragma unroll 1
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        const int row = min(i / MERGERS, rows - 1), lane = i % MERGERS;
        const state<Real> *const of_row = parts + row * next;
        const state<Real> first = lane < count ? of_row[lane] : empty_state<Real>();
        Real m = first.m;
        bool ordinary = is_ordinary(m) || m == -A::infinity();
#pragma unroll 1
        for (int part = lane + MERGERS; part < count; part += MERGERS) {
            const Real one = of_row[part].m;
            ordinary = ordinary && (is_ordinary(one) || one == -A::infinity());
            m = larger(m, one);
        }
        m = max_over_lanes<MERGERS>(m);
        Real d = 0;
        if constexpr (sizeof(Real) == sizeof(float)) {
            const unsigned lanes = ((1u << MERGERS) - 1) << (threadIdx.x % WARP - lane);
            ordinary = (__ballot_sync(~0u, ordinary && is_ordinary(m)) & lanes) == lanes;
            const Real biased_c = A::biased_c(m);
            auto moved = [&](const state<Real> &one) {
                return ordinary ? one.d * A::power(A::difference(A::biased_c(one.m), biased_c) -
                                                   MERGE_SHIFT)
                                : 0;
            };
            fixed_sum sum;
            sum.add(moved(first));
#pragma unroll 1
            for (int part = lane + MERGERS; part < count; part += MERGERS)
                sum.add(moved(of_row[part]));
            d = sum.over_lanes<MERGERS>().value() * A::power(MERGE_SHIFT);
        } else {
            ordinary = false;
        }
        if (!__all_sync(~0u, ordinary)) {
            const Real other = merge_long(of_row, lane, count, 1, m);
            if (!ordinary) d = other;
        }
        if (i < rows * MERGERS) take(row, lane, state<Real>{m, d});
    }
}

/* Base of the teams of a strip. Form is block_of_columns or block_of_packs. The lanes of a warp
 * that have elements of the same columns are near each other. */
template <typename Form>
struct strip {
    static constexpr int STRIDE = Form::STRIDE;
    static constexpr bool CHECK_ROW = true, ONE_REFERENCE = false, FETCHES = false, STREAM = true;
    using sums = in_a_tree_of_column;

    __device__ static bool leaves() { return false; }
    template <typename Part>
    __device__ static auto near(const Part &mine) {
        return Form::near(mine);
    }
};

/* A block of at most WARPS warps has the whole strip. */
template <typename Form, typename Real, int WARPS>
struct strip_of_block : strip<Form> {
    template <typename Arguments>
    __device__ explicit strip_of_block(const Arguments &) {}
    __device__ static int64_t row() { return (int64_t)blockIdx.x * Form::ROWS + Form::row(); }
    template <int K>
    __device__ static int chunk() {
        return Form::template chunk<K>(warp_of_block());
    }
    __device__ static bool writes() { return warp_of_block() == 0; }

    template <typename M, typename Make>
    __device__ static auto far(const M &m, Real d, Make make) {
        using Made = decltype(make(state<Real>()));
        memory &shared = shared_memory();
        Made *const made = (Made *)shared.made;
        const int warps = warps_of_block(), stride = column_stride(warps);
        shared.parts[Form::own_column() * stride + warp_of_block()] = Form::own(m, d);
        __syncthreads();
        merge_held_strip(shared.parts, WARP, warps, stride,
                         [&](int column, int lane, const state<Real> &all) {
                             if (lane == 0) made[column] = make(all);
                         });
        __syncthreads();
        return Form::of_thread(made);
    }

    template <typename Make>
    __device__ static auto far(nothing, sum_in_double<Real> mine, Make make) {
        sum_in_double<Real> *const parts = shared_sums();
        if (blockDim.x == WARP) return make(Form::of_columns(mine));
        parts[warp_of_block() * Form::ROWS + Form::own_column()] = mine;
        __syncthreads();
        sum_in_double<Real> sum;
        for (int warp = 0; warp < warps_of_block(); warp++)
            sum.add(parts[warp * Form::ROWS + Form::own_column()]);
        return make(Form::of_columns(sum));
    }

   private:
    struct memory {
        row_constants<Real> made[WARP];
        state<Real> parts[WARP * column_stride(WARPS)];
    };
    /* All operations of a kernel share it. */
    __device__ static memory &shared_memory() {
        __shared__ memory shared;
        return shared;
    }
    __device__ static sum_in_double<Real> *shared_sums() {
        __shared__ sum_in_double<Real> sums[WARPS * Form::ROWS];
        return sums;
    }
};

/* In a cluster of few blocks, each block merges its own part of every column and sends it to all.
 * In a larger cluster, all parts of a column go to one block, which sends the result to all. That
 * takes two exchanges, but less merging. The choice depends only on the row's length. */
__host__ __device__ constexpr bool are_few(int blocks) { return blocks <= MERGERS; }

/* Bytes of shared memory of a strip in each block: the constants of its columns, then states. */
template <typename Real>
constexpr int strip_bytes(int blocks, int warps) {
    const int shared_out = (WARP + blocks - 1) / blocks * column_stride(blocks * warps);
    const int states =
        are_few(blocks) ? WARP * (column_stride(blocks) + column_stride(warps)) : shared_out;
    return WARP * (int)sizeof(row_constants<Real>) + states * (int)sizeof(state<Real>);
}

/* Bytes of shared memory of a strip of sums in each block: for each column, the sum of each block,
 * and the sum of each warp of this block. */
template <typename Real>
constexpr int strip_bytes_of_sums(int blocks, int warps) {
    return WARP * (column_stride(blocks) + column_stride(warps)) * (int)sizeof(sum_in_double<Real>);
}

#if __CUDA_ARCH__ >= 900

template <typename Form, typename Real>
class strip_of_cluster : public strip<Form> {
   public:
    __device__ strip_of_cluster(unsigned char *shared, arrivals &arrived_, arrivals &answered_)
        : made(shared),
          states((state<Real> *)(shared + WARP * sizeof(row_constants<Real>))),
          arrived(arrived_),
          answered(answered_) {
        arrived.make_ready();
        answered.make_ready();
        arrivals::say_ready();
    }

    /* Both are read anew at each use. */
    struct index_of_row {
        __device__ operator int64_t() const {
            return (int64_t)cluster_index() * Form::ROWS + Form::row();
        }
    };
    template <int K>
    struct index_of_chunk {
        __device__ operator int64_t() const { return Form::template chunk<K>(warp_of_cluster()); }
    };
    __device__ static index_of_row row() { return {}; }
    template <int K>
    __device__ static index_of_chunk<K> chunk() {
        return {};
    }
    __device__ static bool writes() { return warp_of_cluster() == 0; }

    /* The whole cluster must call it, once. */
    template <typename M, typename Make>
    __device__ auto far(const M &m, Real d, Make make) {
        using Made = decltype(make(state<Real>()));
        const int blocks = cluster_size();
        if (are_few(blocks))
            merge_all(blocks, Form::own_column(), Form::own(m, d), (Made *)made, make);
        else
            merge_share(blocks, Form::own_column(), Form::own(m, d), (Made *)made, make);
        return Form::of_thread((const Made *)made);
    }

    /* Each block adds up its part of every column and sends it to all blocks. The whole cluster
     * must call it, once. */
    template <typename Make>
    __device__ auto far(nothing, const sum_in_double<Real> &mine, Make make) {
        using Sum = sum_in_double<Real>;
        const int blocks = cluster_size(), warps = warps_of_block(), column = Form::own_column();
        const int by_block = column_stride(blocks), by_warp = column_stride(warps);
        Sum *const of_blocks = (Sum *)made, *const of_warps = of_blocks + WARP * by_block;
        auto add_up = [](const Sum *parts, int count) {
            Sum sum;
#pragma unroll 1
            for (int i = 0; i < count; i++) sum.add(parts[i]);
            return sum;
        };
        of_warps[column * by_warp + warp_of_block()] = mine;
        arrivals::await_ready();
        arrived.announce(WARP * blocks * sizeof(Sum));
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < WARP * blocks; i += blockDim.x)
            arrived.send(of_blocks + i % WARP * by_block + cluster_rank(), i / WARP,
                         add_up(of_warps + i % WARP * by_warp, warps));
        arrived.await();
        return make(Form::of_columns(add_up(of_blocks + column * by_block, blocks)));
    }

   private:
    template <typename Made, typename Make>
    __device__ void merge_all(int blocks, int column, const state<Real> &own, Made *of_columns,
                              Make make) {
        const int rank = cluster_rank(), warps = warps_of_block();
        const int by_block = column_stride(blocks), by_warp = column_stride(warps);
        state<Real> *of_warps = states + WARP * by_block;
        of_warps[column * by_warp + warp_of_block()] = own;
        arrivals::await_ready();
        arrived.announce(WARP * blocks * sizeof(state<Real>));
        __syncthreads();
        merge_held_strip(of_warps, WARP, warps, by_warp,
                         [&](int owner, int lane, const state<Real> &mine) {
                             if (lane < blocks)
                                 arrived.send(states + owner * by_block + rank, lane, mine);
                         });
        arrived.await();
        merge_held_strip(states, WARP, blocks, by_block,
                         [&](int owner, int lane, const state<Real> &all) {
                             if (lane == 0) of_columns[owner] = make(all);
                         });
        __syncthreads();
    }

    /* Block c % blocks merges column c, by its warp c / blocks % warps. */
    template <typename Made, typename Make>
    __device__ void merge_share(int blocks, int column, const state<Real> &own, Made *of_columns,
                                Make make) {
        const int rank = cluster_rank(), warps = warps_of_block(), count = blocks * warps;
        const int stride = column_stride(count);
        const float inverse = __fdividef(1, blocks);
        auto place_of = [&](int owner) { return (int)(((float)owner + 0.5f) * inverse); };
        const int columns = place_of(WARP - 1 - rank) + 1, place = place_of(column);
        arrivals::await_ready();
        arrived.announce(columns * count * sizeof(state<Real>));
        answered.announce(WARP * sizeof(Made));
        arrived.send(states + place * stride + rank * warps + warp_of_block(),
                     column - place * blocks, own);
        arrived.await();
#pragma unroll 1
        for (int owner = warp_of_block(); owner < columns; owner += warps) {
            const Made of_column = make(merge_held_by_warp(states + owner * stride, count));
            const int to = threadIdx.x % WARP;
            if (to < blocks) answered.send(of_columns + owner * blocks + rank, to, of_column);
        }
        answered.await();
    }

    unsigned char *made;
    state<Real> *states;
    arrivals &arrived, &answered; /* count states, and results */
};

#endif

#endif
