/* strip.h - a strip: the neighbouring rows that one thread works on together, in the row form or
 * the column form. Tells a method nothing of types, strides, masks or scales: it asks for tiles
 * of x, and for places to put y. */
#ifndef ONS_CPU_STRIP_H
#define ONS_CPU_STRIP_H

#include "candidates.h"

typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    const ons_primitives *primitives;
    const ons_epilogue *epilogue;
    const ons_pipelines *pipelines;
    const ons_kernels *kernels;
    const ons_movers *move;
    ons_rows rows;
    bool anchored;
    /* element 0 of row 0 of each operand, and the bytes from row to row */
    const char *x, *where, *scale_in_memory, *gradient;
    char *y, *pairs, *indices;
    int64_t x_across, y_across, where_across, scale_across, pairs_across, gradient_across,
        indices_across;
    double *scale, *anchor;     /* one a row */
    void *staging;              /* room for one tile of the compute type */
    void *gradient_staging;     /* the same for one of a gradient, where the plan stages it */
    ons_candidates *candidates; /* of the rows, where the operation selects; else NULL */
    ons_selected selected;      /* the same */
    char *kept; /* room for all exponentials of the rows, where the method keeps them apart */
} ons_strip;

static inline int ons_outer_dims(const ons_problem *problem) {
    return problem->dims - problem->reduced_dims;
}

/* Bytes rounded up to whole cache lines. */
static inline int64_t ons_padded(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

int64_t ons_strip_bytes(const ons_plan *plan);
int64_t ons_strip_count(const ons_problem *problem, const ons_plan *plan);

/* A strip in worker's part of the job's workspace; ons_strip_at moves it to the rows of that
 * index, with empty states. */
ons_strip ons_strip_of(const ons_job *job, int worker);
void ons_strip_at(ons_strip *strip, int64_t index);

/* Runs `body` for every strip of the job, on its threads; or for ranges of strips. */
typedef void ons_strip_body(ons_strip *strip);
typedef void ons_range_body(ons_strip *strip, int64_t begin, int64_t end);
void ons_for_each_strip(const ons_job *job, ons_strip_body *body);
void ons_for_each_range(const ons_job *job, ons_range_body *body);

/* Elements j to j + n of the rows: converted, scaled, excluded ones -inf. Valid until the next
 * call; may be x itself. */
ons_tile ons_strip_load(ons_strip *strip, int64_t j, int64_t n);

/* Elements j to j + n of x or of the gradient, for operations that take one: converted, excluded
 * ones 0. */
ons_tile ons_strip_load_input(ons_strip *strip, ons_role role, int64_t j, int64_t n);

/* As ons_strip_load, for a method that keeps its row at ons_strip_kept: x itself, or the converted
 * elements, which are there then. */
ons_tile ons_strip_load_to_keep(ons_strip *strip, int64_t j, int64_t n);

/* Where to put elements from j on of y, and the end of that: rounds, stores, gives excluded ones
 * their result. */
ons_tile ons_strip_result(ons_strip *strip, int64_t j);
void ons_strip_store(ons_strip *strip, int64_t j, int64_t n);

/* The results of rows of which there is one each: one of them, of the compute type; all, from their
 * states; and the rows' pairs to ONS_STATISTIC. */
void ons_strip_store_value(const ons_strip *strip, int64_t row, const void *value);
void ons_strip_store_values(ons_strip *strip);
void ons_strip_store_pairs(const ons_strip *strip);

/* Where a method keeps elements from j on until the row's normalizer is known: in y if it can. */
ons_tile ons_strip_kept(ons_strip *strip, int64_t j);

/* The strip as a run of whole rows, where plan->whole_rows. */
ons_run_of_rows ons_strip_as_run(const ons_strip *strip);

/* Strips begin to end as a run, where plan->whole_columns. */
ons_run_of_columns ons_strip_columns(ons_strip *strip, int64_t begin, int64_t end);

/* Converts `count` rows of strip `from`, for a run of rows. */
void ons_strip_convert(const void *from, int64_t first, int64_t count, void *to, int64_t pitch);

/* Writes the excluded elements' result in rows of y that are NaN: in others they have it. */
void ons_strip_exclude_from_nan(const ons_strip *strip);

/* Writes the excluded elements' result in all columns of the strip. */
void ons_strip_exclude_from_columns(const ons_strip *strip);

/* The memory of elements from j on, of these rows and of the next strip's, for rows.next. */
ons_tile ons_strip_next_tile(const ons_strip *strip, int64_t j);
ons_tile ons_strip_next_strip(const ons_strip *strip, int64_t j);

/* Room for one tile; ons_strip_load may use it, and ons_strip_result. */
ons_tile ons_strip_scratch(const ons_strip *strip);
/* Room for one tile of a gradient. */
ons_tile ons_strip_gradient_scratch(const ons_strip *strip);

/* Once the maxima m have grown: rescales each d to its new m, and sets shift and floor for the
 * exponentials to come. `empty`: the running sums are. */
void ons_strip_rescale(ons_strip *strip, bool empty);

/* To be called when the elements of a tile have been added up, which ends at `at`. `end`: where the
 * last tile ends; `plain`: they were added by sum. */
void ons_strip_end_tile(ons_strip *strip, int64_t at, int64_t end, bool plain);

/* Rows whose |m| is above ONS_LARGEST_REFERENCE are taken relative to their m from here on. x -
 * m is exact for every element that matters: x >= m / 2 (Sterbenz), the others give 0. True
 * where there was one: the states are empty again, and must be found anew. At most once for a
 * strip. */
bool ons_strip_anchor(ons_strip *strip);

/* The states of the rows, and their anchors, from the pairs that are given. */
void ons_strip_take_pairs(ons_strip *strip);

/* for (j, n) over the tiles of [begin, end) */
#define ONS_FOR_EACH_TILE(strip, begin, end, j, n) \
    for (int64_t j = (begin), n; j < (end) && (n = ons_tile_length(strip, j, end)) > 0; j += n)

static inline int64_t ons_tile_length(const ons_strip *strip, int64_t j, int64_t end) {
    return end - j < strip->plan->tile ? end - j : strip->plan->tile;
}

#endif
