/* smem.cuh - rows without gaps that bulk copies bring to shared memory (sm_90 and later). A copy in
 * flight holds no register, so the next row's elements arrive while this row is still being summed
 * and written.
 *
 * Each warp has its own ring of slots. Each slot has an mbarrier that counts the bytes to come. The
 * warp requests the elements of its share in the order in which it takes them, row after row. As
 * soon as a slot's elements are in registers, the warp requests the slot's next copy. What must
 * hold:
 *
 *  - A bulk copy moves multiples of 16 bytes between addresses that are multiples of 16. So it
 *    copies all aligned 16-byte blocks that hold a slot's elements, and the elements are read from
 *    their place in them. The bytes before the row and after it belong to the same array or
 *    allocation, and are not used. Nothing after the array's last whole block is copied: the
 *    elements there are read one by one.
 *  - All lanes read a slot, then meet in __syncwarp, and only then lane 0 requests the next copy.
 *    If ordinary stores wrote to a slot, a fence is needed too. */
#ifndef ONS_SMEM_CUH
#define ONS_SMEM_CUH

#include "bulk.cuh"
#include "contiguous.cuh"
#include "../team/tiles_of_warp.cuh"

#if __CUDA_ARCH__ >= 900

template <typename Rows>
class rows_in_smem;

template <typename X, alignment ALIGNED>
class rows_in_smem<contiguous_rows<X, ALIGNED>> {
    using Rows = contiguous_rows<X, ALIGNED>;
    using Pack = pack<X, Rows::V>;
    static constexpr int V = Rows::V, PACK = (int)sizeof(Pack);

   public:
    /* Chunks of a lane in a slot, and slots of a tile. */
    static constexpr int CHUNKS = SLOT_BYTES / PACK / WARP, SLOTS = SMEM_CHUNKS / CHUNKS;
    static_assert(SLOTS * CHUNKS == SMEM_CHUNKS);

    /* Launches that are not ALL aligned use unaligned_row for every row. With two kinds of rows the
     * instructions would not fit the cache. */
    template <typename Y>
    using row_to = std::conditional_t<ALIGNED == alignment::ALL, aligned_row<X, Y, false>,
                                      unaligned_row<X, Y>>;

