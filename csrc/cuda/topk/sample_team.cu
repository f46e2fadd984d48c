/* topk/sample_team.cu - the sampler of a language model (api/sample.h), for rows whose filters do
 * not end in their lists. A team of blocks takes such a row. The fewer these rows are, the more
 * blocks a team has.
 *
 * sample_held.cuh: a sample of the row tells between which logits a filter ends, and between which
 * the drawn token lies. Then the team reads the row once. It holds the tokens between these logits,
 * and sums up the tokens before them. So it finds the exact tokens among those that it holds. It
 * counts many equal tokens by their places. If it has no room for the tokens, and the logits have
 * so few bits that few values occur, the team holds each value and the number of its tokens. Then
 * it reads the row again to find the place of one token.
 *
 * sample_row.cuh: if the held tokens do not have the wanted token, or if top_k cuts the row, the
 * team adds up the tokens in 1024 ranges of logits below m: their masses and their number. So it
 * knows in which range a filter ends, or the drawn token lies. It lists the tokens of this range,
 * and finds the token in the list. If a list has no room for them, the team first adds them up in
 * ranges of keys. This reads N once for the ranges, once for the end of each filter but min_p, and
 * once for the draw.
 *
 * All amounts are integers, so no result depends on the sample or on the number of blocks. */
#include "sample_held.cuh"

/* The most rows of which each block finds all that go on. */
constexpr int64_t ROWS_TO_TEST = 1 << 14;
constexpr int MOST_TEAMS = 512;

/* A row with fewer tokens has no sample. */
constexpr int64_t LEAST_TO_SAMPLE = 1 << 13;
/* The team holds all tokens from which an estimate may be so many standard deviations away. If
 * there is no room for them, it holds fewer, but not fewer than with the least number. */
constexpr float MOST_DEVIATIONS = 5, LEAST_DEVIATIONS = 3;
/* Bytes of shared memory of a block beside the held tokens: its own variables, and what the system
 * takes. */
template <typename Real>
constexpr int BESIDES_HELD = (36 << 10) + TEAM_ROOM * (int)sizeof(entry<Real>) + (1 << 10);

/* ------- Filters ------- */

/* The tokens that the filters keep. A kept token is not behind a place, and has at least the mass
 * `least`. */
template <typename Real>
struct kept_tokens {
    place_in_order<Real> of_k = last(), of_p = last();
    Real least = 0;
    mass_type mass = 0;

    /* A place behind all tokens. */
    __device__ static place_in_order<Real> last() {
        return {0, ~0u, {~mass_type(0), ~mass_type(0)}};
    }

    __device__ bool has(Real x, uint32_t at, Real p) const {
        const auto key = key_of(x);
        return p * (Real)ONS_WHOLE_MASS >= least && of_k.has(key, at) && of_p.has(key, at);
    }
};

/* The number of the arithmetic's type that is not below x. */
template <typename Real>
__device__ inline Real rounded_up(double x) {
    if constexpr (sizeof(Real) == sizeof(float)) return __double2float_ru(x);
    return x;
}

/* The mass that top_p keeps of `whole`. */
template <typename Real>
__device__ inline mass_type mass_of_share(const ons_row_filters &filters, double whole) {
    return max((mass_type)ons_share_of_mass(filters.top_p, whole, sizeof(Real) == sizeof(double)),
               mass_type(1));
}

/* Finds them by the amounts of all tokens. `least` is the mass that min_p asks for. */
template <typename Row, typename Real = typename Row::Real>
__device__ inline kept_tokens<Real> find_kept(const team_row<Row> &tokens,
                                              const ons_row_filters &filters, bool joint, int64_t N,
                                              Real least) {
    const bool cuts_count = filters.top_k < N, cuts_mass = filters.top_p < 1;
    kept_tokens<Real> kept;
    kept.least = least;
    const amount likely = tokens.add_up(least);
    const bool of_share = cuts_mass && !joint; /* of the tokens that top_k keeps */
    if (cuts_count && (of_share || (mass_type)filters.top_k < likely.count))
        kept.of_k = tokens.reach(true, (mass_type)filters.top_k);
    if (cuts_mass) {
        const double whole = cuts_count && !joint ? (double)kept.of_k.upto.mass : ONS_WHOLE_MASS;
        const mass_type share = mass_of_share<Real>(filters, whole);
        if (share < likely.mass) kept.of_p = tokens.reach(false, share);
    }
    kept.mass = min(likely.mass, min(kept.of_k.upto.mass, kept.of_p.upto.mass));
    return kept;
}

