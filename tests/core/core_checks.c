/* core_checks.c - compares the C core with exact results, without Python: every method, type and
 * form at many lengths, on each instruction set of the processor.
 *
 *     core_checks [--only CHECK] [--each K] [ISA ...]
 *
 * --each K: "conversions", "lengths", "edges", "strips" and "masks and scales" take only every K-th
 * of their many numbers, lengths, places, shapes and options.
 *
 * docs/contract.md says how exact a result is. The largest error is 4 eps of the arithmetic's type,
 * and the mean 1 eps. A result of another type is rounded to nearest even. Every method but naive
 * and exact gives the same bits, in either form and on any number of threads. exact gives the exact
 * results, rounded once. The program ends at the first
 * failure, prints it, and exits with 1. test_core.py builds and runs the program. */
#include "core_conversions.h"
#include "core_support.h"

/* A task has TASK_ROWS rows. TASK_COLUMNS columns, or rows up to the length SHORT, repeat them.
 * These are more than the longest vector holds. */
enum {
    TASK_ROWS = 3,
    TASK_COLUMNS = 17,
    SHORT = 100,
    LONGEST = 65541,
    MAX_ELEMENTS = 1 << 20 /* elements of an array */
};

/* For the task, and for the rows that it must agree with. */
static room x_room, y_room, where_room, plain_x_room, plain_y_room, plain_where_room, like_room;
static long double exact[LONGEST];

static bool seen[2]; /* which forms the plans took */

/* pairs: NULL, or a pair for each row if the operation takes them. */
static void run_as(ons_operation operation, const task *job, ons_method method, ons_pair *pairs) {
    ons_problem problem = {
        .operation = operation, .dims = 2, .reduced_dims = 1, .extent = {job->rows, job->N}};
    problem.operand[ONS_X] =
        (ons_operand){job->x.data, job->x.dtype, {job->x.across, job->x.along}};
    problem.operand[ONS_Y] =
        (ons_operand){job->y.data, job->y.dtype, {job->y.across, job->y.along}};
    problem.operand[ONS_WHERE] =
        (ons_operand){job->where.data, ONS_BOOL, {job->where.across, job->where.along}};
    problem.operand[ONS_STATISTIC] =
        (ons_operand){(char *)pairs, ONS_FLOAT64, {(int64_t)sizeof *pairs, 0}};
    problem.scale_by = job->scale;
    ons_coalesce(&problem);
    ons_plan plan;
    ons_machine machine = ons_this_machine(job->threads);
    REQUIRE(ons_make_plan(&problem, method, &machine, &plan) == ONS_OK, "no plan");
    REQUIRE(ons_run(&problem, &plan, NULL) == ONS_OK, "it did not run");
    seen[plan.form] = true;
}

static void run(const task *job, ons_method method) {
    run_as(ONS_OPERATION_softmax, job, method, NULL);
}

#define FOR_EACH_METHOD(method)                                             \
    for (int method = ONS_METHOD_AUTO; method < ONS_METHOD_COUNT; method++) \
        if (method == ONS_METHOD_AUTO || ons_methods[method].on_cpu)

/* Whether it is one of the methods that agree bit by bit. */
static bool agrees(int method) { return method != ONS_METHOD_naive && method != ONS_METHOD_exact; }

#define FACTS "%s, %s -> %s, %s, N = %lld, row %lld, element %lld"
#define FACTS_OF(job, method, how, i, j)                                                     \
    ons_method_name(method), ons_dtype_name((job)->x.dtype), ons_dtype_name((job)->y.dtype), \
        layout_names[how], (long long)(job)->N, (long long)(i), (long long)(j)

typedef struct {
    double sum;
    int64_t count;
} mean; /* of errors in eps */

