/* kernels.h - the functions of each operation, and the table of all of them. */
#ifndef ONS_CPU_KERNEL_KERNELS_H
#define ONS_CPU_KERNEL_KERNELS_H

/* In this order gcc 12 keeps the fewest values of sum_exp_row in memory. */
#include "row.h"

#include "column.h"
#include "gradient_results.h"
#include "rounded.h"
#include "topk.h"
#ifndef WITHOUT_PIPELINES
#include "batches.h"
#include "fused.h"
#include "fused_columns.h"
#include "short.h"
#else
#include "move.h"
#endif

/* For each kind of operation: defines the functions of one operation from the code that is written
 * for all. */
#define FINISH(name, operation)                                                               \
    static void operation##_##name(const ons_rows *rows, ons_tile y, ons_tile x, int64_t n) { \
        name(&operation, rows, y, x, n);                                                      \
    }
#define ENDINGS_OF_ROW(operation)                                         \
    static void operation##_end_rows(const ons_rows *rows) {              \
        T *first = rows->first, *second = rows->second;                   \
        for (int64_t i = 0; i < rows->width; i++)                         \
            operation##_row(&rows->state[i], 0.0, first + i, second + i); \
    }                                                                     \
    FINISH(finish_row, operation)                                         \
    FINISH(finish_kept_row, operation)                                    \
    FINISH(finish_plain_row, operation)                                   \
    FINISH(finish_column, operation)                                      \
    FINISH(finish_kept_column, operation)                                 \
    FINISH(finish_plain_column, operation)

#define ENDINGS_OF_VALUE(operation)                                                                \
    static void operation##_end_values(const ons_rows *rows, const double *anchor, void *values) { \
        for (int64_t i = 0; i < rows->width; i++)                                                  \
            set_element(values, i, (T)operation##_value(&rows->state[i], anchor ? anchor[i] : 0)); \
    }

#define GRADIENTS(operation, form)                                                                 \
    static void operation##_add_##form(const ons_rows *rows, ons_tile dy, ons_tile y, int64_t n) { \
        add_gradient_##form(&operation, rows, dy, y, n);                                           \
    }                                                                                              \
    static void operation##_finish_##form(const ons_rows *rows, ons_gradients of) {                \
        finish_gradient_##form(&operation, rows, of);                                              \
    }
#define ENDINGS_OF_GRADIENT(operation)                                                      \
    GRADIENTS(operation, row)                                                               \
    GRADIENTS(operation, column)                                                            \
    static void operation##_end_gradients(const ons_rows *rows, const double *scale) {      \
        end_gradients(&operation, rows, scale);                                             \
    }                                                                                       \
    static void operation##_gradients(const ons_rows *rows, ons_gradients of, int64_t tile, \
                                      const double *scale) {                                \
        gradient_rows(&operation, rows, of, tile, scale);                                   \
    }

#define ENDINGS_OF_PAIR(operation)
#define ENDINGS_OF_TOPK(operation)
#define ENDINGS_OF_LOSS(operation)
#define ENDINGS_OF_LOSS_GRADIENT(operation) /* softmax's, and loss.c */
#define ENDINGS_OF_DIVERGENCE(operation)
#define ENDINGS_OF_ROUTE(operation)
#define ONS_OPERATION(name, result, keeps, excluded, summary) ENDINGS_OF_##result(name)
#include "../../op/operations.def"
#undef ONS_OPERATION