/* Finds them by a sample and held tokens. top_k must keep all tokens. With `draws` it also draws a
 * token. Returns false if the held tokens do not have the results. */
template <typename Row, typename LogitOf, typename Real = typename Row::Real>
__device__ inline bool find_kept_by_sample(held_row<Row> &tokens, const ons_row_filters &filters,
                                           const first_tokens<Real> &list, LogitOf logit_of,
                                           Real least, bool draws, uint64_t random,
                                           kept_tokens<Real> *kept, place_in_order<Real> *drawn) {
    enum { OF_P, OF_DRAW };
    __shared__ Real ends[2][2]; /* of both spans */
    __shared__ bool is_found, by_value;
    span_of_tokens<Real> spans[2];
    const mass_type share = mass_of_share<Real>(filters, ONS_WHOLE_MASS);
    tokens.take_sample(list);
    if (warp_of_block() == 0) {
        const float draw = (float)((double)random * 0x1p-64),
                    of_p = filters.top_p < 1 ? (float)((double)share / ONS_WHOLE_MASS) : 1;
        /* the number of tokens to hold is an estimate, so some room is left */
        const float most = (float)0.9 * (float)tokens.room - (float)list.length;
        float deviations = MOST_DEVIATIONS, found;
        bool values = false; /* whether to hold values */
#pragma unroll 1
        for (;;) {
            float from = 1, to = 1; /* the share of the mass that min_p keeps */
            found = 0;
            if (least > 0) tokens.estimate_share(least, deviations, &from, &to);
            if (filters.top_p < 1 && of_p < to)
                spans[OF_P] = tokens.span_of(of_p, of_p, deviations, &found);
            if (draws)
                spans[OF_DRAW] = tokens.span_of(draw * min(of_p, from), draw * min(of_p, to),
                                                deviations, &found);
            if (values || found <= most) break;
            deviations *= (float)0.95 * most / found;
            if (deviations < LEAST_DEVIATIONS) {
                values = most > 0 && list.are_coarse(logit_of);
                if (!values) break;
                deviations = MOST_DEVIATIONS;
            }
        }
        for (const auto &span : spans) values &= span.is_unused() || tokens.has_values_apart(span);
        for (int s = 0; s < 2; s++) {
            ends[s][0] = spans[s].high;
            ends[s][1] = spans[s].low;
        }
        is_found = values || found <= most;
        by_value = values;
    }
    __syncthreads();
    if (!is_found) return false;
    for (int s = 0; s < 2; s++) {
        spans[s].high = ends[s][0];
        spans[s].low = ends[s][1];
    }
    kept->least = least;
    kept->mass = by_value    ? tokens.hold_values(spans, least)
                 : least > 0 ? tokens.template hold<true>(spans, least)
                             : tokens.template hold<false>(spans, least);
    if (kept->mass == 0) return false;
    tokens.add_up_held(spans);
    if (filters.top_p < 1 && share < kept->mass) {
        if (!tokens.reach_held(spans, OF_P, share, !draws, &kept->of_p)) return false;
        kept->mass = min(kept->mass, kept->of_p.upto.mass);
    }
    return !draws ||
           tokens.reach_held(spans, OF_DRAW, ons_mass_below(random, kept->mass) + 1, true, drawn);
}

/* The sum of the kept tokens' probabilities. Masses are exact enough for float32. For float64 what
 * they leave out is added up too. */