/* Compares y, of the arithmetic's type, with the exact results. */
static void check_errors(const task *job, mean *errors) {
    ons_dtype type = job->y.dtype;
    long double eps = ldexpl(1.0L, -formats[type].fraction);
    long double least = ldexpl(1.0L, formats[type].least);
    for (int64_t i = 0; i < job->rows; i++) {
        exact_softmax(exact, job, i, type);
        for (int64_t j = 0; j < job->N; j++) {
            long double y = get(job->y, i, j), bound = 4 * eps * exact[j];
            if (exact[j] < least) bound += ulp(exact[j], type) / 2;
            bool right = isnan(exact[j]) ? isnan(y) : fabsl(y - exact[j]) <= bound && y >= 0;
            REQUIRE(right, FACTS ": %La for %La", FACTS_OF(job, ONS_METHOD_safe, ROWS, i, j), y,
                    exact[j]);
            if (!(exact[j] >= least)) continue;
            errors->sum += (double)(fabsl(y - exact[j]) / (eps * exact[j]));
            errors->count++;
        }
    }
}

static void check_naive(const task *job) {
    for (int64_t i = 0; i < job->rows; i++) {
        exact_naive(exact, job, i);
        for (int64_t j = 0; j < job->N; j++) {
            long double y = get(job->y, i, j), bound = 8 * ulp(exact[j], job->x.dtype);
            bool right = isnan(exact[j]) ? isnan(y) : fabsl(y - exact[j]) <= bound;
            REQUIRE(right, FACTS ": %La for %La", FACTS_OF(job, ONS_METHOD_naive, ROWS, i, j), y,
                    exact[j]);
        }
    }
}

/* Checks that row i of y is row i % rows of `like`. */
static void check_bits(const task *job, ons_method method, layout how, array like, int64_t rows) {
    for (int64_t i = 0; i < job->rows; i++)
        for (int64_t j = 0; j < job->N; j++) {
            uint64_t wanted = get_bits(like, i % rows, j), made = get_bits(job->y, i, j);
            REQUIRE(same(made, wanted, job->y.dtype), FACTS ": bits %#llx, not %#llx",
                    FACTS_OF(job, method, how, i, j), (unsigned long long)made,
                    (unsigned long long)wanted);
        }
}

/* Runs one method in one layout. Some runs are in place. The others check the memory around y. */
static task run_in_layout(const task *plain, ons_dtype result, ons_method method, layout how) {
    task one = *plain;
    int turn = (int)(plain->N + method + (int)how);
    if (how == COLUMNS ? plain->N * TASK_COLUMNS <= MAX_ELEMENTS / 8
                       : how == ROWS && plain->N <= SHORT)
        one.rows = TASK_COLUMNS;
    one.x = place(x_room, one.x.dtype, how, one.rows, one.N, turn);
    one.y = place(y_room, result, how, one.rows, one.N, turn + 4);
    repeat(one.x, one.rows, plain->x, plain->rows, one.N);
    if (one.where.data) {
        one.where = place(where_room, ONS_BOOL, how, one.rows, one.N, turn + 4);
        repeat(one.where, one.rows, plain->where, plain->rows, one.N);
    }
    bool apart = one.x.dtype != result || turn % 3 != 0;
    if (!apart) one.y = one.x;
    if (apart) around(y_room, one.y, how, one.rows, one.N, false);
    run(&one, method);
    if (apart) around(y_room, one.y, how, one.rows, one.N, true);
    return one;
}

/* Every method in every layout must give the bits of plain->y, rounded to the type `result`. `safe`
 * has computed plain->y in the arithmetic's type. */
static void alike(const task *plain, ons_dtype result) {
    array like = place(like_room, result, ROWS, plain->rows, plain->N, 0);
    repeat(like, plain->rows, plain->y, plain->rows, plain->N);
    FOR_EACH_METHOD(method)
    for (layout how = ROWS; how < LAYOUTS && agrees(method); how++) {
        task one = run_in_layout(plain, result, method, how);
        check_bits(&one, method, how, like, plain->rows);
    }
}

