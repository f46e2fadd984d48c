/* sum.h - the order in which the exponentials of a row are added up. It is the same for every
 * method and both forms, and depends only on N and the types.
 *
 *  1. Element j belongs to lane j mod LANES. A lane adds TERMS elements as a tree, in the compute
 *     type: ((a + b) + (c + d)) + ((e + f) + (g + h)). Missing elements count as 0.
 *  2. Two such sums are added in double: in float32 the sums of lanes l and l + 8, in float64 the
 *     sums of one lane in two chunks.
 *  3. The result goes into one of eight running sums, in double. In float64 each also keeps what
 *     the additions round away (two-sum: Knuth, TAOCP 2, 4.2.2, theorem B).
 *  4. After ONS_BLOCK elements the eight running sums are added as a tree: l and l + 4,
 *     l and l + 2, the last two. In float64 each addition is a two-sum, except in rows of at most
 *     2 * LANES elements, whose whole tree is four additions.
 *  5. Blocks are added in their order (ons_state_add).
 *
 * So at most three roundings of the compute type lie between an element and d in float32, and four
 * in float64. docs/how-it-works.md has the error that follows. */
#ifndef ONS_CPU_KERNEL_SUM_H
#define ONS_CPU_KERNEL_SUM_H

#include "vectors.h"

#define CHUNK (TERMS * LANES)       /* elements of which each lane adds TERMS */
#define STEP (2 * ONS_SUMS * TERMS) /* elements of which each running sum takes two such sums */
/* Distance between the two sums' elements in the array. */
#define OTHER (BITS == 32 ? ONS_SUMS : CHUNK)

/* Four elements of each lane of a vector. */
ONS_ALWAYS VEC sum_of_four(const VEC *a) { return (a[0] + a[1]) + (a[2] + a[3]); }

/* Number of a lane's elements, at most TERMS, among the next `left` elements, which begin with one
 * of them. */
ONS_ALWAYS int64_t of_lane(int64_t left) {
    return left <= 0 ? 0 : left > (TERMS - 1) * LANES ? TERMS : (left + LANES - 1) / LANES;
}

/* A double for each lane of a vector: several vectors if the compute type is float. They are lifted
 * by a power of two, as the exponentials are (exponential.h). */
#define PARTS (WIDTH * sizeof(double) / sizeof(f64_vec))
#define EACH_PART for (size_t k = 0; k < PARTS; k++)
typedef struct {
    f64_vec part[PARTS];
} wide;

ONS_ALWAYS wide widen(VEC a) {
    wide wide;
    V(widen)(wide.part, a);
    return wide;
}

ONS_ALWAYS wide wide_load(const double *p) {
    wide wide;
    EACH_PART wide.part[k] = f64_load(p + k * (WIDTH / PARTS));
    return wide;
}

ONS_ALWAYS void wide_store(double *p, wide a) {
    EACH_PART f64_store(p + k * (WIDTH / PARTS), a.part[k]);
}

ONS_ALWAYS wide wide_zero(void) { return widen(V(set)(0)); }

ONS_ALWAYS wide wide_add(wide a, wide b) {
    EACH_PART a.part[k] += b.part[k];
    return a;
}

/* *d += term, and *low += what that rounds away. */
ONS_ALWAYS void two_sum(f64_vec *d, f64_vec *low, f64_vec term) {
    f64_vec sum = *d + term, other = sum - *d;
    f64_vec d_error = *d - (sum - other), term_error = term - other;
    *low += d_error + term_error;
    *d = sum;
}

ONS_ALWAYS void add_term(wide *d, wide *low, wide term) {
    EACH_PART two_sum(&d->part[k], &low->part[k], term.part[k]);
}

/* Adds a lane's sum of TERMS elements to a running sum; `low` in float64 only. */
ONS_ALWAYS void run_on(f64_vec *d, f64_vec *low, f64_vec term) {
    if (BITS == 64)
        two_sum(d, low, term);
    else
        *d += term;
}

/* The eight running sums of one row. In memory they are eight doubles, then the eight parts that
 * these rounded away. */
