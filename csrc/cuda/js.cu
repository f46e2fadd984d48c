/* js.cu - js_divergence and its gradient, for rows without gaps (op/divergence.h). The blocks of a
 * cluster share both rows. The threads walk over the rows three times. The walks find the pairs,
 * then the terms (statistic/js.cuh), then the gradient. Each walk needs the results of the walk
 * before. A thread keeps its elements in shared memory in between. If shared memory has no room for
 * all its elements, the thread reads the other elements again in each walk.
 *
 * Moves 2 reads of N, and with the gradient 1 write more, if shared memory holds the rows. */
#include "kernel/launch_divergence.cuh"
#include "statistic/js.cuh"
#include "team/cluster.cuh"

/* Blocks of JS_THREADS threads that a multiprocessor must hold. Its shared memory holds as many. */
constexpr int JS_BLOCKS = 6;
/* The chunks of a thread in a tile: the two rows of a warp's tile have JS_TILE_BYTES. */
template <typename T>
constexpr int JS_CHUNKS = JS_TILE_BYTES / (2 * WARP * CHUNK<float> * (int)sizeof(T));
/* The bytes of what a warp gives to its row. */
constexpr int JS_PART_BYTES = sizeof(divergence_state<float, float>) + sizeof(of_both<double>);

/* The elements of two rows that a thread has. The warps of the row take its tiles in turn, and a
 * thread has JS_CHUNKS chunks of each. The first `kept` tiles stay in shared memory. */
template <typename Row, typename T, bool ALIGNED>
class tiles_of_thread {
    static constexpr int K = JS_CHUNKS<T>, V = Row::V, PART = TILE_CHUNKS;
    /* Chunks that a thread reads at once: as many as its registers hold. */
    static constexpr int AT_ONCE = ALIGNED ? K : PART;

   public:
    __device__ tiles_of_thread(const Row &row_, unsigned char *memory, int kept, int warp,
                               int warps)
        : row(row_),
          own((pack<T, V> *)memory + threadIdx.x),
          kept_chunks(kept * K),
          first(chunk_of_lane<K>(warp)),
          step(warps * (K * WARP)) {}

    /* Calls visit(tile) with all elements, and keeps those that shared memory has room for. */
    template <typename Visit>
    __device__ __forceinline__ void load(Visit visit) const {
        for_each_place<AT_ONCE>([&](int64_t chunk, int number) {
            const auto tile = row.template load<AT_ONCE, WARP>(chunk);
#pragma unroll
            for (int k = 0; number < kept_chunks && k < AT_ONCE; k++) {
                place(number + k)[0] = tile.weights.raw[k];
                place(number + k)[blockDim.x] = tile.rest.raw[k];
            }
            visit(tile);
        });
    }

    /* Calls visit(tile, store) with all elements, TILE_CHUNKS chunks at a time. store(result)
     * writes result(e) to the place of element e. */
    template <typename Visit>
    __device__ __forceinline__ void for_each(Visit visit) const {
        for_each_place<PART>([&](int64_t chunk, int number) {
            visit(number < kept_chunks ? again(number) : row.template load<PART, WARP>(chunk),
                  [&](const auto &result) {
                      row.template store<PART, WARP, true>(chunk, result, ~0, 0);
                  });
        });
    }

   private:
    using part = decltype(std::declval<Row>().template load<PART, WARP>(0));

    /* Calls visit(chunk, number) for every N chunks. number: of the first one, among the thread's
     * chunks. */
    template <int N, typename Visit>
    __device__ __forceinline__ void for_each_place(Visit visit) const {
        int64_t chunk = first;
#pragma unroll 1
        for (int number = 0; (chunk - threadIdx.x % WARP) * V < row.N; number += N) {
            visit(chunk, number);
            chunk += number % K == K - N ? step - (K - N) * WARP : N * WARP;
        }
    }

    __device__ pack<T, V> *place(int number) const { return own + number * 2 * blockDim.x; }
    __device__ part again(int number) const {
        part tile = {raw_tile<T, PART>(), raw_tile<T, PART>(), 0};
#pragma unroll
        for (int k = 0; k < PART; k++) {
            tile.weights.raw[k] = place(number + k)[0];
            tile.rest.raw[k] = place(number + k)[blockDim.x];
        }
        return tile;
    }

    const Row &row;
    pack<T, V> *const own;
    const int kept_chunks;
    const int64_t first, step;
};

/* Merges the parts that the warps of a row have. In each block, the first warp gets all parts. It
 * merges them for its block. */
struct warps_of_row {
#if __CUDA_ARCH__ >= 900
    __device__ static int64_t row() { return cluster_index(); }
    __device__ static int warp() { return warp_of_cluster(); }
    __device__ static int warps() { return cluster_size() * warps_of_block(); }

    template <typename Part>
    __device__ static void begin() {
        if (cluster_size() > 1) arrived<Part>().make_ready();
    }
    __device__ static void say_ready() {
        if (cluster_size() > 1) arrivals::say_ready();
    }
    __device__ static void await_ready() {
        if (cluster_size() > 1) arrivals::await_ready();
    }
#else
    __device__ static int64_t row() { return blockIdx.x; }
    __device__ static int warp() { return warp_of_block(); }
    __device__ static int warps() { return warps_of_block(); }