/* Every layout must give the exact results, rounded once. */
static void exactly(const task *plain, ons_dtype result) {
    task one = *plain;
    array like = place(like_room, result, ROWS, plain->rows, plain->N, 0);
    one.y = like;
    run(&one, ONS_METHOD_exact);
    for (int64_t i = 0; i < one.rows; i++) {
        exact_softmax(exact, &one, i, ONS_FLOAT32);
        for (int64_t j = 0; j < one.N; j++) {
            /* a long double has an error too */
            long double y = get(one.y, i, j), bound = ulp(exact[j], result) * (0.5L + 0x1p-25L);
            REQUIRE(isnan(exact[j]) ? isnan(y) : fabsl(y - exact[j]) <= bound,
                    FACTS ": %La for %La", FACTS_OF(&one, ONS_METHOD_exact, ROWS, i, j), y,
                    exact[j]);
        }
    }
    for (layout how = ROWS; how < LAYOUTS; how++) {
        one = run_in_layout(plain, result, ONS_METHOD_exact, how);
        check_bits(&one, ONS_METHOD_exact, how, like, plain->rows);
    }
}

static void every_way(const task *plain, ons_dtype result, mean *errors) {
    run(plain, ONS_METHOD_safe);
    check_errors(plain, errors);
    alike(plain, result);
    if (plain->y.dtype == ONS_FLOAT32) exactly(plain, result);
    /* naive's arithmetic has the array's own type, so it takes only the plain case */
    if (plain->x.dtype != result || plain->where.data || plain->scale != 1.0) return;
    task naive = *plain;
    array like = place(like_room, result, ROWS, plain->rows, plain->N, 0);
    naive.y = like;
    run(&naive, ONS_METHOD_naive);
    check_naive(&naive);
    for (layout how = ROWS; how < LAYOUTS; how++) {
        task one = run_in_layout(plain, result, ONS_METHOD_naive, how);
        check_bits(&one, ONS_METHOD_naive, how, like, plain->rows);
    }
}

static ons_dtype wider(ons_dtype a, ons_dtype b) {
    return a == ONS_FLOAT64 || b == ONS_FLOAT64 ? ONS_FLOAT64 : ONS_FLOAT32;
}

/* A new x of logits, and a y for a result of the arithmetic's type. */
static task new_task(ons_dtype x, ons_dtype result, int64_t rows, int64_t N, double scale,
                     double offset) {
    task job = {.scale = 1.0, .rows = rows, .N = N, .threads = 1};
    job.x = place(plain_x_room, x, ROWS, rows, N, 0);
    job.y = place(plain_y_room, wider(x, result), ROWS, rows, N, 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < N; j++) put(job.x, i, j, scale * normal() + offset);
    return job;
}

static void check_mean(mean errors, const char *what) {
    REQUIRE(errors.sum <= (double)errors.count, "%s: mean error %g eps", what,
            errors.sum / (double)errors.count);
}

static const struct {
    ons_dtype x, y;
} types[] = {{ONS_FLOAT16, ONS_FLOAT16}, {ONS_BFLOAT16, ONS_BFLOAT16}, {ONS_FLOAT32, ONS_FLOAT32},
             {ONS_FLOAT64, ONS_FLOAT64}, {ONS_FLOAT16, ONS_FLOAT32},   {ONS_BFLOAT16, ONS_FLOAT64},
             {ONS_FLOAT32, ONS_FLOAT16}, {ONS_FLOAT64, ONS_BFLOAT16},  {ONS_FLOAT64, ONS_FLOAT32},
             {ONS_FLOAT32, ONS_FLOAT64}};
enum { TYPES = sizeof types / sizeof *types, ALIKE = 4 /* the first of types */ };

/* Around every block and tile, and around lengths that are shared or no longer kept. */
static const int64_t thresholds[] = {383,  384,  385,  511,  513,   1024,
                                     2047, 2048, 2049, 4097, 32769, LONGEST};
enum { THRESHOLDS = sizeof thresholds / sizeof *thresholds, MIDDLING = 300 };

