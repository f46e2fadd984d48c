/* topk.c - the end of an operation that selects. online.c finds the candidates together with the
 * pairs of the rows. Here their values become results, as softmax or log_softmax would compute
 * them. Milakov and Gimelshein, arXiv 1805.02867, algorithm 4. */
#include "topk.h"

#include <string.h>

/* Whether each row has k candidates. */
static bool are_enough(const ons_strip *strip) {
    for (int64_t i = 0; i < strip->rows.width; i++)
        if (strip->candidates[i].count < strip->plan->k) return false;
    return true;
}

static ons_mask mask_of(const ons_strip *strip, int64_t row) {
    if (!strip->where) return (ons_mask){NULL, 0};
    return (ons_mask){strip->where + row * strip->where_across,
                      strip->problem->operand[ONS_WHERE].stride[strip->problem->dims - 1]};
}

/* Whether the mask allows a row more elements than the row has candidates. Only rows with fewer
 * than k candidates count. */
static bool are_more_allowed(const ons_strip *strip) {
    int64_t N = strip->plan->N;
    for (int64_t i = 0; i < strip->rows.width; i++) {
        const ons_candidates *row = &strip->candidates[i];
        if (row->count == row->k) continue;
        ons_mask where = mask_of(strip, i);
        int64_t allowed = 0;
        for (int64_t j = 0; j < N; j++) allowed += where.data[j * where.step] != 0;
        if (allowed > row->count) return true;
    }
    return false;
}

/* Fills rows that have fewer than k candidates. The missing elements are -inf. Without a mask they
 * are among the row's first k elements. With a mask they may be anywhere, and allowed elements come
 * before excluded ones. An anchor could turn other elements into -inf, so it is off. */
static void fill(ons_strip *strip) {
    bool anchored = strip->anchored;
    strip->anchored = false;
    int first = strip->where && !are_more_allowed(strip); /* 1: only excluded elements */
    for (int of_excluded = first; of_excluded <= (strip->where != NULL); of_excluded++) {
        ONS_FOR_EACH_TILE(strip, 0, strip->plan->N, j, n) {
            if (are_enough(strip)) break;
            ons_tile x = ons_strip_load(strip, j, n);
            for (int64_t i = 0; i < strip->rows.width; i++) {
                ons_tile row = {(char *)x.data + i * x.across, x.along, x.across};
                strip->kernels->candidates.fill(&strip->candidates[i], row, mask_of(strip, i),
                                                !of_excluded, n, j);
            }
        }
    }
    strip->anchored = anchored;
}

/* Writes the results of excluded elements in NaN rows. In other rows they already have the result
 * of -inf. */
static void exclude(const ons_strip *strip) {
    const ons_problem *problem = strip->problem;
    int64_t k = strip->plan->k, size = ons_dtype_size(strip->plan->compute);
    for (int64_t row = 0; row < strip->rows.width; row++) {
        if (isfinite(strip->rows.state[row].m)) continue;
        ons_mask where = mask_of(strip, row);
        for (int64_t i = row * k; i < (row + 1) * k; i++) {
            ons_mask of_one = {where.data + strip->selected.places[i] * where.step, 0};
            strip->move->exclude(strip->selected.values + i * size, of_one,
                                 problem->log ? -INFINITY : 0.0, 1);
        }
    }
}

/* Puts the k largest of each row in order. If another thread writes to x meanwhile, there may be
 * fewer; the rest then has any value, and place 0. */
void ons_topk_select(ons_strip *strip) {
    const ons_of_candidates *candidates = &strip->kernels->candidates;
    int64_t k = strip->plan->k, size = ons_dtype_size(strip->plan->compute);
    for (int64_t i = 0; i < strip->rows.width; i++) {
        ons_candidates *row = &strip->candidates[i];
        /* with many more, cutting to k first is faster */
        bool few = row->count <= ONS_ORDERED_AT_ONCE && row->count <= k + k / 2 + 32;
        if (!strip->problem->sorted || !few) candidates->cut(row);
    }
    if (!are_enough(strip)) fill(strip);
    for (int64_t i = 0; i < strip->rows.width; i++) {
        ons_candidates *row = &strip->candidates[i];
        char *values = strip->selected.values + i * k * size;
        int64_t *places = strip->selected.places + i * k;
        if (strip->problem->sorted) {
            candidates->order(row, values, places);
        } else {
            memcpy(values, row->values, (size_t)(row->count * size));
            memcpy(places, row->places, (size_t)row->count * sizeof *places);
        }
        for (int64_t j = row->count; j < k; j++) places[j] = 0;
    }
}

/* Turns the selected elements into results. */
static void finish_rows(ons_strip *strip) {
    const ons_problem *problem = strip->problem;
    const ons_epilogue *epilogue =
        &strip->kernels->end_row[problem->log ? ONS_OPERATION_log_softmax : ONS_OPERATION_softmax];
    int64_t k = strip->plan->k, size = ons_dtype_size(strip->plan->compute);
    ons_tile values = {strip->selected.values, size, k * size};
    strip->primitives->set_references(&strip->rows);
    epilogue->end_rows(&strip->rows);
    for (int64_t i = 0; i < strip->rows.width && strip->anchored; i++)
        strip->move->subtract((char *)values.data + i * values.across, &strip->anchor[i], false, k);
    strip->rows.next = ONS_NO_TILE;
    epilogue->finish(&strip->rows, values, values, k);
}

static void store_places(const ons_strip *strip, char *to, const int64_t *places, int64_t n) {
    const ons_operand *indices = &strip->problem->operand[ONS_INDICES];
    int64_t step = indices->stride[strip->problem->dims - 1];
    if (indices->dtype == ONS_INT64 && step == sizeof *places) {
        memcpy(to, places, (size_t)n * sizeof *places);
        return;
    }
    for (int64_t i = 0; i < n; i++, to += step) {
        int32_t narrow = (int32_t)places[i];
        if (indices->dtype == ONS_INT64)
            memcpy(to, &places[i], sizeof *places);
        else
            memcpy(to, &narrow, sizeof narrow);
    }
}

/* Whether the results of all rows lie one after the other without gaps. */
static bool follow_each_other(const ons_strip *strip, ons_role role, int64_t across) {
    const ons_operand *operand = &strip->problem->operand[role];
    int64_t step = operand->stride[strip->problem->dims - 1];
    return across == strip->plan->k * step;
}

static void store_rows(const ons_strip *strip) {
    const ons_operand *y = &strip->problem->operand[ONS_Y];
    int64_t k = strip->plan->k, width = strip->rows.width;
    int64_t step = y->stride[strip->problem->dims - 1];
    int64_t size = ons_dtype_size(strip->plan->compute);
    bool joined = follow_each_other(strip, ONS_Y, strip->y_across) &&
                  follow_each_other(strip, ONS_INDICES, strip->indices_across);
    int64_t at_once = joined ? width : 1;
    for (int64_t i = 0; i < width; i += at_once) {
        strip->move->store(strip->y + i * strip->y_across, step, y->dtype,
                           strip->selected.values + i * k * size, at_once * k);
        store_places(strip, strip->indices + i * strip->indices_across,
                     strip->selected.places + i * k, at_once * k);
    }
}

void ons_topk_store(ons_strip *strip) {
    if (strip->where) exclude(strip);
    store_rows(strip);
    if (strip->pairs) ons_strip_store_pairs(strip);
}

void ons_topk_finish(ons_strip *strip) {
    ons_topk_select(strip);
    finish_rows(strip);
    ons_topk_store(strip);
}
