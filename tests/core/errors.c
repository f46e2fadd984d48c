/* errors.c - the largest errors of the exponentials, and the largest error of a softmax that a
 * search finds. docs/how-it-works.md adds up how large they may be.
 *
 *     errors exponentials STEP [ISA ...]    float32: every STEP-th number from -16384 to 16384, all
 *                                           of them with STEP 1; float64: random ones
 *     errors search SECONDS [ISA ...]       rows of float32
 *
 * eps is the distance from 1 to the next number. If an error exceeds the bounds of how-it-works.md,
 * the program prints it and exits with 1. */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include "core_require.h"

#include "../../csrc/cpu/cpu.h"

/* The largest spread of the relative errors of an instruction set's exponentials, in eps. A factor
 * that all exponentials share cancels in a quotient, so the spread counts. */
static double largest_spread(ons_dtype type, const char *isa) {
    if (type == ONS_FLOAT64) return 1.44;
    return strcmp(isa, "avx512") == 0 ? 1.30 : 1.72;
}
enum { LARGEST_RESULT = 4 }; /* largest error of a result, in eps */

enum { AT_ONCE = 4096 };

/* e = e^x / 2^c by the primitives, for n numbers near x[0]. Returns c. */
static double exponentials_of(ons_dtype type, void *e, void *x, int64_t n) {
    double sums[2 * ONS_SUMS] = {0}, shift, floor, largest = -HUGE_VAL;
    for (int64_t j = 0; j < n; j++)
        largest = fmax(largest, type == ONS_FLOAT32 ? (double)((float *)x)[j] : ((double *)x)[j]);
    ons_state state = ons_state_empty();
    ons_state_raise(&state, largest);
    ons_rows rows = {.width = 1,
                     .state = &state,
                     .sums = sums,
                     .sums_along = 1,
                     .shift = &shift,
                     .floor = &floor};
    int64_t size = ons_dtype_size(type);
    ons_tile from = {x, size, 0}, to = {e, size, 0};
    const ons_primitives *row = &ons_kernels_for(type)->row;
    row->set_references(&rows);
    row->exp_store_sum(&rows, to, from, n);
    return state.c;
}

typedef struct {
    long double least, most; /* quotients of computed and exact results */
} range;
static const range nothing = {HUGE_VALL, -HUGE_VALL};

static void widen(range *all, long double quotient) {
    all->least = fminl(all->least, quotient);
    all->most = fmaxl(all->most, quotient);
}

static double spread(range all, ons_dtype type) {
    return (double)ldexpl(all.most / all.least - 1, type == ONS_FLOAT32 ? 23 : 52);
}

/* ln2 in two parts. c times the first one is exact. */
static const long double ln2_high = 0x1.62e42fefap-1L, ln2_low = 0x1.cf79abc9e3b39803f3p-40L;

/* e^x / 2^c to far more digits than a float has. */
static double exact_float(float x, double c) {
    return exp(((double)x - c * (double)ln2_high) - c * (double)ln2_low);
}

static range of_floats(uint32_t step) {
    static float x[AT_ONCE], e[AT_ONCE];
    const uint32_t last = 0x46800000; /* 16384 */
    range found = nothing;
    for (uint32_t sign = 0; sign <= 1; sign++)
        for (uint64_t bits = 0; bits <= last;) {
            int64_t n = 0;
            for (; n < AT_ONCE && bits <= last; n++, bits += step) {
                uint32_t one = (uint32_t)bits | sign << 31;
                memcpy(&x[n], &one, sizeof one);
                if (fabsf(x[n] - x[0]) > 4) break;
            }
            double c = exponentials_of(ONS_FLOAT32, e, x, n);
            for (int64_t j = 0; j < n; j++)
                widen(&found, ldexp((double)e[j], -64) / exact_float(x[j], c));
        }
    return found;
}

/* A long double resolves a tenth of a double's eps. */
static range of_doubles(int64_t count) {
    static double x[AT_ONCE], e[AT_ONCE];
    range found = nothing;
    for (int64_t done = 0; done < count; done += AT_ONCE) {
        double from = ldexp(uniform() - 0.5, (int)(uniform() * 16));
        for (int64_t j = 0; j < AT_ONCE; j++) x[j] = from - 4 * uniform();
        double c = exponentials_of(ONS_FLOAT64, e, x, AT_ONCE);
        for (int64_t j = 0; j < AT_ONCE; j++) {
            long double exact = expl(((long double)x[j] - c * ln2_high) - c * ln2_low);
            widen(&found, ldexpl(e[j], -128) / exact);
        }
    }
    return found;
}

static void exponentials(const char *isa, double step) {
    for (ons_dtype type = ONS_FLOAT32; type <= ONS_FLOAT64; type++) {
        range found =
            type == ONS_FLOAT32 ? of_floats((uint32_t)step) : of_doubles((int64_t)(4e8 / step));
        double middle = (double)sqrtl(found.most * found.least), apart = spread(found, type);
        printf("%s %s: exponentials within %.4f eps of each other, around %a times e^x\n", isa,
               ons_dtype_name(type), apart, middle);
        fflush(stdout);
        REQUIRE(apart <= largest_spread(type, isa), "%s %s: at most %g", isa, ons_dtype_name(type),
                largest_spread(type, isa));
    }
}

/* ------- the search ------- */

/* Numbers whose exponentials err most in one direction, and numbers that err most in the other. */
enum { SCANNED = 1 << 16, KEPT = 256, LONGEST = 1025 };
typedef struct {
    float x;
    double quotient;   /* computed exponential over e^x */
    long double exact; /* e^x / 2^c */
} candidate;
typedef struct {
    candidate low[KEPT], high[KEPT];
} candidates;

