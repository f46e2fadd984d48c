/* instructions.c - runs each primitive for callgrind, which counts the instructions.
 * instructions.py builds it and runs it as
 *
 *     valgrind --tool=callgrind --collect-atstart=no instructions
 *
 * Each measurement is a dump of callgrind's with the description "<ISA>: <name>". A line on stdout
 * has the divisor of the count, then the description. The first line names the compiler. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

#include "../../csrc/cpu/cpu.h"

/* Runs each call once before it is counted, because the first call binds functions of the C
 * library. */
#define COUNT(units, call, ...)                                                 \
    do {                                                                        \
        char name_[160];                                                        \
        int begin_ = snprintf(name_, sizeof name_, "%s: ", ons_isa_selected()); \
        snprintf(name_ + begin_, sizeof name_ - (size_t)begin_, __VA_ARGS__);   \
        call;                                                                   \
        CALLGRIND_ZERO_STATS;                                                   \
        CALLGRIND_TOGGLE_COLLECT;                                               \
        call;                                                                   \
        CALLGRIND_TOGGLE_COLLECT;                                               \
        CALLGRIND_DUMP_STATS_AT(name_);                                         \
        printf("%lld %s\n", (long long)(units), name_);                         \
    } while (0)

enum { TILE = 2048, SHORT = 10, WIDTH = ONS_MAX_WIDTH, DEEP = 256, SIDE = 64 };

static void *zeroed(int64_t count, int64_t size) {
    size_t bytes = ((size_t)(count * size) + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, bytes); /* aligned, so that no count depends on other memory */
    if (!memory) abort();
    return memset(memory, 0, bytes);
}

/* `width` rows of n elements of a few units of size and both signs, and the rows' states. */
static void primitives(const ons_primitives *made, const ons_epilogue *end, const char *which,
                       ons_dtype type, int64_t width, int64_t n, ons_form form) {
    int64_t size = ons_dtype_size(type);
    void *data = zeroed(width * n, size), *result = zeroed(width * n, size);
    for (int64_t j = 0; j < width * n; j++) {
        double value = 3 * sin(1.7 * (double)j);
        if (type == ONS_FLOAT32)
            ((float *)data)[j] = (float)value;
        else
            ((double *)data)[j] = value;
    }
    /* the sums of a row lie side by side, or the sums of columns */
    bool columns = form == ONS_COLUMN_FORM;
    ons_rows rows = {.width = width,
                     .state = zeroed(width, sizeof(ons_state)),
                     .sums = zeroed(2 * ONS_SUMS * width, sizeof(double)),
                     .sums_along = columns ? width : 1,
                     .sums_across = columns ? 1 : 2 * ONS_SUMS};
    void **arrays[] = {&rows.shift, &rows.floor, &rows.first, &rows.second};
    for (int k = 0; k < 4; k++) *arrays[k] = zeroed(width, 8);
    for (int64_t i = 0; i < width; i++) rows.state[i] = ons_state_empty();
    ons_tile x = {data, size, n * size}, y = {result, size, n * size};
    if (columns) {
        x.along = y.along = width * size;
        x.across = y.across = size;
    }
    COUNT(width * n, made->max(&rows, ONS_NO_TILE, x, n), "max, %s", which);
    for (int64_t i = 0; i < width; i++) ons_state_raise(&rows.state[i], rows.state[i].m);
    COUNT(width, made->set_references(&rows), "references a row, %s", which);
    COUNT(width * n, made->sum_exp(&rows, x, n), "sum_exp, %s", which);
    COUNT(width * n, made->exp_store_sum(&rows, y, x, n), "exp_store_sum, %s", which);
    COUNT(width, made->end_block(&rows, false), "end_block a row, %s", which);
    made->sum_exp(&rows, x, n);
    made->end_block(&rows, false);
    COUNT(width, end->end_rows(&rows), "normalize a row, %s", which);
    COUNT(width * n, end->finish(&rows, y, x, n), "finish, %s", which);
    COUNT(width * n, end->finish_kept(&rows, y, x, n), "scale, %s", which);
    COUNT(width * n, made->exp(&rows, y, x, n), "exp, %s", which);
    COUNT(width * n, made->sum(&rows, y, n), "sum, %s", which);
    COUNT(width * n, end->finish_plain(&rows, y, y, n), "divide, %s", which);
    for (int k = 0; k < 4; k++) free(*arrays[k]);
    free(rows.state);
    free(rows.sums);
    free(data);
    free(result);
}

static void all_primitives(ons_dtype type) {
    const ons_kernels *kernels = ons_kernels_for(type);
    const char *name = ons_dtype_name(type);
    char which[80];
    snprintf(which, sizeof which, "%s row of %d", name, TILE);
    primitives(&kernels->row, kernels->end_row, which, type, 1, TILE, ONS_ROW_FORM);
    snprintf(which, sizeof which, "%s rows of %d", name, SHORT);
    primitives(&kernels->row, kernels->end_row, which, type, WIDTH, SHORT, ONS_ROW_FORM);
    snprintf(which, sizeof which, "%s columns", name);
    primitives(&kernels->column, kernels->end_column, which, type, WIDTH, DEEP, ONS_COLUMN_FORM);
}