enum { EIGHT = ONS_SUMS * sizeof(double) / sizeof(f64_vec), DOUBLES = WIDTH / PARTS };
typedef struct {
    f64_vec d[EIGHT], low[EIGHT];
} sums;

ONS_ALWAYS sums no_sums(void) {
    sums sums;
    for (int k = 0; k < EIGHT; k++) sums.d[k] = sums.low[k] = f64_set(0);
    return sums;
}

ONS_ALWAYS sums load_sums(const double *p) {
    sums sums = no_sums();
    for (int k = 0; k < EIGHT; k++) sums.d[k] = f64_load(p + k * DOUBLES);
    for (int k = 0; k < EIGHT && BITS == 64; k++)
        sums.low[k] = f64_load(p + ONS_SUMS + k * DOUBLES);
    return sums;
}

ONS_ALWAYS void store_sums(double *p, const sums *sums) {
    for (int k = 0; k < EIGHT; k++) f64_store(p + k * DOUBLES, sums->d[k]);
    for (int k = 0; k < EIGHT && BITS == 64; k++)
        f64_store(p + ONS_SUMS + k * DOUBLES, sums->low[k]);
}

/* The lanes' sums over one chunk (float64: up to two), as terms of the running sums. */
ONS_ALWAYS void term_of(f64_vec *term, VEC (*lanes)[VECS], int64_t chunks) {
    V(add_lanes)(term, lanes[0]);
    if (STEP == CHUNK || chunks < 2) return;
    f64_vec other[EIGHT];
    V(add_lanes)(other, lanes[1]);
    for (int k = 0; k < EIGHT; k++) term[k] += other[k];
}

/* Adds several chunks at once to the running sums, or makes running sums from them alone. Doing it
 * in each chunk would put one chain of long instructions after another. `max_chunks`, a constant:
 * the most chunks there may be. */
enum { CHUNKS_AT_ONCE = 16 };
ONS_ALWAYS void add_chunks(sums *sums, VEC (*lanes)[VECS], int64_t chunks) {
    for (int64_t i = 0; i < chunks; i += STEP / CHUNK) {
        f64_vec term[EIGHT];
        term_of(term, lanes + i, chunks - i);
        for (int k = 0; k < EIGHT; k++) run_on(&sums->d[k], &sums->low[k], term[k]);
    }
}
ONS_ALWAYS sums sums_of_chunks(VEC (*lanes)[VECS], int64_t chunks, int64_t max_chunks) {
    sums sums = no_sums();
    term_of(sums.d, lanes, chunks);
    if (max_chunks > STEP / CHUNK && chunks > STEP / CHUNK)
        add_chunks(&sums, lanes + STEP / CHUNK, chunks - STEP / CHUNK);
    return sums;
}

/* Adds the eight as a tree, into the first. `short_rows`: rows of at most 2 * LANES elements. */
ONS_ALWAYS void total(f64_vec *d, f64_vec *low, bool short_rows) {
    for (int half = ONS_SUMS / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) {
            if (BITS == 64) low[l] += low[l + half];
            if (BITS == 64 && !short_rows)
                two_sum(&d[l], &low[l], d[l + half]);
            else
                d[l] += d[l + half];
        }
}

/* The total of one row's sums: d, and the part that it rounds away. */
ONS_ALWAYS void total_of_row(const sums *sums, bool short_rows, double *d, double *low) {
    if (BITS == 32 || short_rows) {
        *d = f64_sum_eight(sums->d);
        *low = BITS == 64 ? f64_sum_eight(sums->low) : 0;
        return;
    }
    double eight[2 * ONS_SUMS];
    store_sums(eight, sums);
    f64_vec all[ONS_SUMS], rest[ONS_SUMS];
    for (int l = 0; l < ONS_SUMS; l++) {
        all[l] = f64_set(eight[l]);
        rest[l] = f64_set(eight[ONS_SUMS + l]);
    }
    total(all, rest, false);
    double lanes[DOUBLES];
    f64_store(lanes, *all);
    *d = *lanes;
    f64_store(lanes, *rest);
    *low = *lanes;
}