static void lengths(void) {
    int64_t cases = 0;
    for (int t = 0; t < TYPES; t++) {
        mean errors = {0};
        for (int64_t N = 1; N <= (t < ALIKE ? MIDDLING : SHORT); N += N < SHORT ? 1 : 3) {
            if (cases++ % each != 0) continue;
            task job = new_task(types[t].x, types[t].y, TASK_ROWS, N, 1.5, 0);
            every_way(&job, types[t].y, &errors);
        }
        for (int k = 0; k < THRESHOLDS && t < ALIKE; k++) {
            if (cases++ % each != 0) continue;
            task job = new_task(types[t].x, types[t].y, 1, thresholds[k], 1.5, 0);
            every_way(&job, types[t].y, &errors);
        }
        check_mean(errors, ons_dtype_name(types[t].x));
    }
}

static void offsets(void) {
    static const double cases[][2] = {{1, 1000}, {10, 0}, {30, -333.3}, {3, 1e6}, {30, 777.7}};
    for (ons_dtype type = ONS_FLOAT32; type <= ONS_FLOAT64; type++)
        for (int k = 0; k < 5; k++) {
            mean errors = {0};
            for (int64_t N = 6; N < 5000; N = 13 * N + 1) {
                task job = new_task(type, type, TASK_ROWS, N, cases[k][0], cases[k][1]);
                every_way(&job, type, &errors);
            }
            check_mean(errors, "offsets");
        }
}

/* NaN, inf and -inf at each place of a row between two ordinary rows, and whole rows of -inf. */
static void edges(void) {
    static const long double odd[] = {NAN, HUGE_VALL, -HUGE_VALL};
    mean errors = {0};
    int64_t cases = 0;
    for (int t = 0; t < ALIKE; t++)
        for (int64_t N = 1; N <= 40; N += N < 20 ? 1 : 7)
            for (int64_t at = 0; at <= N; at++)
                for (int k = 0; k < 3; k++) {
                    if (cases++ % each != 0) continue;
                    task job = new_task(types[t].x, types[t].y, TASK_ROWS, N, 2, 0);
                    for (int64_t j = at < N ? at : 0; j <= at && j < N; j++)
                        put(job.x, 1, j, odd[k]);
                    every_way(&job, types[t].y, &errors);
                }
}

/* Every class of NaN: quiet and signalling, of both signs. The payload is 1, R's NA, the low half
 * or all bits. */
enum { NAN_CLASSES = 16 };
static uint64_t nan_of_class(int number, ons_dtype type) {
    format is = formats[type];
    uint64_t quiet = UINT64_C(1) << (is.fraction - 1), low = (UINT64_C(1) << is.fraction / 2) - 1;
    const uint64_t payloads[NAN_CLASSES / 4] = {1, 0x7a2 & (quiet - 1), low, quiet - 1};
    uint64_t inf = (uint64_t)(is.most - is.least + 2) << is.fraction;
    uint64_t sign = UINT64_C(1) << (8 * ons_dtype_size(type) - 1);
    return inf | payloads[number / 4] | (number & 1 ? quiet : 0) | (number & 2 ? sign : 0);
}

/* Row 1 of three gets a NaN. If there is a mask, row 2 gets a NaN that the mask excludes. */
static void put_nan(task *job, uint64_t bits, bool masked) {
    int64_t at = (int64_t)(uniform() * (double)job->N);
    put_bits(job->x, 1, at, bits);
    if (!masked) return;
    job->where = place(plain_where_room, ONS_BOOL, ROWS, TASK_ROWS, job->N, 0);
    for (int64_t i = 0; i < TASK_ROWS; i++)
        for (int64_t j = 0; j < job->N; j++) *element(job->where, i, j) = uniform() < 0.7;
    *element(job->where, 1, at) = true;
    *element(job->where, 2, at) = false;
    put_bits(job->x, 2, at, bits);
}

