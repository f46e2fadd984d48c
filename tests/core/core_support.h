/* core_support.h - what core_checks.c must not take from the core: the four types bit by bit, an
 * exact softmax, logits, and memory between pages that fault. */
#ifndef CORE_SUPPORT_H
#define CORE_SUPPORT_H

#define _GNU_SOURCE
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core_require.h"

_Static_assert(LDBL_MANT_DIG > DBL_MANT_DIG, "the exact results need a long double beyond double");

/* ------- types: bits of the fraction, the exponents of the smallest and the largest normal -------
 */

typedef struct {
    int fraction, least, most;
} format;
static const format formats[] = {{10, -14, 15}, {7, -126, 127}, {23, -126, 127}, {52, -1022, 1023}};

static uint64_t bits_at(const char *p, ons_dtype dtype) {
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (ons_dtype_size(dtype)) {
    case 2: return memcpy(&two, p, 2), two;
    case 4: return memcpy(&four, p, 4), four;
    default: return memcpy(&eight, p, 8), eight;
    }
}

static long double value_of(uint64_t bits, ons_dtype dtype) {
    format is = formats[dtype];
    int width = 8 * (int)ons_dtype_size(dtype);
    uint64_t fraction = bits & ((UINT64_C(1) << is.fraction) - 1);
    int field = (int)((bits >> is.fraction) & ((UINT64_C(1) << (width - 1 - is.fraction)) - 1));
    long double sign = bits >> (width - 1) ? -1.0L : 1.0L;
    if (field > is.most - is.least + 1) return fraction ? (long double)NAN : sign * HUGE_VALL;
    if (field == 0) return sign * ldexpl((long double)fraction, is.least - is.fraction);
    fraction |= UINT64_C(1) << is.fraction;
    return sign * ldexpl((long double)fraction, field - 1 + is.least - is.fraction);
}

/* The exponent e of a value: numbers of the type lie 2^(e - fraction) apart from there on. */
static int exponent_of(long double value, ons_dtype dtype) {
    int exponent = value == 0 ? formats[dtype].least : ilogbl(value);
    return exponent < formats[dtype].least ? formats[dtype].least : exponent;
}

static long double ulp(long double value, ons_dtype dtype) {
    return ldexpl(1.0L, exponent_of(value, dtype) - formats[dtype].fraction);
}

/* The bits of the nearest number of the type. Ties go to even. */
static uint64_t rounded_bits(long double value, ons_dtype dtype) {
    format is = formats[dtype];
    uint64_t sign = (uint64_t)(signbit(value) != 0) << (8 * ons_dtype_size(dtype) - 1);
    uint64_t inf = (uint64_t)(is.most - is.least + 2) << is.fraction;
    if (isnan(value)) return sign | inf | UINT64_C(1) << (is.fraction - 1);
    if (isinf(value)) return sign | inf;
    int exponent = exponent_of(value, dtype);
    uint64_t units = (uint64_t)rintl(ldexpl(fabsl(value), is.fraction - exponent));
    /* the leading bit of a normal number's units adds one to the exponent */
    uint64_t bits = ((uint64_t)(exponent - is.least) << is.fraction) + units;
    return sign | (bits < inf ? bits : inf);
}

static long double rounded(long double value, ons_dtype dtype) {
    return value_of(rounded_bits(value, dtype), dtype);
}

/* Whether two numbers are the same. Any NaN equals any other. */
static bool same(uint64_t a, uint64_t b, ons_dtype dtype) {
    return a == b || (isnan(value_of(a, dtype)) && isnan(value_of(b, dtype)));
}

/* ------- arrays ------- */

typedef struct {
    char *data;
    ons_dtype dtype;
    int64_t across, along; /* bytes from row to row and from element to element */
} array;

static char *element(array a, int64_t i, int64_t j) { return a.data + i * a.across + j * a.along; }
static uint64_t get_bits(array a, int64_t i, int64_t j) {
    return bits_at(element(a, i, j), a.dtype);
}
static long double get(array a, int64_t i, int64_t j) {
    return value_of(get_bits(a, i, j), a.dtype);
}
static void put_bits(array a, int64_t i, int64_t j, uint64_t bits) {
    /* little-endian, like the core */
    memcpy(element(a, i, j), &bits, (size_t)ons_dtype_size(a.dtype));
}
static void put(array a, int64_t i, int64_t j, long double value) {
    put_bits(a, i, j, rounded_bits(value, a.dtype));
}

