/* topk/tiles.cuh - the tiles that a block takes of a row or of a part of a row. If the list has no
 * room for the elements that reach a bound, the block lists the k largest elements tile by tile. */
#ifndef ONS_TOPK_TILES_CUH
#define ONS_TOPK_TILES_CUH

#include "launch.cuh"
#include "select.cuh"
#include "state.cuh"

/* Chunks of a thread in a tile. Unaligned 16-bit rows have no registers for more. */
template <typename Rows>
constexpr int CHUNKS_OF = TOPK_TILE_CHUNKS;
template <template <typename, alignment> typename Rows, typename X>
constexpr int CHUNKS_OF<Rows<X, alignment::ALL>> =
    sizeof(X) == 2 ? TOPK_TILE_CHUNKS_16_BIT : TOPK_TILE_CHUNKS;

template <typename Rows>
using tile_of_thread = typename Rows::template tile<CHUNKS_OF<Rows>>;

/* A tile as it is read. Its mask and its scale come later, so that they do not wait for memory. */
template <typename Rows>
struct read_of_thread {
    using type = tile_of_thread<Rows>;
};
template <typename T, alignment ALIGNED>
struct read_of_thread<masked_rows<T, ALIGNED>> {
    using type = unmasked_tile<T, CHUNKS_OF<masked_rows<T, ALIGNED>>>;
};

/* A block's share: a row, or a part of a row. */
template <typename Rows>
struct block_share {
    static constexpr bool HAS_UNMASKED =
        !std::is_same_v<typename read_of_thread<Rows>::type, tile_of_thread<Rows>>;

    using Row = decltype(Rows::template row<false>(topk_arguments<Rows>(), int64_t()));

    int64_t which, row; /* number of the share, and of its row */
    uint32_t begin, end, k;
    Row own;

    __device__ static int64_t row_of(const topk_arguments<Rows> &args, int64_t share) {
        return args.parts > 1 ? share / args.parts : share;
    }
    __device__ explicit block_share(const topk_arguments<Rows> &args)
        : which(blockIdx.x + args.launch.first_row),
          row(row_of(args, which)),
          begin(0),
          end((uint32_t)args.N),
          own(Rows::template row<false>(args, row - args.launch.first_row)) {
        if (args.parts > 1) {
            begin = (uint32_t)((which - row * args.parts) * args.part_length);
            if (end - begin > args.part_length) end = begin + (uint32_t)args.part_length;
        }
        k = end - begin < (uint32_t)args.k ? end - begin : (uint32_t)args.k;
    }

    /* Reads this thread's chunks of a tile, from chunk `chunk` of the row on. */
    __device__ __forceinline__ auto read(uint32_t chunk) const {
        if constexpr (HAS_UNMASKED)
            return own.template read<CHUNKS_OF<Rows>, WARP>(chunk);
        else
            return own.template load<CHUNKS_OF<Rows>, WARP>(chunk);
    }
    /* The tile that was read. */
    __device__ __forceinline__ tile_of_thread<Rows> finish(
        const typename read_of_thread<Rows>::type &tile, uint32_t chunk) const {
        if constexpr (HAS_UNMASKED)
            return own.template finish<CHUNKS_OF<Rows>, WARP>(tile, chunk);
        else
            return tile;
    }

    /* Loads one chunk from element `at` on, which each thread may choose. Elements from `end` on
     * are -inf. */
    template <typename Real, int V>
    __device__ __forceinline__ void load_chunk(const topk_arguments<Rows> &args, uint32_t at,
                                               Real (&x)[V]) const {
        if constexpr (HAS_PROBLEM<Rows>) {
            const auto tile = own.template load<1, 1>((at + V - 1) / V);
#pragma unroll
            for (int i = 0; i < V; i++) x[i] = tile.element(i);
        } else {
            const auto *const from = args.x + row * args.x_pitch + at;
            using P = pack<std::remove_cv_t<std::remove_reference_t<decltype(*from)>>, V>;
            if ((uintptr_t)from % sizeof(P) == 0 && at + V <= end) {
                const P chunk = *(const P *)from;
#pragma unroll
                for (int i = 0; i < V; i++) x[i] = chunk.real(i);
            } else {
#pragma unroll
                for (int i = 0; i < V; i++)
                    x[i] = at + i < end ? to_real<Real>(from[i]) : -arithmetic<Real>::infinity();
            }
        }
    }
};

/* The first chunk of this thread in a tile. */
template <typename Rows>
__device__ inline uint32_t own_chunk() {
    return block_a_row::chunk<CHUNKS_OF<Rows>>(warp_of_block());
}

/* Lists the first k elements of each tile of the share. Cuts the list before it is full. */
template <typename Rows>
__device__ __noinline__ auto list_tile_by_tile(const topk_arguments<Rows> &args,
                                               key_type<typename Rows::Real> least) {
    using Key = key_type<typename Rows::Real>;
    using Entry = entry<typename Rows::Real>;
    using Tile = tile_of_thread<Rows>;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ unsigned long long largest;
    __shared__ uint32_t listed;
    Entry *const list = (Entry *)shared;
    const block_share<Rows> share(args);
    const Key highest = key_of(state_of_block<typename Rows::Real>().m);
    const uint32_t N = share.end, room = (uint32_t)args.room, k = share.k;
    const int64_t step = blockDim.x * (Tile::K * Tile::V);
    bound<Key> from = {least, N};
    if (threadIdx.x == 0) listed = 0;
    constexpr uint32_t V = Rows::V;
    const uint32_t own_first = own_chunk<Rows>() * V;
    auto next = share.read((share.begin + own_first) / V);
#pragma unroll 1
    for (int64_t begin = share.begin; begin < N; begin += step) {
        if (from.key == highest && from.end <= begin)
            break; /* all others come later in the
                    * order */
        const uint32_t first = (uint32_t)begin + own_first;
        const Tile tile = share.finish(next, first / V);
        if (begin + step < N) next = share.read((first + (uint32_t)step) / V);
        const uint32_t end = begin + step < N ? (uint32_t)(begin + step) : N;
        const Key own = first < N ? key_of(tile.largest()) : 0;
        if (!__syncthreads_or(own > from.key || (own == from.key && first < from.end))) continue;
        if (listed > k)
            from = {cut_list(list, &listed, k).key, 0}; /* a later equal element comes after
                                                         * these */
        const uint32_t before = listed;
        if (threadIdx.x == 0) largest = 0;
        __syncthreads();
        const Key of_warp = largest_of_warp(own);
        if (threadIdx.x % WARP == 0) atomicMax(&largest, (unsigned long long)of_warp);
        const Key keys[1] = {own};
        const Key tops = bound_of_tops(keys, (int)k);
        __syncthreads();
        if (tops > from.key) from = {tops, N};
        while (true) {
            if (own >= from.key)
                each_from<WARP>(tile, from, first, end, [&](Key key, uint32_t at) {
                    const uint32_t slot = atomicAdd(&listed, 1);
                    if (slot < room) list[slot] = Entry::make(key, at);
                    return slot < room; /* else there are too many in any case */
                });
            __syncthreads();
            if (listed <= room) break;
            from =
                bound_by_counting(tile, own, first, end, k, room - before, from.key, (Key)largest);
            if (threadIdx.x == 0) listed = before;
            __syncthreads();
        }
    }
    return listed;
}

#endif