static void check_nans(const task *job, ons_method method, layout how, uint64_t bits) {
    for (int64_t i = 0; i < job->rows; i++)
        for (int64_t j = 0; j < job->N; j++) {
            long double y = get(job->y, i, j);
            bool right = excluded(job, i, j) ? y == 0 : !isnan(y) == (i % TASK_ROWS != 1);
            REQUIRE(right, FACTS ": %La where the row has NaN %#llx",
                    FACTS_OF(job, method, how, i, j), y, (unsigned long long)bits);
        }
}

/* Takes all classes, or one case in five. */
static void nans(bool all) {
    static const int64_t several[] = {1, 3, 10, 33, 64, 100, 250, 530};
    int64_t runs = 0, cases = 0;
    for (ons_dtype x = ONS_FLOAT16; x <= ONS_FLOAT64; x++)
        for (ons_dtype y = ONS_FLOAT16; y <= ONS_FLOAT64; y++)
            for (int k = 0; k < 8 * NAN_CLASSES * 4; k++) {
                if (!all && cases++ % 5 > 0) continue;
                int64_t N = several[k / NAN_CLASSES / 4];
                uint64_t bits = nan_of_class(k % NAN_CLASSES, x);
                bool scaled = k / NAN_CLASSES & 1, masked = k / NAN_CLASSES & 2;
                task job = new_task(x, y, TASK_ROWS, N, 2, 0);
                job.scale = scaled ? 0.7 : 1.0;
                put_nan(&job, bits, masked);
                FOR_EACH_METHOD(method)
                for (layout how = ROWS; how < LAYOUTS; how++, runs++) {
                    if (method == ONS_METHOD_exact && wider(x, y) == ONS_FLOAT64) continue;
                    task one = run_in_layout(&job, y, method, how);
                    check_nans(&one, method, how, bits);
                }
            }
    printf("%lld runs of rows with NaN\n", (long long)runs);
}

static void all_nans(void) { nans(true); }
static void some_nans(void) { nans(false); }

/* Excluded elements give 0 and have no effect. A scale rounds once. */
static void masks_and_scales(void) {
    static const double scales[] = {1.0, 0.7, -2.5};
    mean errors = {0};
    int64_t cases = 0;
    for (int t = 0; t < TYPES; t++)
        for (int64_t N = 1; N <= MIDDLING; N += N < 40 ? 1 : 51)
            for (int masked = 0; masked < 2; masked++)
                for (int k = 0; k < 3; k++) {
                    if (cases++ % each != 0) continue;
                    task job = new_task(types[t].x, types[t].y, TASK_ROWS, N, 2, 0);
                    job.scale = scales[k];
                    if (masked) {
                        job.where = place(plain_where_room, ONS_BOOL, ROWS, TASK_ROWS, N, 0);
                        for (int64_t i = 0; i < TASK_ROWS; i++)
                            for (int64_t j = 0; j < N; j++) {
                                *element(job.where, i, j) = i < TASK_ROWS - 1 && uniform() < 0.7;
                                if (excluded(&job, i, j)) put(job.x, i, j, j % 2 ? NAN : HUGE_VALL);
                            }
                    }
                    every_way(&job, types[t].y, &errors);
                }
}

/* Elements far below the others, or -inf, give 0 without a product that underflows. It would take a
 * hundred times as long. Scalar code for double is an exception. */
static void no_underflow(const char *isa) {
    static const long double low[] = {-HUGE_VALL, -1e30L, -1e4L};
    for (ons_dtype type = ONS_FLOAT32; type <= ONS_FLOAT64; type++)
        for (int64_t N = 3; N <= MIDDLING && strcmp(isa, "scalar") != 0; N = 3 * N + 1)
            for (int form = 0; form < 2; form++) {
                layout how = form ? COLUMNS : ROWS;
                task job = {.x = place(x_room, type, how, TASK_COLUMNS, N, 0),
                            .y = place(y_room, type, how, TASK_COLUMNS, N, 0)};
                job.rows = TASK_COLUMNS, job.N = N, job.scale = 1, job.threads = 1;
                for (int64_t i = 0; i < TASK_COLUMNS; i++)
                    for (int64_t j = 0; j < N; j++)
                        put(job.x, i, j, j % 2 ? low[(i + j) % 3] : uniform());
                feclearexcept(FE_ALL_EXCEPT);
                run(&job, ONS_METHOD_AUTO);
                run(&job, ONS_METHOD_safe); /* safe computes each exponential twice */
                REQUIRE(!fetestexcept(FE_UNDERFLOW), FACTS,
                        FACTS_OF(&job, ONS_METHOD_AUTO, how, 0, 0));
            }
}

