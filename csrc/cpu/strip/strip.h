/* strip.h - a strip: the neighbouring rows that one thread works on together, in the row form or
 * the column form. A method needs to know nothing of types, strides, masks or scales. It asks the
 * strip for tiles of x, and for places to put y. */
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
    int64_t first_row; /* its number among all rows, if these are in order */
    /* element 0 of row 0 of each operand, and its bytes from row to row */
    const char *x, *where, *scale_in_memory, *gradient;
    char *y, *pairs, *indices;
    int64_t x_across, y_across, where_across, scale_across, pairs_across, gradient_across,
        indices_across;
    double *scale, *anchor;     /* one a row */
    void *staging;              /* room for one tile of the compute type */
    void *gradient_staging;     /* the same for a tile of the gradient, if the plan stages it */
    ons_candidates *candidates; /* of the rows, if the operation selects; else NULL */
    ons_selected selected;      /* the same */
    char *kept; /* room for all exponentials of the rows, if the method keeps them apart */
} ons_strip;

static inline int ons_outer_dims(const ons_problem *problem) {
    return problem->dims - problem->reduced_dims;
}

/* Bytes rounded up to whole cache lines. */
static inline int64_t ons_padded(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

int64_t ons_strip_bytes(const ons_plan *plan);
int64_t ons_strip_count(const ons_problem *problem, const ons_plan *plan);

/* ons_strip_of makes a strip in worker's part of the job's workspace. ons_strip_at moves it to the
 * rows of strip number `index`, with empty states. */
ons_strip ons_strip_of(const ons_job *job, int worker);
void ons_strip_at(ons_strip *strip, int64_t index);

/* Runs `body` on the job's threads, for every strip or for ranges of strips. */
typedef void ons_strip_body(ons_strip *strip);
typedef void ons_range_body(ons_strip *strip, int64_t begin, int64_t end);
void ons_for_each_strip(const ons_job *job, ons_strip_body *body);
void ons_for_each_range(const ons_job *job, ons_range_body *body);

/* Elements j to j + n of the rows: converted, scaled, and -inf where excluded. They may be x
 * itself. Valid until the next call. */
ons_tile ons_strip_load(ons_strip *strip, int64_t j, int64_t n);

/* Elements j to j + n of x or of the gradient, for operations that take a gradient: converted, and
 * 0 where excluded. */
ons_tile ons_strip_load_input(ons_strip *strip, ons_role role, int64_t j, int64_t n);

/* As ons_strip_load, for a method that keeps its row at ons_strip_kept. Converted elements are put
 * there. */
ons_tile ons_strip_load_to_keep(ons_strip *strip, int64_t j, int64_t n);

/* ons_strip_result is the place for elements of y from j on. ons_strip_store then rounds and stores
 * them, and writes the results of excluded elements. */
ons_tile ons_strip_result(ons_strip *strip, int64_t j);
void ons_strip_store(ons_strip *strip, int64_t j, int64_t n);

/* The pair of row i, from its state. */
ons_pair ons_strip_pair(const ons_strip *strip, int64_t i);

/* Store the results of operations with one value a row: one value of the compute type, or all
 * values from the states. The third stores the rows' pairs to ONS_STATISTIC. */
void ons_strip_store_value(const ons_strip *strip, int64_t row, const void *value);
void ons_strip_store_values(ons_strip *strip);
void ons_strip_store_pairs(const ons_strip *strip);

/* The place where a method keeps elements from j on until the row's normalizer is known. It is in y
 * if possible. */
ons_tile ons_strip_kept(ons_strip *strip, int64_t j);

/* The strip as a run of whole rows, if plan->whole_rows. */
ons_run_of_rows ons_strip_as_run(const ons_strip *strip);

/* Strips begin to end as a run, if plan->whole_columns. */
ons_run_of_columns ons_strip_columns(ons_strip *strip, int64_t begin, int64_t end);

/* Converts `count` rows of strip `from`, for a run of rows. */
void ons_strip_convert(const void *from, int64_t first, int64_t count, void *to, int64_t pitch);

/* Writes the results of excluded elements in NaN rows of y. Other rows have them already. */
void ons_strip_exclude_from_nan(const ons_strip *strip);

/* Writes the results of excluded elements in all columns of the strip. */
void ons_strip_exclude_from_columns(const ons_strip *strip);

/* The memory of elements from j on, of these rows or of the next strip's rows, for rows.next. */
ons_tile ons_strip_next_tile(const ons_strip *strip, int64_t j);
ons_tile ons_strip_next_strip(const ons_strip *strip, int64_t j);

/* Room for one tile. ons_strip_load and ons_strip_result may use it too. */
ons_tile ons_strip_scratch(const ons_strip *strip);
/* Room for one tile of a gradient. */
ons_tile ons_strip_gradient_scratch(const ons_strip *strip);

/* Call it after the maxima m have grown. It rescales each d to its new m, and sets shift and floor
 * for the next exponentials. `empty`: the running sums are empty. */
void ons_strip_rescale(ons_strip *strip, bool empty);

/* Call it after a tile that ends at `at` has been added up. `end`: the end of the last tile.
 * `plain`: the tile was added by sum. */
void ons_strip_end_tile(ons_strip *strip, int64_t at, int64_t end, bool plain);

/* Anchors the rows whose |m| is above ONS_LARGEST_REFERENCE at their own m. x - m is exact for
 * every element that matters: either x >= m / 2 (Sterbenz), or e^(x - m) is 0. Returns true if it
 * anchored a row: the states are then empty, and must be found again. It does so at most once for a
 * strip. */
bool ons_strip_anchor(ons_strip *strip);

/* Sets the rows' states and anchors from the pairs that the caller gives. */
void ons_strip_take_pairs(ons_strip *strip);

/* for (j, n) over the tiles of [begin, end) */
#define ONS_FOR_EACH_TILE(strip, begin, end, j, n) \
    for (int64_t j = (begin), n; j < (end) && (n = ons_tile_length(strip, j, end)) > 0; j += n)

static inline int64_t ons_tile_length(const ons_strip *strip, int64_t j, int64_t end) {
    return end - j < strip->plan->tile ? end - j : strip->plan->tile;
}

#endif