template <typename Row, typename Real = typename Row::Real>
__device__ inline double sum_of_kept(const team_row<Row> &tokens, const kept_tokens<Real> &kept) {
    if constexpr (sizeof(Real) == sizeof(float)) return (double)kept.mass / ONS_WHOLE_MASS;
    constexpr double FINER = 0x1p30;
    amount mine = {0, 0};
    tokens.each([&](Real x, uint32_t at) {
        const Real p = tokens.p(x);
        if (!kept.has(x, at, p)) return;
        const mass_type mass = ons_mass_of((double)p);
        const double rest = (double)p * ONS_WHOLE_MASS - (double)mass;
        mine = mine + amount{mass, (mass_type)(rest * FINER)};
    });
    const amount all = over_team(tokens.team, mine);
    return ((double)all.mass + (double)all.count / FINER) / ONS_WHOLE_MASS;
}

/* ------- Kernel ------- */

/* Draws a token of a row, or writes the row of filtered_softmax. */
template <typename Rows, typename Real = typename Rows::Real>
__device__ inline void finish_row(const topk_arguments<Rows> &args, const ons_sample &sample,
                                  block_team<Real> &team, int64_t number,
                                  const token_lists<Real> &lists, int room) {
    const auto row = Rows::template row<false>(args, number);
    const ons_row_filters filters = ons_filters_of(&sample, number, args.N);
    const int64_t first = number * lists.length, last = first + lists.length - 1;
    const Real first_p = lists.p[first],
               least = rounded_up<Real>(filters.min_p * (double)first_p * ONS_WHOLE_MASS);
    auto logit_of = [&](int64_t index) { return element_of(args, number, index); };
    const first_tokens<Real> list = {lists.p + first, lists.index + first, lists.length,
                                     logit_of(lists.index[last])};
    held_row<std::decay_t<decltype(row)>> tokens(
        {row, team, logit_of(lists.index[first]), scale_of<Real>(filters.temperature), first_p},
        room);
    const bool off = ons_filters_are_off(&filters, args.N);
    const uint64_t random = sample.draws ? ons_random_of_row(&sample, number) : 0;
    ons_drawn_token drawn;
    if (off && sample.draws) {
        mass_type all;
        const uint32_t place = tokens.template place_at<false>(0, random, &all);
        const Real logit = tokens.scaled(element_of(args, number, place));
        drawn = ons_drawn_of(place, (double)tokens.p(logit), all);
    } else {
        kept_tokens<Real> kept;
        place_in_order<Real> at;
        /* min_p alone needs the sample for a draw only */
        const bool may_sample = !off && filters.top_k >= args.N && args.N >= LEAST_TO_SAMPLE &&
                                (sample.draws || filters.top_p < 1);
        const bool is_found =
            may_sample && find_kept_by_sample(tokens, filters, list, logit_of, least, sample.draws,
                                              random, &kept, &at);
        if (!off && !is_found) kept = find_kept(tokens, filters, sample.joint, args.N, least);
        if (!sample.draws) {
            const double sum = off ? 1 : sum_of_kept(tokens, kept);
            char *const y = results_of(args, args.values, ONS_Y, number);
            tokens.each([&](Real x, uint32_t at) {
                const Real p = tokens.p(x);
                write_as(y + at * args.values.along, args.values.dtype,
                         kept.has(x, at, p) ? (Real)((double)p / sum) : (Real)0);
            });
            return;
        }
        if (!is_found) at = tokens.reach(false, ons_mass_below(random, kept.mass) + 1);
        drawn = ons_drawn_of(at.place, (double)tokens.p(number_of(at.key)), kept.mass);
    }
    if (team.own == 0 && threadIdx.x == 0) write_drawn(args, sample, number, drawn);
}

