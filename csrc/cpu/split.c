/* split.c - several threads share one row. Each block of ONS_BLOCK elements gets its own (m, d).
 * The pairs of a row are merged in the order of its blocks, so the result does not depend on the
 * number of threads. Then the threads divide. Milakov and Gimelshein, arXiv 1805.02867, section
 * 3.1. If the caller gives the pairs of the rows, the threads divide at once. For an operation that
 * selects, each block also has candidates, and they are merged in the same order. */
#include "online.h"
#include "strip/candidates.h"
#include "split.h"

#include <string.h>

typedef struct {
    const ons_job *job;
    int64_t first, blocks; /* the wave's first strip; number of blocks in a row */
    bool anchored;
    ons_state *partial, *merged; /* for each block of each row of the wave; for each row */
    double *anchor;              /* for each row */
    char *candidates;            /* for each block of each row, if the operation selects */
} wave;

static int64_t blocks_of(const ons_plan *plan);
static int64_t strips_in_wave(const ons_plan *plan);
static void strip_of_unit(const wave *wave, ons_strip *strip, int64_t unit, int64_t *begin,
                          int64_t *end);
static void keep_candidates(const wave *wave, const ons_strip *strip, int64_t unit);
static void begin_above(const wave *wave, ons_strip *strip, int64_t before);
static void merge_candidates(const wave *wave, const ons_strip *strip, int64_t unit);
static void store_sums(const wave *wave, int64_t strips);
static void divide_by_pairs(void *context, int worker, int64_t first, int64_t last);

static void take_statistics(void *context, int worker, int64_t first, int64_t last) {
    const wave *wave = context;
    ons_strip strip = ons_strip_of(wave->job, worker);
    for (int64_t unit = first; unit < last; unit++) {
        int64_t begin, end;
        strip_of_unit(wave, &strip, unit, &begin, &end);
        if (strip.candidates && unit > first && begin > 0) begin_above(wave, &strip, unit - 1);
        ons_online_statistics(&strip, begin, end);
        if (strip.candidates && !strip.anchored) keep_candidates(wave, &strip, unit);
        /* the last strip may have fewer rows; the missing ones get empty states */
        int64_t width = strip.plan->width;
        for (int64_t i = 0; i < width; i++)
            wave->partial[unit * width + i] =
                i < strip.rows.width ? strip.rows.state[i] : ons_state_empty();
    }
}

/* True if a row must be anchored at its own m (ons_strip_anchor). All rows of the wave then run a
 * second time. */
static bool merge_and_anchor(wave *wave, int64_t strips) {
    int64_t width = wave->job->plan->width;
    bool far = false;
    for (int64_t row = 0; row < strips * width; row++) {
        ons_state merged = ons_state_empty();
        for (int64_t b = 0; b < wave->blocks; b++)
            merged = ons_state_merge(
                merged, wave->partial[(row / width * wave->blocks + b) * width + row % width]);
        wave->merged[row] = merged;
        if (wave->anchored) continue;
        bool this_one = ons_needs_anchor(merged.m);
        wave->anchor[row] = this_one ? merged.m : 0.0;
        far |= this_one;
    }
    wave->anchored |= far;
    return far;
}

static void divide(void *context, int worker, int64_t first, int64_t last) {
    const wave *wave = context;
    ons_strip strip = ons_strip_of(wave->job, worker);
    for (int64_t unit = first; unit < last; unit++) {
        int64_t begin, end, row = unit / wave->blocks * strip.plan->width;
        strip_of_unit(wave, &strip, unit, &begin, &end);
        for (int64_t i = 0; i < strip.rows.width; i++) strip.rows.state[i] = wave->merged[row + i];
        if (strip.candidates && begin == 0) merge_candidates(wave, &strip, unit);
        ons_online_finish(&strip, begin, end);
    }
}

void ons_cpu_split(const ons_job *job) {
    const ons_plan *plan = job->plan;
    int64_t count = ons_strip_count(job->problem, plan), max_strips = strips_in_wave(plan);
    int64_t rows = max_strips * plan->width;
    wave wave = {.job = job, .blocks = blocks_of(plan)};
    if (job->problem->operand[ONS_STATISTIC].data && plan->k == 0) {
        int64_t units = count * wave.blocks;
        ons_parallel_for(units, units / (8 * plan->threads) + 1, plan->threads, divide_by_pairs,
                         (void *)job);
        return;
    }
    wave.partial = (ons_state *)(job->workspace + plan->threads * ons_strip_bytes(plan));
    wave.merged = wave.partial + rows * wave.blocks;
    wave.anchor = (double *)(wave.merged + rows);
    wave.candidates = (char *)(wave.anchor + rows);
    wave.candidates += -(uintptr_t)wave.candidates % 64;
    for (int64_t first = 0; first < count; first += max_strips) {
        int64_t strips = count - first < max_strips ? count - first : max_strips,
                units = strips * wave.blocks;
        int64_t grain = units / (8 * plan->threads) + 1;
        wave.first = first;
        wave.anchored = false;
        for (int64_t row = 0; row < rows; row++) wave.anchor[row] = 0.0;
        do {
            ons_parallel_for(units, grain, plan->threads, take_statistics, &wave);
        } while (merge_and_anchor(&wave, strips));
        if (job->problem->sums)
            store_sums(&wave, strips);
        else
            ons_parallel_for(units, grain, plan->threads, divide, &wave);
    }
}