/* Few long rows are enough work for several threads. The bits do not show the number of threads. */
static void threads(void) {
    for (ons_dtype type = ONS_BFLOAT16; type <= ONS_FLOAT32; type++)
        for (int64_t rows = 1; rows <= TASK_COLUMNS; rows += TASK_COLUMNS - 1) {
            task job = new_task(type, type, rows, MAX_ELEMENTS / 2 / rows + 5, 3, 0);
            job.y = place(like_room, type, ROWS, rows, job.N, 0);
            run(&job, ONS_METHOD_safe);
            FOR_EACH_METHOD(method)
            for (job.threads = 1; job.threads <= 3 && agrees(method); job.threads += 2) {
                task one = job;
                one.y = place(y_room, type, ROWS, rows, job.N, 0);
                run(&one, method);
                check_bits(&one, method, ROWS, job.y, rows);
            }
        }
}

/* The pairs of the elements begin to end of each row. */
static void take_pairs(const task *job, ons_method method, int64_t begin, int64_t end,
                       ons_pair *pairs) {
    task part = *job;
    part.N = end - begin;
    part.x.data = element(job->x, 0, begin);
    part.y = (array){(char *)pairs, job->x.dtype, (int64_t)sizeof *pairs, 0};
    run_as(ONS_OPERATION_normalizer, &part, method, NULL);
}

/* Within 3 eps plus the smallest subnormal number. */
static void check_near(const task *job, ons_method method, layout how, array like, int64_t rows) {
    ons_dtype type = job->y.dtype;
    long double eps = ldexpl(1.0L, -formats[type].fraction);
    long double least = ldexpl(eps, formats[type].least);
    for (int64_t i = 0; i < job->rows; i++)
        for (int64_t j = 0; j < job->N; j++) {
            long double y = get(job->y, i, j), by = get(like, i % rows, j);
            REQUIRE(isnan(by) ? isnan(y) : fabsl(y - by) <= 3 * eps * by + least,
                    FACTS ": %La for %La", FACTS_OF(job, method, how, i, j), y, by);
        }
}

/* Rows in two parts, by any method. Their merged pairs finish the row as `safe` finishes the whole
 * row. The bits are the same if the cut is between chunks, no row has an anchor, and the type is
 * not float64. (A float64 pair keeps only what fits one double.) */
static void check_parts(const task *plain, int64_t cut, bool to_the_bit) {
    static ons_pair first[TASK_COLUMNS], second[TASK_COLUMNS];
    ons_dtype type = plain->x.dtype;
    run(plain, ONS_METHOD_safe);
    array like = place(like_room, type, ROWS, plain->rows, plain->N, 0);
    repeat(like, plain->rows, plain->y, plain->rows, plain->N);
    FOR_EACH_METHOD(method)
    for (layout how = ROWS; how < LAYOUTS && agrees(method); how++) {
        task one = *plain;
        one.rows = how == COLUMNS ? TASK_COLUMNS : plain->rows;
        one.x = place(x_room, type, how, one.rows, one.N, method);
        one.y = place(y_room, type, how, one.rows, one.N, method + 4);
        repeat(one.x, one.rows, plain->x, plain->rows, one.N);
        take_pairs(&one, method, 0, cut, first);
        take_pairs(&one, ONS_METHOD_AUTO, cut, one.N, second);
        for (int64_t i = 0; i < one.rows; i++) first[i] = ons_pair_merge(second[i], first[i]);
        run_as(ONS_OPERATION_softmax, &one, ONS_METHOD_AUTO, first);
        check_near(&one, method, how, like, plain->rows);
        if (to_the_bit) check_bits(&one, method, how, like, plain->rows);
    }
}

