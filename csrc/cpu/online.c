/* online.c - two passes: the running (m, d), tile by tile; divide. Milakov and Gimelshein, arXiv
 * 1805.02867, algorithm 3, with a tile in place of an element. Any row length. An operation that
 * takes a gradient adds up its sum tile by tile, then computes the results. An operation that
 * selects has one pass, which also finds the candidates for the k largest. */
#include "loss.h"
#include "online.h"
#include "topk.h"

/* Defined after the algorithm. */
static void add_gradients(ons_strip *strip, int64_t begin, int64_t end);
static void finish_gradients(ons_strip *strip, int64_t begin, int64_t end);
static bool takes_gradient_rows(const ons_strip *strip);
static void gradient_rows(ons_strip *strip);

void ons_online_statistics(ons_strip *strip, int64_t begin, int64_t end) {
    ons_rows *rows = &strip->rows;
    if (strip->epilogue->add_gradient) {
        add_gradients(strip, begin, end);
        return;
    }
    ons_candidates *candidates = strip->anchored ? NULL : strip->candidates;
    int64_t taken = begin;
    ONS_FOR_EACH_TILE(strip, begin, end, j, n) {
        ons_tile x = ons_strip_load(strip, j, n);
        if (candidates)
            strip->primitives->max_of_blocks(rows, candidates, x, n, j - taken);
        else
            strip->primitives->max(rows, ONS_NO_TILE, x, n);
        /* d * e^(m - m'): the same sum, relative to the new maximum */
        ons_strip_rescale(strip, j % ONS_BLOCK == 0);
        /* fetch it while the core is busy */
        rows->next = j + n < strip->plan->N ? ons_strip_next_tile(strip, j + n)
                                            : ons_strip_next_strip(strip, 0);
        strip->primitives->sum_exp(rows, x, n);
        ons_strip_end_tile(strip, j + n, end, false);
        int64_t ready = j + n - taken;
        if (!candidates || (j + n < end && ready < ons_taken_at_once(strip->plan))) continue;
        if (ready > n) x = ons_strip_load(strip, taken, ready); /* copies nothing */
        strip->primitives->take(rows, candidates, x, ready, taken);
        taken += ready;
    }
}

void ons_online_finish(ons_strip *strip, int64_t begin, int64_t end) {
    if (strip->epilogue->finish_gradient) {
        finish_gradients(strip, begin, end);
        return;
    }
    if (strip->candidates) {
        if (begin == 0) ons_topk_finish(strip);
        return;
    }
    if (!strip->epilogue->finish) {
        if (begin == 0) ons_strip_store_values(strip);
        return;
    }
    const bool loss = ons_operations[strip->problem->operation].loss;
    strip->primitives->set_references(&strip->rows);
    strip->epilogue->end_rows(&strip->rows);
    if (loss) ons_loss_end_rows(strip);
    ONS_FOR_EACH_TILE(strip, begin, end, j, n) {
        ons_tile x = ons_strip_load(strip, j, n);
        strip->rows.next = ons_strip_next_tile(strip, j + n);
        strip->epilogue->finish(&strip->rows, ons_strip_result(strip, j), x, n);
        if (loss) ons_loss_finish(strip, j, n);
        ons_strip_store(strip, j, n);
    }
    if (strip->rows.past_caches) strip->primitives->fence();
}

void ons_online(ons_strip *strip) {
    if (takes_gradient_rows(strip)) {
        gradient_rows(strip);
        return;
    }
    do {
        ons_online_statistics(strip, 0, strip->plan->N);
    } while (ons_strip_anchor(strip));
    ons_online_finish(strip, 0, strip->plan->N);
}

void ons_cpu_online(const ons_job *job) { ons_for_each_strip(job, ons_online); }

/* Elements j to j + n of y and of its gradient, and the place of their results. */
static ons_gradients gradients_at(ons_strip *strip, int64_t j, int64_t n) {
    return (ons_gradients){.dx = ons_strip_result(strip, j),
                           .dy = ons_strip_load_input(strip, ONS_GRADIENT, j, n),
                           .y = ons_strip_load_input(strip, ONS_X, j, n),
                           .n = n};
}

static void add_gradients(ons_strip *strip, int64_t begin, int64_t end) {
    ONS_FOR_EACH_TILE(strip, begin, end, j, n) {
        ons_gradients of = gradients_at(strip, j, n);
        strip->epilogue->add_gradient(&strip->rows, of.dy, of.y, n);
    }
}

static void finish_gradients(ons_strip *strip, int64_t begin, int64_t end) {
    strip->epilogue->end_gradients(&strip->rows, strip->scale);
    ONS_FOR_EACH_TILE(strip, begin, end, j, n) {
        strip->epilogue->finish_gradient(&strip->rows, gradients_at(strip, j, n));
        ons_strip_store(strip, j, n);
    }
    if (strip->rows.past_caches) strip->primitives->fence();
}

/* Whether whole rows can be processed one after the other: they lie in memory as in a tile, or fit
 * in one tile. */
static bool takes_gradient_rows(const ons_strip *strip) {
    const ons_plan *plan = strip->plan;
    bool direct = plan->x_direct && plan->y_direct && !plan->stages_gradient;
    return strip->epilogue->gradient_rows && plan->form == ONS_ROW_FORM &&
           (direct || plan->N <= plan->tile);
}

static void gradient_rows(ons_strip *strip) {
    const ons_plan *plan = strip->plan;
    strip->epilogue->gradient_rows(&strip->rows, gradients_at(strip, 0, plan->N), plan->tile,
                                   strip->scale);
    ons_strip_store(strip, 0, plan->N);
    if (strip->rows.past_caches) strip->primitives->fence();
}