/* Number of blocks in a row. An empty row has one too. */
static int64_t blocks_of(const ons_plan *plan) {
    return plan->N > 0 ? (plan->N + ONS_BLOCK - 1) / ONS_BLOCK : 1;
}

/* Number of strips in a wave: enough for a few blocks a thread. The threads find the statistics of
 * a whole wave, then its results. */
static int64_t strips_in_wave(const ons_plan *plan) {
    return ONS_SPLIT_PAIRS / blocks_of(plan) + 1;
}

int64_t ons_split_shared_bytes(const ons_plan *plan) {
    int64_t rows = strips_in_wave(plan) * plan->width;
    int64_t states = rows * (blocks_of(plan) + 1) * (int64_t)sizeof(ons_state);
    int64_t kept = plan->k > 0 ? rows * blocks_of(plan) * ons_kept_candidates_bytes(plan) + 64 : 0;
    return states + rows * (int64_t)sizeof(double) + kept;
}

/* Moves the strip to a unit of the wave, which is one block of the rows of one strip. *begin and
 * *end are its elements. */
static void strip_of_unit(const wave *wave, ons_strip *strip, int64_t unit, int64_t *begin,
                          int64_t *end) {
    int64_t index = unit / wave->blocks, width = strip->plan->width;
    ons_strip_at(strip, wave->first + index);
    strip->anchored = wave->anchored;
    for (int64_t i = 0; i < strip->rows.width; i++)
        strip->anchor[i] = wave->anchor[index * width + i];
    *begin = unit % wave->blocks * ONS_BLOCK;
    *end = strip->plan->N - *begin < ONS_BLOCK ? strip->plan->N : *begin + ONS_BLOCK;
}

/* The place of the candidates of row i of a unit. */
static char *candidates_at(const wave *wave, int64_t unit, int64_t i) {
    const ons_plan *plan = wave->job->plan;
    return wave->candidates + (unit * plan->width + i) * ons_kept_candidates_bytes(plan);
}

static void keep_candidates(const wave *wave, const ons_strip *strip, int64_t unit) {
    for (int64_t i = 0; i < strip->rows.width; i++) {
        strip->kernels->candidates.cut(&strip->candidates[i]);
        ons_keep_candidates(strip->plan, candidates_at(wave, unit, i), &strip->candidates[i]);
    }
}

/* This thread took the block before. An element that is not above the k-th largest there is not
 * among the row's k. */
static void begin_above(const wave *wave, ons_strip *strip, int64_t before) {
    for (int64_t i = 0; i < strip->rows.width; i++) {
        const ons_candidates *kept =
            (const ons_candidates *)(const void *)candidates_at(wave, before, i);
        strip->candidates[i].least = kept->least;
        strip->candidates[i].many = kept->many;
    }
}

/* Merges the candidates of all blocks of the strip's rows. `unit` is the unit of the first
 * block. */
static void merge_candidates(const wave *wave, const ons_strip *strip, int64_t unit) {
    for (int64_t i = 0; i < strip->rows.width; i++)
        for (int64_t b = 0; b < wave->blocks; b++)
            strip->kernels->candidates.take(
                &strip->candidates[i],
                (const ons_candidates *)(const void *)candidates_at(wave, unit + b, i));
}

static void store_sums(const wave *wave, int64_t strips) {
    ons_strip strip = ons_strip_of(wave->job, 0);
    for (int64_t i = 0; i < strips; i++) {
        ons_strip_at(&strip, wave->first + i);
        for (int64_t row = 0; row < strip.rows.width; row++) {
            const ons_state *state = &wave->merged[i * strip.plan->width + row];
            const double sum[2] = {state->d, state->d_low};
            memcpy(strip.y + row * strip.y_across, sum, sizeof sum);
        }
    }
}

static void divide_by_pairs(void *context, int worker, int64_t first, int64_t last) {
    const ons_job *job = context;
    ons_strip strip = ons_strip_of(job, worker);
    int64_t blocks = blocks_of(job->plan), N = job->plan->N;
    for (int64_t unit = first; unit < last; unit++) {
        int64_t begin = unit % blocks * ONS_BLOCK;
        ons_strip_at(&strip, unit / blocks);
        ons_strip_take_pairs(&strip);
        ons_online_finish(&strip, begin, N - begin < ONS_BLOCK ? N : begin + ONS_BLOCK);
    }
}
