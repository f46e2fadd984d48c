/* kernels_tmpl.h - the functions of each operation, and the table of them all. Part of
 * primitives_tmpl.h, whose parameters and names it uses. */

/* A constant that says the operation makes a function of what is written for all. */
#define RUN(name, operation, type, body) \
    static bool FN(operation##_##name)(const type *run) { return body; }
/* Apart: the compiler would keep in memory in all of these what it must in one. */
#define SHORT_COLUMNS(name, operation, N, plain)                                  \
    static ONS_APART bool FN(operation##_##name)(const ons_run_of_columns *run) { \
        return FN(short_columns_of)(run, ONS_OPERATION_##operation, N, plain);    \
    }
#define FINISH(name, operation)                                                                   \
    static void FN(operation##_##name)(const ons_rows *rows, ons_tile y, ons_tile x, int64_t n) { \
        FN(name)(ONS_OPERATION_##operation, rows, y, x, n);                                       \
    }

#if BITS == 32
#define HALF_BATCHES(operation)                                      \
    RUN(half_batches, operation, ons_run_of_rows,                    \
        FN(batches_to)(run, ONS_OPERATION_##operation, ONS_FLOAT16)) \
    RUN(bfloat_batches, operation, ons_run_of_rows,                  \
        FN(batches_to)(run, ONS_OPERATION_##operation, ONS_BFLOAT16))
#define HALF_PIPELINES(operation)                                  \
    RUN(half_rows, operation, ons_run_of_rows,                     \
        FN(rows_to)(run, ONS_OPERATION_##operation, ONS_FLOAT16))  \
    RUN(bfloat_rows, operation, ons_run_of_rows,                   \
        FN(rows_to)(run, ONS_OPERATION_##operation, ONS_BFLOAT16)) \
    HALF_BATCHES(operation)
#define ROWS(operation, name)                        \
    {[ONS_FLOAT16] = FN(operation##_half_##name),    \
     [ONS_BFLOAT16] = FN(operation##_bfloat_##name), \
     [OWN] = FN(operation##_own_##name)}
#else
#define HALF_BATCHES(operation)
#define HALF_PIPELINES(operation)
#define ROWS(operation, name) {[OWN] = FN(operation##_own_##name)}
#endif

#define ENDINGS_OF_ROW(operation)                                               \
    static void FN(operation##_end_rows)(const ons_rows *rows) {                \
        for (int64_t i = 0; i < rows->width; i++) FN(row)                       \
        (ONS_OPERATION_##operation, &rows->state[i], 0.0, (T *)rows->first + i, \
         (T *)rows->second + i);                                                \
    }                                                                           \
    FINISH(finish_row, operation)                                               \
    FINISH(finish_kept_row, operation)                                          \
    FINISH(finish_plain_row, operation)                                         \
    FINISH(finish_column, operation)                                            \
    FINISH(finish_kept_column, operation)                                       \
    FINISH(finish_plain_column, operation)

#define ENDINGS_OF_VALUE(operation)                                                     \
    static void FN(operation##_end_values)(const ons_rows *rows, const double *anchor,  \
                                           void *values) {                              \
        for (int64_t i = 0; i < rows->width; i++) FN(set_element)                       \
        (values, i, (T)FN(operation##_value)(&rows->state[i], anchor ? anchor[i] : 0)); \
    }

#define ENDINGS_OF_PAIR(operation)
#define ENDINGS_OF_TOPK(operation)

#define ENDINGS_OF_GRADIENT(operation)                                                     \
    GRADIENT_ENDINGS(operation, row)                                                       \
    GRADIENT_ENDINGS(operation, column)                                                    \
    static void FN(operation##_end_gradients)(const ons_rows *rows, const double *scale) { \
        FN(end_gradients)(ONS_OPERATION_##operation, rows, scale);                         \
    }                                                                                      \
    static void FN(operation##_gradients)(const ons_rows *rows, ons_tile dx, ons_tile dy,  \
                                          ons_tile y, int64_t n, int64_t tile,             \
                                          const double *scale) {                           \
        FN(gradient_rows)                                                                  \
        (ONS_OPERATION_##operation, rows, dx, dy, y, n, tile, scale,                       \
         FN(operation##_adds_products));                                                   \
    }
#define GRADIENT_ENDINGS(operation, form)                                                     \
    static void FN(operation##_add_##form)(const ons_rows *rows, ons_tile dy, ons_tile y,     \
                                           int64_t n) {                                       \
        FN(add_gradient_##form)(rows, dy, y, n, FN(operation##_adds_products));               \
    }                                                                                         \
    static void FN(operation##_finish_##form)(const ons_rows *rows, ons_tile dx, ons_tile dy, \
                                              ons_tile y, int64_t n) {                        \
        FN(finish_gradient_##form)(ONS_OPERATION_##operation, rows, dx, dy, y, n);            \
    }

#define ONS_OPERATION(name, result, keeps, excluded, summary) ENDINGS_OF_##result(name)
#include "../../op/operations.def"
#undef ONS_OPERATION

#ifndef WITHOUT_PIPELINES
#define RUNS_OF_ROW(operation)                                                                  \
    RUN(own_rows, operation, ons_run_of_rows, FN(rows_to)(run, ONS_OPERATION_##operation, OWN)) \
    RUN(own_batches, operation, ons_run_of_rows,                                                \
        FN(batches_to)(run, ONS_OPERATION_##operation, OWN))                                    \
    HALF_PIPELINES(operation)                                                                   \
    RUN(short_rows, operation, ons_run_of_rows, FN(short_rows)(run, ONS_OPERATION_##operation)) \
    static ONS_APART void FN(operation##_give_apart)(const FN(pipeline) * with, int64_t j,      \
                                                     int64_t n) {                               \
        FN(give_apart)(with, j, n, ONS_OPERATION_##operation);                                  \
    }                                                                                           \
    RUN(columns, operation, ons_run_of_columns,                                                 \
        FN(columns_of_kind)(run, ONS_OPERATION_##operation, FN(operation##_give_apart)))        \
    SHORT_COLUMNS(columns_of_two, operation, 2, true)                                           \
    SHORT_COLUMNS(columns_of_three, operation, 3, true)                                         \
    SHORT_COLUMNS(columns_of_four, operation, 4, true)                                          \
    SHORT_COLUMNS(columns_of_some, operation, run->N, true)                                     \
    SHORT_COLUMNS(changed_columns, operation, run->N, false)                                    \
    static bool FN(operation##_short_columns)(const ons_run_of_columns *run) {                  \
        if (!FN(is_plain)(run, run->at(run->from, run->first)))                                 \
            return FN(operation##_changed_columns)(run);                                        \
        switch (run->N) {                                                                       \
        case 2: return FN(operation##_columns_of_two)(run);                                     \
        case 3: return FN(operation##_columns_of_three)(run);                                   \
        case 4: return FN(operation##_columns_of_four)(run);                                    \
        default: return FN(operation##_columns_of_some)(run);                                   \
        }                                                                                       \
    }

/* From converted rows there is one function of values, whatever type y has. */
#if BITS == 32
#define HALF_VALUES(name, operation, as)                \
    RUN(name, operation, ons_run_of_rows,               \
        run->convert ? FN(operation##_own_batches)(run) \
                     : FN(batches_to)(run, ONS_OPERATION_##operation, as))
#else
#define HALF_VALUES(name, operation, as)
#endif
#define RUNS_OF_VALUE(operation)                             \
    RUN(own_batches, operation, ons_run_of_rows,             \
        FN(batches_to)(run, ONS_OPERATION_##operation, OWN)) \
    HALF_VALUES(half_batches, operation, ONS_FLOAT16)        \
    HALF_VALUES(bfloat_batches, operation, ONS_BFLOAT16)     \
    RUN(short_rows, operation, ons_run_of_rows, FN(short_rows)(run, ONS_OPERATION_##operation))

#define RUNS_OF_PAIR(operation)
#define RUNS_OF_TOPK(operation)
#define RUNS_OF_GRADIENT(operation)

#define ONS_OPERATION(name, result, keeps, excluded, summary) RUNS_OF_##result(name)
#include "../../op/operations.def"
#undef ONS_OPERATION
#endif

#define ENDING_OF_ROW(name, form)    \
    {FN(name##_end_rows),            \
     FN(name##_finish_##form),       \
     FN(name##_finish_kept_##form),  \
     FN(name##_finish_plain_##form), \
     NULL,                           \
     FN(name##_plain_row)},
#define ENDING_OF_VALUE(name, form) \
    {.values = FN(name##_end_values), .plain_row = FN(name##_plain_row)},
#define ENDING_OF_PAIR(name, form) {NULL},
#define ENDING_OF_TOPK(name, form) {NULL},
#define ENDING_OF_GRADIENT(name, form)          \
    {.gradient_rows = FN(name##_gradients),     \
     .add_gradient = FN(name##_add_##form),     \
     .end_gradients = FN(name##_end_gradients), \
     .finish_gradient = FN(name##_finish_##form)},
#define PIPELINES_OF_PAIR(name) {.short_rows = NULL},
#define PIPELINES_OF_TOPK(name) {.short_rows = NULL},
#define PIPELINES_OF_GRADIENT(name) {.short_rows = NULL},
#define PIPELINES_OF_ROW(name)                                                         \
    {ROWS(name, rows), ROWS(name, batches), FN(name##_short_rows), FN(name##_columns), \
     FN(name##_short_columns)},
#define PIPELINES_OF_VALUE(name) \
    {.batches = ROWS(name, batches), .short_rows = FN(name##_short_rows)},

static const ons_kernels FN(kernels) = {
    .row = {FN(max_row), FN(set_references), FN(sum_exp_row), FN(exp_store_sum_row),
            FN(end_block_row), FN(exp_row), FN(sum_plain_row), FN(fence), FN(max_of_blocks_row),
            FN(take_row)},
    .column = {FN(max_column), FN(set_references), FN(sum_exp_column), FN(exp_store_sum_column),
               FN(end_block_column), FN(exp_column), FN(sum_plain_column), FN(fence),
               FN(max_of_blocks_column), FN(take_column)},
    .end_row =
        {
#define ONS_OPERATION(name, result, keeps, excluded, summary) ENDING_OF_##result(name, row)
#include "../../op/operations.def"
#undef ONS_OPERATION
        },
    .end_column =
        {
#define ONS_OPERATION(name, result, keeps, excluded, summary) ENDING_OF_##result(name, column)
#include "../../op/operations.def"
#undef ONS_OPERATION
        },
#ifndef WITHOUT_PIPELINES
    .has_pipelines = true,
    .pipelines =
        {
#define ONS_OPERATION(name, result, keeps, excluded, summary) PIPELINES_OF_##result(name)
#include "../../op/operations.def"
#undef ONS_OPERATION
        },
    .longest_batched = FN(longest_batched),
#endif
    .one = BITS == 32 ? F32_ONE : 1.0,
    .top_exponential = FN(top_exponential),
    .add_exact = FN(add_exact),
    .candidates = {FN(take_candidates), FN(cut), FN(fill), FN(order)},
    .move = {FN(load), FN(store), FN(multiply), FN(subtract), FN(exclude), FN(convert)},
};

#undef RUN
#undef SHORT_COLUMNS
#undef FINISH
#undef HALF_BATCHES
#undef HALF_PIPELINES
#undef HALF_VALUES
#undef ROWS
#undef ENDINGS_OF_ROW
#undef ENDINGS_OF_VALUE
#undef ENDINGS_OF_PAIR
#undef ENDINGS_OF_TOPK
#undef ENDINGS_OF_GRADIENT
#undef GRADIENT_ENDINGS
#undef RUNS_OF_ROW
#undef RUNS_OF_VALUE
#undef RUNS_OF_PAIR
#undef RUNS_OF_TOPK
#undef RUNS_OF_GRADIENT
#undef ENDING_OF_ROW
#undef ENDING_OF_VALUE
#undef ENDING_OF_PAIR
#undef ENDING_OF_TOPK
#undef ENDING_OF_GRADIENT
#undef PIPELINES_OF_ROW
#undef PIPELINES_OF_VALUE
#undef PIPELINES_OF_PAIR
#undef PIPELINES_OF_TOPK
#undef PIPELINES_OF_GRADIENT