static int by_quotient(const void *a, const void *b) {
    double one = ((const candidate *)a)->quotient, other = ((const candidate *)b)->quotient;
    return (one > other) - (one < other);
}

static void find_candidates(candidates *found) {
    static candidate all[SCANNED];
    static float x[SCANNED], e[SCANNED];
    double top = 100 * (uniform() - 0.5), reach = 0.2 + 3 * uniform();
    for (int64_t j = 0; j < SCANNED; j++) x[j] = (float)(top - reach * uniform());
    double c = exponentials_of(ONS_FLOAT32, e, x, SCANNED);
    for (int64_t j = 0; j < SCANNED; j++) {
        double exact = exact_float(x[j], c);
        all[j] = (candidate){x[j], (double)e[j] / exact, exact};
    }
    qsort(all, SCANNED, sizeof *all, by_quotient);
    for (int64_t j = 0; j < KEPT; j++) {
        found->low[j] = all[j];
        found->high[j] = all[SCANNED - 1 - j];
    }
}

/* A row whose element 0 errs in one direction and whose other elements err in the other. */
typedef struct {
    float x[LONGEST];
    long double exact[LONGEST];
    int64_t N;
} row;

static void put_candidate(row *found, int64_t j, const candidate *one) {
    found->x[j] = one->x;
    found->exact[j] = one->exact;
}

static void copy_row(row *to, const row *from) {
    to->N = from->N;
    memcpy(to->x, from->x, (size_t)from->N * sizeof *from->x);
    memcpy(to->exact, from->exact, (size_t)from->N * sizeof *from->exact);
}

/* The error of element 0, in eps. */
static double error_of(const row *found) {
    static float y[LONGEST];
    ons_problem problem = {.dims = 1, .reduced_dims = 1, .extent = {found->N}, .scale_by = 1};
    problem.operand[ONS_X] = (ons_operand){(char *)found->x, ONS_FLOAT32, {sizeof(float)}};
    problem.operand[ONS_Y] = (ons_operand){(char *)y, ONS_FLOAT32, {sizeof(float)}};
    problem.operand[ONS_WHERE] = (ons_operand){NULL, ONS_BOOL, {0}};
    ons_coalesce(&problem);
    ons_plan plan;
    ons_machine machine = ons_this_machine(1);
    REQUIRE(ons_make_plan(&problem, ONS_METHOD_AUTO, &machine, &plan) == ONS_OK, "no plan");
    REQUIRE(ons_run(&problem, &plan, NULL) == ONS_OK, "it did not run");
    long double d = 0;
    for (int64_t j = 0; j < found->N; j++) d += found->exact[j];
    return (double)fabsl(y[0] * d / found->exact[0] - 1) * 0x1p23;
}

static int64_t below(int64_t n) { return (int64_t)(uniform() * (double)n); }

/* Changes one element, every 16th element, or all from one on. Keeps a change unless the error
 * falls. */
static double climb(row *found, const candidates *from, bool low) {
    const candidate *first = low ? from->low : from->high, *others = low ? from->high : from->low;
    put_candidate(found, 0, &first[below(KEPT)]);
    for (int64_t j = 1; j < found->N; j++) put_candidate(found, j, &others[below(KEPT)]);
    static row changed;
    double largest = error_of(found);
    for (int64_t failed = 0; failed < 40 + 4 * found->N; failed++) {
        copy_row(&changed, found);
        int64_t begin = below(found->N), step = found->N, end = found->N;
        if (uniform() < 0.3)
            begin %= 16, step = 16;
        else if (uniform() < 0.1)
            step = 1;
        const candidate *by = &others[below(KEPT)];
        for (int64_t j = begin; j < end; j += step)
            put_candidate(&changed, j, j == 0 ? &first[below(KEPT)] : by);
        double error = error_of(&changed);
        if (error > largest) failed = 0;
        if (error >= largest) copy_row(found, &changed), largest = error;
    }
    return largest;
}

static void search(const char *isa, double seconds) {
    static const int64_t lengths[] = {2, 3, 5, 9, 16, 17, 33, 65, 129, 257, 513, LONGEST};
    static candidates from;
    static row found;
    double largest = 0;
    int64_t climbs = 0, of_N = 0;
    for (clock_t begin = clock(); (double)(clock() - begin) < seconds * CLOCKS_PER_SEC; climbs++) {
        if (climbs % 8 == 0) find_candidates(&from);
        found.N = lengths[below(12)];
        double error = climb(&found, &from, climbs % 2);
        if (error > largest) largest = error, of_N = found.N;
        REQUIRE(error <= LARGEST_RESULT, "%s: %g eps, N = %lld", isa, error, (long long)found.N);
    }
    printf("%s float32: an error of %.3f eps, N = %lld, the largest of %lld climbs\n", isa, largest,
           (long long)of_N, (long long)climbs);
    fflush(stdout);
}

int main(int argc, char **argv) {
    bool searches = argc > 2 && strcmp(argv[1], "search") == 0;
    REQUIRE(searches || (argc > 2 && strcmp(argv[1], "exponentials") == 0), "see errors.c");
    double amount = atof(argv[2]);
    REQUIRE(amount >= 1, "%s", argv[2]);
    const char *const *names = (const char *const *)argv + 3;
    for (names = *names ? names : ons_isa_available(); *names; names++) {
        REQUIRE(ons_isa_select(*names), "this processor does not run %s", *names);
        (searches ? search : exponentials)(*names, amount);
    }
    puts("passed");
    return 0;
}