/* The totals of WIDTH rows. */
ONS_ALWAYS void totals_of_rows(wide *d, wide *low, sums *rows) {
    EACH_PART {
        if (BITS == 32) {
            f64_vec eight[DOUBLES][EIGHT];
            for (int i = 0; i < DOUBLES; i++)
                for (int l = 0; l < EIGHT; l++) eight[i][l] = rows[k * DOUBLES + i].d[l];
            d->part[k] = f64_sum_rows(eight);
            continue;
        }
        double kept[DOUBLES][2 * ONS_SUMS];
        f64_vec all[ONS_SUMS], rest[ONS_SUMS];
        for (int i = 0; i < DOUBLES; i++) store_sums(kept[i], &rows[i]);
        for (int l = 0; l < ONS_SUMS; l += 4) {
            f64_load_columns(all + l, (const char *)&kept[0][l], sizeof *kept);
            f64_load_columns(rest + l, (const char *)&kept[0][ONS_SUMS + l], sizeof *kept);
        }
        total(all, rest, false);
        d->part[k] = *all;
        low->part[k] = *rest;
    }
}

/* The totals of WIDTH columns. `sums` has `width` doubles for each running sum. `once`: each
 * running sum took at most one term, and rounded nothing away. */
ONS_ALWAYS void totals_of_columns(wide *d, wide *low, const double *sums, int64_t width,
                                  bool short_rows, bool once) {
    EACH_PART {
        f64_vec all[ONS_SUMS], rest[ONS_SUMS];
        const double *columns = sums + k * DOUBLES;
        for (int l = 0; l < ONS_SUMS; l++) {
            all[l] = f64_load(columns + l * width);
            if (BITS == 64)
                rest[l] = once ? f64_set(0) : f64_load(columns + (ONS_SUMS + l) * width);
        }
        total(all, rest, short_rows);
        d->part[k] = *all;
        low->part[k] = BITS == 64 ? *rest : f64_set(0);
    }
}

/* The totals of columns of at most 2 * LANES elements. Vector e[l] has element l of every column.
 * Missing elements are left out, since they would add 0. */
ONS_ALWAYS wide lane(const VEC *e, int64_t l, int64_t count) {
    return widen(l + LANES < count ? (VEC)(e[l] + e[l + LANES]) : e[l]);
}
#define SUM_OF(n, of_half, half)                                              \
    ONS_ALWAYS wide sum_of_##n(const VEC *e, int64_t l, int64_t count) {      \
        wide sum = of_half(e, l, count);                                      \
        int64_t other = l + (half);                                           \
        return other < count ? wide_add(sum, of_half(e, other, count)) : sum; \
    }
SUM_OF(2, lane, LANES / 2)
SUM_OF(4, sum_of_2, LANES / 4)
#if BITS == 32
SUM_OF(8, sum_of_4, LANES / 8)
#define SUM_OF_HALF sum_of_8
#else
#define SUM_OF_HALF sum_of_4
#endif
ONS_ALWAYS wide total_of_short(const VEC *e, int64_t count) {
    wide sum = wide_zero();
    if (count > 0) sum = SUM_OF_HALF(e, 0, count);
    return count > 1 ? wide_add(sum, SUM_OF_HALF(e, 1, count)) : sum;
}
#undef SUM_OF
#undef SUM_OF_HALF

/* WIDTH rows after they are added up: the lifted d, d_low or NULL (the part that d rounded away),
 * and each row's m, anchor and shift. */
typedef struct {
    wide d;
    const wide *d_low;
    VEC m, anchor, shift;
} sums_of_rows;

/* Doubles as a vector of the nearest T. Sets *differ if one of them is not exact. */
ONS_ALWAYS VEC narrow_at(const double *p, bool *differ) {
    wide all = wide_load(p);
    VEC nearest = V(narrow)(all.part);
    wide back = widen(nearest);
    *differ = false;
    EACH_PART *differ |= f64_any_outside(all.part[k] - back.part[k], f64_set(0));
    return nearest;
}

#endif
