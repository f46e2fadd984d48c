/* js.cu - js_divergence and its gradient, for rows without gaps (op/divergence.h). The blocks of a
 * cluster share both rows. Three walks over the rows need what the walk before has found: the
 * pairs, the terms (statistic/js.cuh), and the gradient. A thread keeps its elements in shared
 * memory in between. If there is not enough room, it reads the others again.
 *
 * Moves 2 reads of N, and with the gradient 1 write more, if shared memory holds the rows. */
#include "kernel/launch_divergence.cuh"
#include "statistic/js.cuh"
#include "team/cluster.cuh"

/* The chunks of a thread in a tile: the two rows of a warp's tile have JS_TILE_BYTES. */
template <typename T>
constexpr int JS_CHUNKS = JS_TILE_BYTES / (2 * WARP * CHUNK<float> * (int)sizeof(T));
/* The bytes of what a warp gives to its row. */
constexpr int JS_PART_BYTES = sizeof(divergence_state<float, float>) + sizeof(js_sums<double>);

/* The part of two rows that a thread has: tiles of JS_CHUNKS chunks. The warps of the row take
 * them in turn. The first `kept` tiles stay in shared memory. */
template <typename Row, typename T, bool ALIGNED>
class tiles_of_thread {
    static constexpr int K = JS_CHUNKS<T>, V = Row::V;

   public:
    static constexpr int HALF = K / 2;
    /* Chunks that a thread reads at once: as many as its registers hold. */
    static constexpr int AT_ONCE = ALIGNED || sizeof(T) == 4 ? K : HALF;

    __device__ tiles_of_thread(const Row &row_, unsigned char *memory, int kept_, int warp,
                               int warps)
        : row(row_),
          own((pack<T, V> *)memory + threadIdx.x),
          kept(kept_),
          first(chunk_of_lane<K>(warp)),
          step(warps * (K * WARP)) {}

    /* Calls visit(tile) with each tile, and keeps what shared memory has room for. */
    template <typename Visit>
    __device__ __forceinline__ void load(Visit visit) const {
        int64_t chunk = first;
#pragma unroll 1
        for (int i = 0; is_in_row(chunk); i++) {
            const auto tile = row.template load<AT_ONCE, WARP>(chunk);
#pragma unroll
            for (int k = 0; i * AT_ONCE < kept * K && k < AT_ONCE; k++) {
                place(i * AT_ONCE + k)[0] = tile.weights.raw[k];
                place(i * AT_ONCE + k)[blockDim.x] = tile.rest.raw[k];
            }
            visit(tile);
            chunk = next<AT_ONCE>(chunk, i);
        }
    }

    /* Calls visit(chunk, half) with both halves of each tile. */
    template <typename Visit>
    __device__ __forceinline__ void for_each_half(Visit visit) const {
        int64_t chunk = first;
#pragma unroll 1
        for (int h = 0; is_in_row(chunk); h++) {
            visit(chunk, h < 2 * kept ? again(h) : row.template load<HALF, WARP>(chunk));
            chunk = next<HALF>(chunk, h);
        }
    }

   private:
    using half_tile = decltype(std::declval<Row>().template load<HALF, WARP>(0));

    /* Of the warp's first chunk. */
    __device__ bool is_in_row(int64_t chunk) const {
        return (chunk - threadIdx.x % WARP) * V < row.N;
    }
    /* The chunk after part i, where a part of a tile has N chunks. */
    template <int N>
    __device__ int64_t next(int64_t chunk, int i) const {
        return chunk + (i % (K / N) == K / N - 1 ? step - (K - N) * WARP : N * WARP);
    }
    __device__ pack<T, V> *place(int chunk) const { return own + chunk * 2 * blockDim.x; }
    __device__ half_tile again(int h) const {
        half_tile tile = {raw_tile<T, HALF>(), raw_tile<T, HALF>(), 0};
#pragma unroll
        for (int k = 0; k < HALF; k++) {
            tile.weights.raw[k] = place(h * HALF + k)[0];
            tile.rest.raw[k] = place(h * HALF + k)[blockDim.x];
        }
        return tile;
    }

    const Row &row;
    pack<T, V> *const own;
    const int kept;
    const int64_t first, step;
};

/* Merges what the warps of a row have. The first warp of each block gets the parts of all warps,
 * and merges them for its block. */
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
    __device__ static Part merged(const Part &mine, void *memory) {
        if (warps() == 1) return mine;
        __shared__ Part whole;
        Part *const parts = (Part *)memory;
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
    team::begin<js_sums<double>>();
    team::say_ready();
    await_earlier_work(args.launch.next_may_start);
    void *const parts = memory + kept * JS_TILE_BYTES * warps_of_block();
    const auto row = Rows::template row<false>(args, team::row());
    using tiles_of_row = tiles_of_thread<std::decay_t<decltype(row)>, T, Rows::ALL_ALIGNED>;
    const tiles_of_row tiles(row, memory, kept, team::warp(), team::warps());
    largest_of_two<float> m = {-CUDART_INF_F, -CUDART_INF_F};
    tiles.load([&](const auto &tile) {
        m = {larger(m.weights, tile.weights.largest()), larger(m.rest, tile.rest.largest())};
    });
    m = m.over_lanes<WARP>();
    divergence_sums<double> sum = {0, 0, 0};
    tiles.for_each_half([&](int64_t, const auto &tile) {
        const divergence_sums<float> of_tile = exponentials_of_tile(tile, m);
        sum += {(double)of_tile.d, (double)of_tile.d_of_rest, 0};
    });
    sum = sum.over_lanes<WARP>();
    team::await_ready();
    const divergence_sums<float> of_warp = {(float)sum.d, (float)sum.d_of_rest, 0};
    const js_of_row<float> of_row(team::merged(whole(m, of_warp), parts), mixture);

    js_sums<double> terms = {0, 0};
    tiles.for_each_half([&](int64_t, const auto &tile) { terms += of_row.terms(tile); });
    /* other warps may still read the parts before */
    void *const more_parts = (pairs *)parts + team::warps();
    terms = team::merged(terms.over_lanes<WARP>(), more_parts);
    const double value = of_row.value(terms);
    const ons_loss &loss = args.loss;
    if (team::warp() == 0 && threadIdx.x == 0) ((float *)loss.loss)[row.number] = (float)value;
    if (!loss.gradient) return;
    const float given = loss.given ? ((const float *)loss.given)[row.number * loss.given_step] : 1;
    const gradient_of_js<float, sizeof(T) == 2> gradient(of_row, terms, given * (float)loss.share);
    tiles.for_each_half([&](int64_t chunk, const auto &tile) {
        gradient.of_tile(tile, [&](const auto &result) {
            row.template store<tiles_of_row::HALF, WARP, true>(chunk, result, ~0, 0);
        });
    });
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
