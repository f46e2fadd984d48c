/* candidates.c - the memory of a strip's candidates: a head for each row; then for each row its
 * values, places and maxima; then the selected values and places. */
#include "candidates.h"

#include <string.h>

#include "strip.h"

static int64_t heads_bytes(const ons_plan *plan) {
    return ons_padded(plan->width * (int64_t)sizeof(ons_candidates));
}

static int64_t values_bytes(const ons_plan *plan, int64_t count) {
    return ons_padded(count * ons_dtype_size(plan->compute));
}

static int64_t places_bytes(int64_t count) { return ons_padded(count * (int64_t)sizeof(int64_t)); }

static int64_t buffer_bytes(const ons_plan *plan, int64_t count) {
    return values_bytes(plan, count) + places_bytes(count);
}

/* The maxima of a row: a vector for each block of 64 elements (kernel/topk.h). */
static int64_t maxima_bytes(const ons_plan *plan) {
    int64_t most = ons_taken_at_once(plan), n = plan->N < most ? plan->N : most;
    return n / 64 * 64;
}

static int64_t row_bytes(const ons_plan *plan) {
    return buffer_bytes(plan, ons_candidates_room(plan)) + maxima_bytes(plan);
}

/* The selected elements of all rows. Ordering may write up to ONS_ORDERED_AT_ONCE elements after
 * the last row. */
static int64_t selected_count(const ons_plan *plan) {
    return plan->width * plan->k + ONS_ORDERED_AT_ONCE;
}

int64_t ons_candidates_bytes(const ons_plan *plan) {
    if (plan->k == 0) return 0;
    return heads_bytes(plan) + plan->width * row_bytes(plan) +
           buffer_bytes(plan, selected_count(plan));
}

void ons_place_candidates(const ons_plan *plan, ons_candidates *rows, ons_selected *selected) {
    int64_t room = ons_candidates_room(plan), each = row_bytes(plan);
    char *own = (char *)rows + heads_bytes(plan);
    for (int64_t i = 0; i < plan->width; i++, own += each)
        rows[i] = (ons_candidates){.k = plan->k,
                                   .room = room,
                                   .values = own,
                                   .places = (int64_t *)(void *)(own + values_bytes(plan, room)),
                                   .maxima = own + buffer_bytes(plan, room)};
    selected->values = own;
    selected->places = (int64_t *)(void *)(own + values_bytes(plan, selected_count(plan)));
}

void ons_no_candidates(ons_candidates *rows, int64_t width) {
    for (int64_t i = 0; i < width; i++) {
        rows[i].count = 0;
        rows[i].least = -INFINITY;
        rows[i].many = true;
        rows[i].closed = false;
    }
}

static int64_t max_of_block(const ons_plan *plan) {
    return plan->k < ONS_BLOCK ? plan->k : ONS_BLOCK;
}

int64_t ons_kept_candidates_bytes(const ons_plan *plan) {
    return ons_padded(sizeof(ons_candidates)) + buffer_bytes(plan, max_of_block(plan));
}

void ons_keep_candidates(const ons_plan *plan, char *kept, const ons_candidates *row) {
    int64_t most = max_of_block(plan);
    ons_candidates *head = (ons_candidates *)(void *)kept;
    *head = *row;
    head->values = kept + ons_padded(sizeof *head);
    head->places = (int64_t *)(void *)((char *)head->values + values_bytes(plan, most));
    memcpy(head->values, row->values, (size_t)(row->count * ons_dtype_size(plan->compute)));
    memcpy(head->places, row->places, (size_t)row->count * sizeof(int64_t));
}