static void pairs(void) {
    static const double offset_of_row[] = {0, -16384, 20000, 1e30};
    for (int t = 0; t < ALIKE; t++)
        for (int64_t N = 1; N <= 5000; N = 3 * N + 1)
            for (int k = 0; k < 4; k++)
                for (int chunks = 0; chunks < 2; chunks++) {
                    ons_dtype type = types[t].x;
                    double offset = type == ONS_FLOAT16 ? 0 : offset_of_row[k];
                    task job = new_task(type, type, TASK_ROWS, N, 3, offset);
                    for (int64_t j = 0; j < N; j++) put(job.x, 1, j, j % 3 ? 1 : -HUGE_VALL);
                    if (k == 1) put(job.x, 2, N / 2, chunks ? NAN : HUGE_VALL);
                    int64_t cut = chunks ? N / 2 / ONS_CHUNK * ONS_CHUNK : N / 2;
                    check_parts(&job, cut, k == 0 && chunks && type != ONS_FLOAT64);
                }
}

/* More neighbouring rows than a strip takes. The last strip is not full. */
static void strips(void) {
    static const int64_t several[] = {65, 130, 257, 520};
    int64_t cases = 0;
    for (int t = 0; t < ALIKE; t++)
        for (int k = 0; k < 4; k++)
            for (int64_t N = 1; N <= 700; N = 9 * N + 5) {
                if (cases++ % each != 0) continue;
                task job = new_task(types[t].x, types[t].y, several[k], N, 2, 0);
                run(&job, ONS_METHOD_safe);
                alike(&job, types[t].y);
            }
}

static const struct {
    const char *name;
    void (*check)(void);
    bool alone; /* takes so long that it runs only with --only */
} checks[] = {{"conversions", conversions, false}, {"lengths", lengths, false},
              {"offsets", offsets, false},         {"edges", edges, false},
              {"some NaN", some_nans, false},      {"all NaN", all_nans, true},
              {"strips", strips, false},           {"masks and scales", masks_and_scales, false},
              {"threads", threads, false},         {"pairs", pairs, false}};
enum { CHECKS = sizeof checks / sizeof *checks };

static void check_isa(const char *name, const char *only) {
    REQUIRE(ons_isa_select(name), "this processor does not run %s", name);
    memset(seen, 0, sizeof seen);
    for (int k = 0; k < CHECKS; k++) {
        if (only ? strcmp(only, checks[k].name) != 0 : checks[k].alone) continue;
        clock_t begin = clock();
        checks[k].check();
        printf("%s: %s, %.1f s\n", name, checks[k].name,
               (double)(clock() - begin) / CLOCKS_PER_SEC);
        fflush(stdout);
    }
    if (only) return;
    no_underflow(name);
    REQUIRE(seen[ONS_ROW_FORM] && seen[ONS_COLUMN_FORM], "a form was not seen");
}

static bool is_check(const char *name) {
    for (int k = 0; k < CHECKS; k++)
        if (strcmp(name, checks[k].name) == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    room *const rooms[] = {&x_room,       &y_room,           &where_room, &plain_x_room,
                           &plain_y_room, &plain_where_room, &like_room};
    for (int k = 0; k < 7; k++) *rooms[k] = make_room(8 * MAX_ELEMENTS);
    const char *const *names = (const char *const *)argv + 1, *only = NULL;
    if (argc > 2 && strcmp(names[0], "--only") == 0) only = names[1], names += 2;
    REQUIRE(!only || is_check(only), "there is no check %s", only);
    if (names[0] && names[1] && strcmp(names[0], "--each") == 0) each = atoi(names[1]), names += 2;
    REQUIRE(each > 0, "--each takes a number from 1 on");
    for (names = *names ? names : ons_isa_available(); *names; names++) check_isa(*names, only);
    puts("passed");
    return 0;
}