/* For each kind of operation: the entry of these functions in the table. */
#define ENDING_OF_ROW(name, form)                                         \
    [ONS_OPERATION_##name] = {.end_rows = name##_end_rows,                \
                              .finish = name##_finish_##form,             \
                              .finish_kept = name##_finish_kept_##form,   \
                              .finish_plain = name##_finish_plain_##form, \
                              .plain_row = name##_plain_row},
#define ENDING_OF_VALUE(name, form) \
    [ONS_OPERATION_##name] = {.values = name##_end_values, .plain_row = name##_plain_row},
#define ENDING_OF_GRADIENT(name, form)                               \
    [ONS_OPERATION_##name] = {.gradient_rows = name##_gradients,     \
                              .add_gradient = name##_add_##form,     \
                              .end_gradients = name##_end_gradients, \
                              .finish_gradient = name##_finish_##form},
#define ENDING_OF_PAIR(name, form)
#define ENDING_OF_TOPK(name, form)
#define ENDING_OF_LOSS(name, form)
#define ENDING_OF_LOSS_GRADIENT(name, form)
#define ENDING_OF_DIVERGENCE(name, form)
#define ENDING_OF_ROUTE(name, form)

#ifndef WITHOUT_PIPELINES
#define RUN(name, operation, type, run_all) \
    static bool operation##_##name(const type *run) { return run_all; }
/* For each type of y. */
#if BITS == 32
#define RUNS(name, operation)                                                             \
    RUN(own_##name, operation, ons_run_of_rows, name##_to(run, &operation, OWN))          \
    RUN(half_##name, operation, ons_run_of_rows, name##_to(run, &operation, ONS_FLOAT16)) \
    RUN(bfloat_##name, operation, ons_run_of_rows, name##_to(run, &operation, ONS_BFLOAT16))
#define OF_TYPES(name, operation)                \
    {[ONS_FLOAT16] = operation##_half_##name,    \
     [ONS_BFLOAT16] = operation##_bfloat_##name, \
     [OWN] = operation##_own_##name}
#else
#define RUNS(name, operation) \
    RUN(own_##name, operation, ons_run_of_rows, name##_to(run, &operation, OWN))
#define OF_TYPES(name, operation) {[OWN] = operation##_own_##name}
#endif
/* Functions of their own: inline, a value that one of them must keep in memory would be in memory
 * in all of them. */
#define SHORT_COLUMNS(name, operation, N, plain)                              \
    static ONS_APART bool operation##_##name(const ons_run_of_columns *run) { \
        return short_columns_of(run, &operation, N, plain);                   \
    }
#define RUNS_OF_ROW(operation)                                                                 \
    RUNS(rows, operation)                                                                      \
    RUNS(batches, operation)                                                                   \
    RUN(short_rows, operation, ons_run_of_rows, short_rows(run, &operation))                   \
    static ONS_APART void operation##_give_apart(const pipeline *with, int64_t j, int64_t n) { \
        give_apart(with, j, n, &operation);                                                    \
    }                                                                                          \
    RUN(columns, operation, ons_run_of_columns,                                                \
        columns_of_kind(run, &operation, operation##_give_apart))                              \
    SHORT_COLUMNS(columns_of_two, operation, 2, true)                                          \
    SHORT_COLUMNS(columns_of_three, operation, 3, true)                                        \
    SHORT_COLUMNS(columns_of_four, operation, 4, true)                                         \
    SHORT_COLUMNS(columns_of_some, operation, run->N, true)                                    \
    SHORT_COLUMNS(changed_columns, operation, run->N, false)                                   \
    static bool operation##_short_columns(const ons_run_of_columns *run) {                     \
        if (!is_plain(run, run->at(run->from, run->first)))                                    \
            return operation##_changed_columns(run);                                           \
        switch (run->N) {                                                                      \
        case 2: return operation##_columns_of_two(run);                                        \
        case 3: return operation##_columns_of_three(run);                                      \
        case 4: return operation##_columns_of_four(run);                                       \
        default: return operation##_columns_of_some(run);                                      \
        }                                                                                      \
    }
#define RUNS_OF_VALUE(operation) \
    RUNS(batches, operation)     \
    RUN(short_rows, operation, ons_run_of_rows, short_rows(run, &operation))
#define RUNS_OF_PAIR(operation)
#define RUNS_OF_TOPK(operation)
#define RUNS_OF_LOSS(operation)
#define RUNS_OF_LOSS_GRADIENT(operation)
#define RUNS_OF_DIVERGENCE(operation)
#define RUNS_OF_ROUTE(operation)
#define RUNS_OF_GRADIENT(operation)
#define ONS_OPERATION(name, result, keeps, excluded, summary) RUNS_OF_##result(name)
#include "../../op/operations.def"
#undef ONS_OPERATION

#define PIPELINES_OF_ROW(name)                                    \
    [ONS_OPERATION_##name] = {.rows = OF_TYPES(rows, name),       \
                              .batches = OF_TYPES(batches, name), \
                              .short_rows = name##_short_rows,    \
                              .columns = name##_columns,          \
                              .short_columns = name##_short_columns},
#define PIPELINES_OF_VALUE(name) \
    [ONS_OPERATION_##name] = {.batches = OF_TYPES(batches, name), .short_rows = name##_short_rows},
#define PIPELINES_OF_PAIR(name)
#define PIPELINES_OF_TOPK(name)
#define PIPELINES_OF_LOSS(name)
#define PIPELINES_OF_LOSS_GRADIENT(name)
#define PIPELINES_OF_DIVERGENCE(name)
#define PIPELINES_OF_ROUTE(name)
#define PIPELINES_OF_GRADIENT(name)
#endif

const ons_kernels KERNELS = {
    .row = {max_row, set_references, sum_exp_row, exp_store_sum_row, end_block_row, exp_row,
            sum_plain_row, fence, max_of_blocks_row, take_row},
    .column = {max_column, set_references, sum_exp_column, exp_store_sum_column, end_block_column,
               exp_column, sum_plain_column, fence, max_of_blocks_column, take_column},
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
    .longest_batched = LONGEST_BATCHED,
#endif
    .one = BITS == 32 ? F32_ONE : 1.0,
    .top_exponential = top_exponential,
    .add_digits = add_digits,
#if BITS == 32
    .rounded = &rounded_kernels,
#endif
    .candidates = {take_candidates, cut, fill, order},
    .move = {load, store, multiply, subtract, exclude, convert},
};

#endif