    template <typename Part>
    __device__ static void begin() {}
    __device__ static void say_ready() {}
    __device__ static void await_ready() {}
#endif
    /* parts: shared memory for a part of each warp of the row. */
    template <typename Part>
    __device__ static Part merged(const Part &mine, Part *parts) {
        if (warps() == 1) return mine;
        __shared__ Part whole;
        exchange(mine, parts);
        if (warp_of_block() == 0) {
            const Part all = merge_held_by_warp(parts, warps());
            if (threadIdx.x == 0) whole = all;
        }
        __syncthreads();
        return whole;
    }

   private:
    template <typename Part>
    __device__ static void exchange(const Part &mine, Part *parts) {
#if __CUDA_ARCH__ >= 900
        if (cluster_size() > 1) {
            arrivals &barrier = arrived<Part>();
            barrier.announce(warps() * sizeof mine);
            const int to = threadIdx.x % WARP;
            if (to < (int)cluster_size()) barrier.send(parts + warp(), to, mine);
            if (warp_of_block() == 0) barrier.await();
            return;
        }
#endif
        if (threadIdx.x % WARP == 0) parts[warp()] = mine;
        __syncthreads();
    }
#if __CUDA_ARCH__ >= 900
    template <typename Part>
    __device__ static arrivals &arrived() {
        __shared__ arrivals barrier;
        return barrier;
    }
#endif
};

/* `kept`: tiles of a thread that shared memory holds. The parts of the warps lie after them. */
template <typename Rows>
__global__ void __launch_bounds__(JS_THREADS, JS_BLOCKS)
    js_kernel(const __grid_constant__ typename Rows::arguments args,
              const __grid_constant__ js_mixture mixture, int kept) {
    using T = std::remove_pointer_t<decltype(Rows::arguments::dx)>;
    using pairs = divergence_state<float, float>;
    using team = warps_of_row;
    extern __shared__ __align__(16) unsigned char memory[];
    team::begin<pairs>();
    team::begin<of_both<double>>();
    team::say_ready();
    await_earlier_work(args.launch.next_may_start);
    auto *const parts_of_pairs = (pairs *)(memory + kept * JS_TILE_BYTES * warps_of_block());
    auto *const parts_of_terms = (of_both<double> *)(parts_of_pairs + team::warps());
    const auto row = Rows::template row<false>(args, team::row());
    const tiles_of_thread<std::decay_t<decltype(row)>, T, Rows::ALL_ALIGNED> tiles(
        row, memory, kept, team::warp(), team::warps());
    largest_of_two<float> m = {-CUDART_INF_F, -CUDART_INF_F};
    tiles.load([&](const auto &tile) {
        m = {larger(m.weights, tile.weights.largest()), larger(m.rest, tile.rest.largest())};
    });
    m = m.over_lanes<WARP>();
    of_both<double> sum = {0, 0};
    tiles.for_each([&](const auto &tile, auto) { sum += exponentials_of_tile(tile, m); });
    const auto of_warp = of_both<float>{(float)sum.p, (float)sum.q}.over_lanes<WARP>();
    team::await_ready();
    const js_of_row<float> of_row(
        team::merged(pairs{m, {of_warp.p, of_warp.q, 0}, 0}, parts_of_pairs), mixture);

    of_both<double> terms = {0, 0};
    tiles.for_each([&](const auto &tile, auto) { terms += of_row.terms(tile); });
    terms = team::merged(terms.over_lanes<WARP>(), parts_of_terms);
    const ons_loss &loss = args.loss;
    if (team::warp() == 0 && threadIdx.x == 0)
        ((float *)loss.loss)[row.number] = (float)of_row.value(terms);
    if (!loss.gradient) return;
    const float given = loss.given ? ((const float *)loss.given)[row.number * loss.given_step] : 1;
    const gradient_of_js<float, sizeof(T) == 2> gradient(of_row, terms, given * (float)loss.share);
    tiles.for_each([&](const auto &tile, auto store) { gradient.of_tile(tile, store); });
}

ons_status launch_js_divergences(const launch_request &request) {
    return with_divergence_rows(request, [&](auto rows) {
        using Rows = typename decltype(rows)::Rows;
        using T = std::remove_pointer_t<decltype(Rows::arguments::dx)>;
        const ons_plan *plan = request.plan;
        launch_shape shape = {plan->blocks_a_row, plan->threads};
        const int warps = plan->threads / WARP;
        shape.cluster = (int)plan->blocks_a_row;
        shape.shared_bytes =
            warps * (plan->smem_tiles * JS_TILE_BYTES + shape.cluster * JS_PART_BYTES);
        return launch_strips(request, shape, js_kernel<Rows>, rows.arguments,
                             js_mixture(request.problem->loss->beta), plan->smem_tiles);
    });
}
