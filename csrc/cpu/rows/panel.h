/* panel.h - the neighbouring rows that one thread works on together, in the row form or the column
 * form. Tells a method nothing of types, strides, masks or scales: it asks for tiles of x, and for
 * places to put y. */
#ifndef ONS_CPU_PANEL_H
#define ONS_CPU_PANEL_H

#include "../cpu.h"

typedef struct {
    const ons_problem *problem;
    const ons_plan *plan;
    const ons_primitives *primitives;
    const ons_ending *ending;
    const ons_pipelines *pipelines;
    const ons_kernels *kernels;
    const ons_movers *move;
    ons_rows rows;
    bool anchored;
    /* element 0 of row 0 of each operand, and the bytes from row to row */
    const char *x, *where, *scale_in_memory;
    char *y;
    int64_t x_across, y_across, where_across, scale_across;
    double *scale, *anchor; /* one a row */
    void *staging;          /* room for one tile of the compute type */
    char *kept; /* room for all exponentials of the rows, where the method keeps them apart */
} ons_panel;

static inline int ons_outer_dims(const ons_problem *problem) {
    return problem->dims - problem->reduced_dims;
}

/* Whole cache lines. */
static inline int64_t ons_padded(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

int64_t ons_panel_bytes(const ons_plan *plan);
int64_t ons_panel_count(const ons_problem *problem, const ons_plan *plan);

/* A panel in worker's part of the job's workspace; ons_panel_at puts it on the rows of that index,
 * with empty states. */
ons_panel ons_panel_of(const ons_job *job, int worker);
void ons_panel_at(ons_panel *panel, int64_t index);

/* Runs `body` over every panel of the job, on its threads; or over stretches of them. */
typedef void ons_panel_body(ons_panel *panel);
typedef void ons_stretch_body(ons_panel *panel, int64_t begin, int64_t end);
void ons_for_each_panel(const ons_job *job, ons_panel_body *body);
void ons_for_each_stretch(const ons_job *job, ons_stretch_body *body);

/* Elements j to j + n of the rows, as the arithmetic sees them: converted, scaled, excluded ones
 * -inf. Lives until the next call, or is x itself. */
ons_tile ons_panel_load(ons_panel *panel, int64_t j, int64_t n);

/* For a method that keeps its row where ons_panel_kept says: x itself, or what had to be converted,
 * which is there then. */
ons_tile ons_panel_load_to_keep(ons_panel *panel, int64_t j, int64_t n);

/* Where to put elements from j on of y, and the end of that: rounds, stores, gives excluded ones
 * their result. */
ons_tile ons_panel_result(ons_panel *panel, int64_t j);
void ons_panel_store(ons_panel *panel, int64_t j, int64_t n);

/* The results of rows of which there is one each: one of them, of the compute type; all, from their
 * states. */
void ons_panel_store_value(const ons_panel *panel, int64_t row, const void *value);
void ons_panel_store_values(ons_panel *panel);

/* Where what a method keeps from j on stays until the row's normalizer is known: in y where that
 * will do. */
ons_tile ons_panel_kept(ons_panel *panel, int64_t j);

/* The panel as a run of whole rows; plan->whole_rows says that it is one. */
ons_run_of_rows ons_panel_run(const ons_panel *panel);

/* Panels begin to end, where plan->whole_columns says that they are such a run. */
ons_run_of_columns ons_panel_columns(ons_panel *panel, int64_t begin, int64_t end);

/* `count` rows of panel `from` as the arithmetic sees them, to where a run of rows wants them. */
void ons_panel_bring(const void *from, int64_t first, int64_t count, void *to, int64_t pitch);

/* Gives the excluded elements their result in the rows of y that have become NaN: elsewhere they
 * have it. */
void ons_panel_exclude_from_nan(const ons_panel *panel);

/* The same of a panel of columns, in all of them. */
void ons_panel_exclude_from_columns(const ons_panel *panel);

/* Where elements from j on lie in memory, of these rows and of those of the next panel, as
 * rows.next takes it. */
ons_tile ons_panel_next_tile(const ons_panel *panel, int64_t j);
ons_tile ons_panel_next_panel(const ons_panel *panel, int64_t j);

/* Room for one tile; ons_panel_load may use it, and ons_panel_result. */
ons_tile ons_panel_scratch(const ons_panel *panel);

/* Once the maxima m have grown: takes each d, and the exponentials to come, relative to its new m.
 */
void ons_panel_refer(ons_panel *panel);

/* To be called when the elements of a tile have been added up, which ends at `at`. `end`: where the
 * last tile ends; `plain`: they were added by sum. */
void ons_panel_end_tile(ons_panel *panel, int64_t at, int64_t end, bool plain);

/* Rows whose |m| is above ONS_LARGEST_REFERENCE are taken relative to their m from here on. x - m
 * is exact for every element that matters: x >= m / 2 (Sterbenz), the others give 0. True where
 * there was one: the states are empty again, and what they hold must be found anew. At most once
 * for a panel. */
bool ons_panel_anchor(ons_panel *panel);

/* for (j, n) over the tiles of [begin, end) */
#define ONS_FOR_EACH_TILE(panel, begin, end, j, n) \
    for (int64_t j = (begin), n; j < (end) && (n = ons_tile_length(panel, j, end)) > 0; j += n)

static inline int64_t ons_tile_length(const ons_panel *panel, int64_t j, int64_t end) {
    return end - j < panel->plan->tile ? end - j : panel->plan->tile;
}

#endif