template <typename Rows>
__global__ void __launch_bounds__(PASS_THREADS,
                                  sizeof(typename Rows::Real) == sizeof(float) ? 2 : 1)
    sample_team_kernel(const __grid_constant__ topk_arguments<Rows> args,
                       const __grid_constant__ ons_sample sample,
                       const __grid_constant__ token_lists<typename Rows::Real> lists,
                       int multiprocessors, int most_blocks, int room) {
    using Real = typename Rows::Real;
    __shared__ uint32_t rows[MOST_TEAMS];
    await_earlier_work(true);
    /* the rows that go on, if they are so few that each has a team */
    uint32_t count = args.rows <= ROWS_TO_TEST ? 0 : ~0u;
    const uint32_t team_blocks = min(gridDim.x, (uint32_t)multiprocessors),
                   most = min((uint32_t)lists.team_count, team_blocks);
    for (int64_t begin = 0; begin < args.rows && count <= most; begin += blockDim.x) {
        const int64_t row = begin + threadIdx.x;
        const bool goes_on = row < args.rows && lists.goes_on[row];
        uint32_t before;
        const uint32_t more = sum_of_row<0>(goes_on, &before);
        if (goes_on && count + before < MOST_TEAMS) rows[count + before] = (uint32_t)row;
        count += more;
    }
    __syncthreads();
    if (count == 0) return;
    const bool in_teams = count <= most;
    const int size = in_teams ? min((int)(team_blocks / count), most_blocks) : 1,
              own = blockIdx.x / size;
    if (in_teams && own >= (int)count) return;
    block_team<Real> team((team_memory<Real> *)lists.teams + own, size, blockIdx.x % size);
    if (size > 1) room = min(room, (int)ONS_TEAM_HELD); /* the blocks send the held tokens */
    for (int64_t row = in_teams ? rows[own] : blockIdx.x; row < args.rows;
         row += in_teams ? args.rows : gridDim.x) {
        if (in_teams || lists.goes_on[row]) finish_row(args, sample, team, row, lists, room);
        __syncthreads();
    }
}

template <typename Real>
ons_status launch_sample_team(const launch_request &request, const ons_sample &sample,
                              const token_lists<Real> &lists) {
    static_assert(sizeof(team_memory<float>) <= 3 * 18464 + 8 * ONS_TEAM_HELD + 48 &&
                      sizeof(team_memory<double>) <= 3 * 22560 + 16 * ONS_TEAM_HELD + 48,
                  "ons_sample_team_bytes()");
    const ons_plan *plan = request.plan;
    ons_gpu gpu;
    const ons_status status = ons_gpu_describe(request.problem->gpu, &gpu);
    if (status != ONS_OK) return status;
    return with_topk_rows(request, 1, [&](auto of_rows, const auto &arguments) -> ons_status {
        using Rows = typename decltype(of_rows)::Rows;
        if constexpr (!std::is_same_v<typename Rows::Real, Real>) {
            return ONS_E_OPERAND;
        } else {
            const auto kernel = sample_team_kernel<Rows>;
            launch_shape shape = {1, PASS_THREADS};
            /* Two blocks on a multiprocessor make each other's short steps twice as long, so a
             * block of a team has one to itself. With more rows than that, two blocks share one:
             * one works while the other waits. */
            const int multiprocessors = gpu.multiprocessors;
            const bool alone = plan->rows <= multiprocessors;
            constexpr int A_TOKEN = sizeof(held_token<Real>);
            /* A block alone on a multiprocessor takes three quarters of the shared memory. The
             * kernel before this one keeps a quarter, so the block can start before that kernel
             * ends. */
            const int for_block = alone ? gpu.shared_bytes / 4 * 3 : gpu.shared_bytes / 2,
                      fitting = max(for_block - BESIDES_HELD<Real>, 0) / A_TOKEN,
                      room = alone ? fitting : min(fitting, (int)ONS_TEAM_HELD);
            shape.shared_bytes = room * A_TOKEN;
            const int fit = blocks_that_fit(request.problem->gpu, shape, (const void *)kernel);
            const int64_t grid = (alone ? 1 : min(max(fit, 1), 2)) * (int64_t)multiprocessors;
            /* a block of a team has at least a tile for each of its warps */
            const int64_t least = (int64_t)PASS_THREADS * TEAM_CHUNKS * Rows::V,
                          parts = (plan->N + least - 1) / least;
            shape.cooperative = gpu.cooperative && parts > 1 && fit > 0;
            const int64_t blocks =
                shape.cooperative ? min(parts, (int64_t)ONS_MOST_TEAM_BLOCKS) : 1;
            shape.blocks = min(grid, plan->rows * blocks);
            return launch(request, shape, kernel, arguments, sample, lists, multiprocessors,
                          (int)blocks, room);
        }
    });
}
template ons_status launch_sample_team(const launch_request &, const ons_sample &,
                                       const token_lists<float> &);
template ons_status launch_sample_team(const launch_request &, const ons_sample &,
                                       const token_lists<double> &);