/* Row i of `to` becomes row i % rows of `from`, rounded to the type of `to`. */
static void repeat(array to, int64_t count, array from, int64_t rows, int64_t N) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < N; j++)
            if (to.dtype == from.dtype)
                memcpy(element(to, i, j), element(from, i % rows, j),
                       (size_t)ons_dtype_size(to.dtype));
            else
                put(to, i, j, get(from, i % rows, j));
}

/* Memory between two pages that fault. */
typedef struct {
    char *begin, *end;
} room;

static room make_room(int64_t bytes) {
    int64_t page = sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    char *all =
        mmap(NULL, (size_t)(inner + 2 * page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(all != MAP_FAILED, "no %lld bytes", (long long)bytes);
    REQUIRE(mprotect(all + page, (size_t)inner, PROT_READ | PROT_WRITE) == 0, "mprotect");
    return (room){all + page, all + page + inner};
}

/* How an array of `rows` rows lies: rows in one piece, rows with a gap after each element, or
 * columns. `turn` puts it at either end of the room, aligned or not. */
typedef enum { ROWS, ROWS_WITH_GAPS, COLUMNS, LAYOUTS } layout;
static const char *const layout_names[] = {"rows", "rows with gaps", "columns"};

static array place(room in, ons_dtype dtype, layout how, int64_t rows, int64_t N, int turn) {
    int64_t size = ons_dtype_size(dtype), step = how == ROWS_WITH_GAPS ? 3 * size : size;
    array a = {NULL, dtype, N * step, step};
    if (how == COLUMNS) a = (array){NULL, dtype, size, rows * size};
    int64_t bytes = (rows - 1) * a.across + (N - 1) * a.along + size, gap = turn & 1 ? turn & 3 : 0;
    REQUIRE(bytes + gap <= in.end - in.begin, "room for %lld bytes", (long long)bytes);
    a.data = turn & 4 ? in.begin + gap : in.end - gap - bytes;
    return a;
}

/* Writes a pattern to the 64 bytes on both sides of an array, or checks it. Arrays with gaps are
 * left out. */
enum { PATTERN = 0x5a };
static void around(room in, array a, layout how, int64_t rows, int64_t N, bool check) {
    if (how == ROWS_WITH_GAPS) return;
    char *behind = a.data + rows * N * ons_dtype_size(a.dtype);
    for (int64_t k = 0; k < 128; k++) {
        char *p = k < 64 ? a.data - 1 - k : behind + k - 64;
        if (p < in.begin || p >= in.end) continue;
        REQUIRE(!check || *p == PATTERN, "%s, N = %lld: wrote byte %lld of y", layout_names[how],
                (long long)N, (long long)(p - a.data));
        *p = PATTERN;
    }
}

/* ------- logits and results ------- */

static double normal(void) {
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

typedef struct {
    array x, y, where; /* where.data NULL: no mask */
    double scale;
    int64_t rows, N;
    int threads;
} task;

static bool excluded(const task *job, int64_t i, int64_t j) {
    return job->where.data && !*element(job->where, i, j);
}

/* Row i of the exact y. exact_naive: exp, sum and divide, each rounded to x's own type. */
static void exact_softmax(long double *y, const task *job, int64_t i, ons_dtype compute) {
    long double m = -HUGE_VALL, d = 0;
    for (int64_t j = 0; j < job->N; j++) {
        y[j] = get(job->x, i, j);
        if (job->scale != 1.0) y[j] = rounded(y[j] * job->scale, compute);
        if (excluded(job, i, j)) y[j] = -HUGE_VALL;
        m = fmaxl(m, y[j]);
    }
    for (int64_t j = 0; j < job->N; j++) d += y[j] = expl(y[j] - m);
    for (int64_t j = 0; j < job->N; j++) y[j] = excluded(job, i, j) ? 0 : y[j] / d;
}

static void exact_naive(long double *y, const task *job, int64_t i) {
    ons_dtype own = job->x.dtype;
    long double d = 0;
    for (int64_t j = 0; j < job->N; j++) d += y[j] = rounded(expl(get(job->x, i, j)), own);
    d = rounded(d, own);
    for (int64_t j = 0; j < job->N; j++) y[j] = rounded(y[j] / d, own);
}

#endif
