/* topk.c - the end of an operation that selects. Its candidates were found while the pairs of the
 * rows were (online.c); their values are made as softmax or log_softmax makes all of a row.
 * Milakov and Gimelshein, arXiv 1805.02867, algorithm 4. */
#include "topk.h"

#include <string.h>

/* What is missing of the k is -inf, and there are as many in the row: among its first k elements
 * beside the candidates. An anchor could make -inf of others. */
static void fill(ons_strip *strip, int64_t row, ons_candidates *candidates) {
    bool anchored = strip->anchored;
    strip->anchored = false;
    int64_t N = candidates->count < candidates->k ? strip->plan->N : 0;
    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        if (candidates->count == candidates->k) break;
        ons_tile x = ons_strip_load(strip, j, n);
        strip->kernels->candidates.fill(candidates, (char *)x.data + row * x.across, x.along, n, j);
    }
    strip->anchored = anchored;
}

/* The row alone, as a tile of it is finished. */
static ons_rows only(const ons_rows *rows, int64_t row, int64_t size) {
    ons_rows one = *rows;
    void **each[] = {&one.shift, &one.floor, &one.first, &one.second};
    for (int i = 0; i < 4; i++) *each[i] = (char *)*each[i] + row * size;
    one.width = 1;
    one.state += row;
    one.next = ONS_NO_TILE;
    return one;
}

/* Elements that the mask excludes have their result in a row of NaN too. Elsewhere they have it as
 * -inf has it. */
static void exclude(const ons_strip *strip, int64_t row, const ons_candidates *candidates) {
    const ons_problem *problem = strip->problem;
    if (!strip->where || isfinite(strip->rows.state[row].m)) return;
    int64_t step = problem->operand[ONS_WHERE].stride[problem->dims - 1];
    int64_t size = ons_dtype_size(strip->plan->compute);
    const char *where = strip->where + row * strip->where_across;
    for (int64_t i = 0; i < candidates->count; i++)
        strip->move->exclude((char *)candidates->values + i * size,
                             where + candidates->places[i] * step, 0,
                             problem->log ? -INFINITY : 0.0, 1);
}

static void store_places(const ons_strip *strip, int64_t row, const ons_candidates *candidates) {
    const ons_problem *problem = strip->problem;
    const ons_operand *indices = &problem->operand[ONS_INDICES];
    int64_t step = indices->stride[problem->dims - 1];
    char *to = strip->indices + row * strip->indices_across;
    for (int64_t i = 0; i < candidates->count; i++, to += step) {
        int32_t narrow = (int32_t)candidates->places[i];
        if (indices->dtype == ONS_INT64)
            memcpy(to, &candidates->places[i], sizeof(int64_t));
        else
            memcpy(to, &narrow, sizeof narrow);
    }
}

void ons_topk_finish(ons_strip *strip) {
    const ons_problem *problem = strip->problem;
    const ons_operand *y = &problem->operand[ONS_Y];
    const ons_ending *ending =
        &strip->kernels->end_row[problem->log ? ONS_OPERATION_log_softmax : ONS_OPERATION_softmax];
    int64_t size = ons_dtype_size(strip->plan->compute);
    strip->primitives->set_references(&strip->rows);
    ending->end_rows(&strip->rows);
    for (int64_t i = 0; i < strip->rows.width; i++) {
        ons_candidates *row = &strip->candidates[i];
        if (!problem->sorted || row->count > ONS_ORDERED_AT_ONCE)
            strip->kernels->candidates.cut(row);
        fill(strip, i, row);
        if (problem->sorted) strip->kernels->candidates.order(row);
        int64_t k = row->count; /* fewer than asked for only if x is written to meanwhile */
        store_places(strip, i, row);
        if (strip->anchored) strip->move->subtract(row->values, &strip->anchor[i], false, k);
        ons_tile values = {row->values, size, k * size};
        ons_rows one = only(&strip->rows, i, size);
        ending->finish(&one, values, values, k);
        exclude(strip, i, row);
        strip->move->store(strip->y + i * strip->y_across, y->stride[problem->dims - 1], y->dtype,
                           row->values, k);
    }
    if (strip->pairs) ons_strip_store_pairs(strip);
}