static void movers(ons_dtype narrow, ons_dtype compute) {
    const ons_movers *move = &ons_kernels_for(compute)->move;
    static char stored[3 * 2 * TILE];
    void *tile = zeroed(TILE, 8);
    for (int64_t step = 2; step <= 6; step += 4) {
        const char *how = step == 2 ? "side by side" : "with gaps";
        const char *from = ons_dtype_name(narrow), *to = ons_dtype_name(compute);
        COUNT(TILE, move->load(tile, stored, step, narrow, TILE), "load %s as %s, %s", from, to,
              how);
        COUNT(TILE, move->store(stored, step, narrow, tile, TILE), "store %s as %s, %s", to, from,
              how);
    }
    free(tile);
}

/* "log_softmax of ", or "" for softmax. */
static const char *named(ons_operation operation) {
    static char text[40];
    snprintf(text, sizeof text, "%s of ", ons_operations[operation].name);
    return operation == ONS_OPERATION_softmax ? "" : text;
}

/* `rows` whole rows, as fused.c runs them, past the caches and into them. */
static void whole_rows(ons_operation operation, ons_dtype stored, ons_dtype compute, int64_t N,
                       int64_t rows) {
    const ons_kernels *kernels = ons_kernels_for(compute);
    int64_t size = ons_dtype_size(stored), own = ons_dtype_size(compute);
    int64_t lanes = own == 4 ? ONS_LANES_F32 : ONS_LANES_F64;
    void *values = zeroed(N * rows, own), *x = zeroed(N * rows, size), *y = zeroed(N * rows, size);
    for (int64_t j = 0; j < N * rows; j++) {
        double value = 3 * sin(1.7 * (double)j);
        if (own == 4)
            ((float *)values)[j] = (float)value;
        else
            ((double *)values)[j] = value;
    }
    kernels->move.store(x, size, stored, values, N * rows);
    ons_run_of_rows run = {.x = {x, size, N * size},
                           .y = {y, size, N * size},
                           .count = rows,
                           .dtype = stored,
                           .N = N,
                           .kept = zeroed(ONS_KEPT_SHORT_ROWS * (N + 64), own),
                           .pitch = (N + 63) / 64 * 64};
    const ons_pipelines *pipelines = &kernels->pipelines[operation];
    ons_run_rows_fn *run_rows = N > kernels->longest_batched ? pipelines->rows[stored]
                                : N > 2 * lanes              ? pipelines->batches[stored]
                                                             : pipelines->short_rows;
    for (int past = 0; past < 2; past++) {
        run.past_caches = past;
        COUNT(N * rows, run_rows(&run), "%s%s rows of %d%s", named(operation),
              ons_dtype_name(stored), (int)N, past ? ", past the caches" : "");
    }
    free(run.kept);
    free(values);
    free(x);
    free(y);
}

static void all_whole_rows(ons_dtype type) {
    const int64_t lengths[] = {10, 64, 1000};
    const ons_operation softmax = ONS_OPERATION_softmax, log_softmax = ONS_OPERATION_log_softmax;
    for (int i = 0; i < 3; i++) {
        whole_rows(softmax, type, type, lengths[i], WIDTH);
        whole_rows(log_softmax, type, type, lengths[i], WIDTH);
    }
    if (type != ONS_FLOAT32) return;
    whole_rows(softmax, type, type, 333, WIDTH);
    whole_rows(softmax, ONS_FLOAT16, type, 1000, WIDTH);
    whole_rows(softmax, ONS_BFLOAT16, type, 1000, WIDTH);
    whole_rows(log_softmax, ONS_BFLOAT16, type, 1000, WIDTH);
}

typedef struct {
    char *x, *y;
    int64_t size;
} columns_of;

static ons_columns columns_at(const void *from, int64_t index) {
    const columns_of *columns = from;
    int64_t begin = index * SIDE * columns->size;
    return (ons_columns){.x = columns->x + begin, .y = columns->y + begin, .width = SIDE};
}

/* Four strips of columns. Short columns have their own function. */
static void whole_columns(ons_operation operation, ons_dtype type, int64_t N) {
    enum { STRIPS = 4 };
    int64_t size = ons_dtype_size(type), along = STRIPS * SIDE * size;
    const ons_pipelines *pipelines = &ons_kernels_for(type)->pipelines[operation];
    ons_run_columns_fn *run_columns =
        N <= ONS_LANES_F64 ? pipelines->short_columns : pipelines->columns;
    columns_of columns = {zeroed(N, along), zeroed(N, along), size};
    ons_run_of_columns run = {.at = columns_at,
                              .from = &columns,
                              .count = STRIPS,
                              .N = N,
                              .x_along = along,
                              .y_along = along,
                              .x_dtype = type,
                              .y_dtype = type,
                              .scale = 1.0,
                              .kept = zeroed(ONS_KEPT_STRIPS * N * (SIDE + 16) + 16, size),
                              .strips = zeroed(ONS_STRIPS_BYTES, 1),
                              .pitch = SIDE + 16,
                              .waits = true};
    for (int past = 0; past < 2; past++) {
        run.past_caches = past;
        COUNT(N * STRIPS * SIDE, run_columns(&run), "%s%s columns of %d%s", named(operation),
              ons_dtype_name(type), (int)N, past ? ", past the caches" : "");
    }
    free(run.kept);
    free(run.strips);
    free(columns.x);
    free(columns.y);
}