    /* `memory_` has SLOT_ROOM bytes for each of the warp's slots, `barriers_` an mbarrier for each.
     * The warp takes row `row` and every `step`-th row after it. */
    __device__ rows_in_smem(const typename Rows::arguments &args_, const tiles_of_warp &share_,
                            unsigned char *memory_, uint64_t *barriers_, int slots_, int row,
                            int step_)
        : args(args_),
          share(share_),
          memory(memory_),
          barriers(shared_address(barriers_)),
          slots(slots_),
          rows_left(share.tiles == 0 || row >= args.rows ? 0
                                                         : ((int)args.rows - 1 - row) / step_ + 1),
          step(step_) {
        const int64_t last = args.x_pitch > 0 ? args.rows - 1 : 0;
        limit = (uintptr_t)(args.x + last * args.x_pitch + args.N) & ~(uintptr_t)15;
        next_row = (uintptr_t)(args.x + row * args.x_pitch);
        begin_row();
        if (threadIdx.x % WARP < slots)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                barriers + (uint32_t)(threadIdx.x % WARP * sizeof(uint64_t))));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        order_accesses();
        __syncwarp();
        for (int i = 0; i < slots; i++) ask();
    }

    /* From now on, register_tiles() and next() read this row. */
    __device__ auto enter(int row) {
        x = args.x + row * args.x_pitch;
        off = (int)((uintptr_t)x % 16);
        const row_to<X> own(x, (X *)args.y + row * args.y_pitch, args.N, args.format);
        if constexpr (Rows::IS_16_BIT)
            return widened_row(
                own, row_to<float>(x, (float *)args.y + row * args.y_pitch, args.N, args.format),
                args.widens);
        else
            return own;
    }

    /* The tiles that the warp keeps in registers. */
    __device__ __forceinline__ raw_tile<X, CLUSTER_CHUNKS> register_tiles() {
        raw_tile<X, CLUSTER_CHUNKS> tile(args.format);
#pragma unroll
        for (int k = 0; k < CLUSTER_CHUNKS; k += CHUNKS) {
            if (k / SMEM_CHUNKS < share.tiles) {
                take(share.begin(0) + k * WARP, tile.raw + k);
            } else {
#pragma unroll
                for (int i = 0; i < CHUNKS; i++) tile.raw[k + i].cut(0, args.format);
            }
        }
        return tile;
    }

    /* The next slot after the register tiles. It begins with chunk `begin`. */
    __device__ __forceinline__ raw_tile<X, CHUNKS> next(int begin) {
        raw_tile<X, CHUNKS> tile(args.format);
        take(begin, tile.raw);
        return tile;
    }

   private:
    __device__ void begin_row() {
        position = 0;
        offset = share.begin(0) * PACK;
    }

    /* Requests the copy to the warp's next slot, if rows are left. */
    __device__ void ask() {
        if (rows_left == 0) return;
        const uintptr_t from = (next_row + offset) & ~(uintptr_t)15;
        uint32_t bytes = next_row % 16 == 0 ? SLOT_BYTES : SLOT_ROOM;
        if (position + SLOTS >= share.tiles * SLOTS || from + bytes > limit)
            bytes = bytes_at_end(from);
        if (threadIdx.x % WARP == 0) {
            const uint32_t barrier = barriers + asked * (int)sizeof(uint64_t);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                         "r"(bytes)
                         : "memory");
            if (bytes > 0)
                bulk_read(shared_address(memory) + asked * SLOT_ROOM, from, bytes, barrier);
        }
        if (++asked == slots) asked = 0;
        if (++position == share.tiles * SLOTS) {
            next_row += step * args.x_pitch * (int64_t)sizeof(X);
            rows_left--;
            begin_row();
        } else if (position < REGISTER_TILES * SLOTS || position % SLOTS != 0) {
            offset += SLOT_BYTES;
        } else {
            offset = share.begin(position / SLOTS) * PACK;
        }
    }

    /* Bytes to copy, for a slot that may end at or after the row's end, or after the array's last
     * 16-byte block. */
    __device__ uint32_t bytes_at_end(uintptr_t from) const {
        const uintptr_t row_end = next_row + args.N * (int64_t)sizeof(X);
        uintptr_t end = next_row + offset + SLOT_BYTES;
        if (end > row_end) end = row_end;
        end = (end + 15) & ~(uintptr_t)15;
        if (end > limit) end = limit;
        return end > from ? (uint32_t)(end - from) : 0;
    }

    /* This lane's chunks of the next slot, which begins with chunk `begin`. They are -inf after the
     * row's end. Frees the slot. */
    __device__ __forceinline__ void take(int begin, Pack *raw) {
        await();
        if ((uintptr_t)(x + args.N) > limit) take_end(begin);
        const int bytes = ALIGNED == alignment::ALL ? 0 : off % PACK, lane = threadIdx.x % WARP;
        const Pack *from = (const Pack *)(memory + taken * SLOT_ROOM + (off - bytes)) + lane;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
            raw[k] = ALIGNED == alignment::ALL ? from[k * WARP]
                                               : between(from[k * WARP], from[k * WARP + 1], bytes);
        if (++taken == slots) {
            taken = 0;
            parity ^= 1;
        }
        __syncwarp();
        ask();
        const int left = (int)args.N - (begin + lane) * V;
        if (!has_all<CHUNKS, WARP, V>(left)) {
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) raw[k].cut(left - place<WARP, V>(k * V), args.format);
        }
    }

    __device__ __forceinline__ void await() {
        uint32_t done = 0;
        while (!done)
            asm volatile(
                "{\n"
                ".reg .pred complete;\n"
                "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                "selp.u32 %0, 1, 0, complete;\n"
                "}"
                : "=r"(done)
                : "r"(barriers + taken * (int)sizeof(uint64_t)), "r"(parity)
                : "memory");
    }

    /* Reads the array's last elements, fewer than a warp's lanes, if they belong to this slot. */
    __device__ __forceinline__ void take_end(int begin) {
        const X *from = x + begin * V, *end = x + args.N;
        if (from + SLOT_BYTES / sizeof(X) < end) end = from + SLOT_BYTES / sizeof(X);
        const X *rest = ((uintptr_t)from < limit ? (const X *)limit : from) + threadIdx.x % WARP;
        if (rest < end) {
            const int64_t at = (const char *)rest - (const char *)from;
            *(X *)(memory + taken * SLOT_ROOM + off + at) = *rest;
        }
        order_accesses();
        __syncwarp();
    }

    const typename Rows::arguments &args;
    const tiles_of_warp &share;
    unsigned char *const memory;
    const uint32_t barriers;
    const int slots;
    uintptr_t limit; /* the end of the array's last 16-byte block */
    /* for take() */
    const X *x;
    int off, taken = 0;
    uint32_t parity = 0;
    /* for ask(): the rows left, and the place in the first of them */
    int rows_left, step;
    uintptr_t next_row;
    int offset, position, asked = 0;
};

#endif

#endif