static void all_pipelines(ons_dtype type) {
    all_whole_rows(type);
    whole_columns(ONS_OPERATION_softmax, type, 3);
    whole_columns(ONS_OPERATION_softmax, type, 40);
    whole_columns(ONS_OPERATION_softmax, type, 1000);
    whole_columns(ONS_OPERATION_log_softmax, type, 40);
}

/* What movers do to elements on the way. */
static void changes(ons_dtype type) {
    const ons_movers *move = &ons_kernels_for(type)->move;
    static char mask[TILE];
    void *tile = zeroed(TILE, 8);
    double by = 0.7;
    ons_change masked = {0.5, {mask, 1}}, scaled = {by, {NULL, 0}};
    const char *name = ons_dtype_name(type);
    COUNT(TILE, move->multiply(tile, &by, false, TILE), "multiply, %s", name);
    COUNT(TILE, move->subtract(tile, &by, false, TILE), "subtract, %s", name);
    COUNT(TILE, move->exclude(tile, masked.where, 0.0, TILE), "exclude, %s", name);
    void *to = zeroed(TILE, 8);
    int64_t size = ons_dtype_size(type);
    COUNT(TILE, move->convert(to, tile, size, type, masked, TILE), "convert, masked, %s", name);
    COUNT(TILE, move->convert(to, tile, size, type, scaled, TILE), "convert, by 0.7, %s", name);
    free(to);
    free(tile);
}

/* All of a call except Python's part. */
static void run(ons_problem *problem) {
    ons_coalesce(problem);
    ons_plan plan;
    ons_machine machine = ons_this_machine(1);
    if (ons_make_plan(problem, ONS_METHOD_AUTO, &machine, &plan) != ONS_OK) abort();
    if (ons_run(problem, &plan, NULL) != ONS_OK) abort();
}

static void call(int64_t N, float *x, float *y) {
    ons_problem problem = {.dims = 1, .reduced_dims = 1, .extent = {N}, .scale_by = 1.0};
    problem.operand[ONS_X] = (ons_operand){(char *)x, ONS_FLOAT32, {sizeof(float)}};
    problem.operand[ONS_Y] = (ons_operand){(char *)y, ONS_FLOAT32, {sizeof(float)}};
    run(&problem);
}

static void select_k(int64_t rows, int64_t N, int64_t k, float *x, float *y, int64_t *places) {
    ons_problem problem = {.operation = ONS_OPERATION_softmax_topk,
                           .dims = 2,
                           .reduced_dims = 1,
                           .extent = {rows, N},
                           .scale_by = 1.0,
                           .k = k,
                           .sorted = true};
    int64_t size = sizeof *x, place = sizeof *places;
    problem.operand[ONS_X] = (ons_operand){(char *)x, ONS_FLOAT32, {N * size, size}};
    problem.operand[ONS_Y] = (ons_operand){(char *)y, ONS_FLOAT32, {k * size, size}};
    problem.operand[ONS_INDICES] = (ons_operand){(char *)places, ONS_INT64, {k * place, place}};
    run(&problem);
}

static void topk(int64_t rows, int64_t N, int64_t k) {
    float *x = zeroed(rows * N, sizeof *x), *y = zeroed(rows * k, sizeof *y);
    int64_t *places = zeroed(rows * k, sizeof *places);
    for (int64_t j = 0; j < rows * N; j++) x[j] = (float)(3 * sin(1.7 * (double)j));
    COUNT(rows, select_k(rows, N, k, x, y, places), "softmax_topk a row, %d of %d, float32", (int)k,
          (int)N);
    free(x);
    free(y);
    free(places);
}

int main(void) {
#if defined(__clang__)
    printf("clang %d\n", __clang_major__);
#else
    printf("gcc %d\n", __GNUC__);
#endif
    static float x[SHORT], y[SHORT];
    for (const char *const *name = ons_isa_available(); *name; name++) {
        ons_isa_select(*name);
        for (ons_dtype type = ONS_FLOAT32; type <= ONS_FLOAT64; type++) {
            all_primitives(type);
            if (ons_kernels_for(type)->has_pipelines) all_pipelines(type);
            changes(type);
            for (ons_dtype narrow = ONS_FLOAT16; narrow <= ONS_BFLOAT16; narrow++)
                movers(narrow, type);
        }
        COUNT(1, call(SHORT, x, y), "a call on %d elements, float32", SHORT);
        topk(WIDTH, 128, 8);
        topk(16, 4096, 64);
    }
    return 0;
}
