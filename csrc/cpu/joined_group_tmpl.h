/* joined_group_tmpl.h - next_group of group_tmpl.h where the rows of a group follow each other in y
 * without a gap, so that whole vectors go there, whichever rows they belong to: one for rows of
 * whole quads of one block, one for rows of any length of more. Part of primitives_tmpl.h, whose
 * parameters and names it uses. */

/* The same of whole groups of rows of whole quads that follow each other in y without a gap: y is
 * divided from its first aligned place on, whatever row that is in. What is left is joined with the
 * next group by `shared`, as begin_quotient does it. Rows are divided in `turn`, a KiB behind the
 * places of x that are read meanwhile (see FN(lag)); not where two groups fill the first cache,
 * which takes them best in the order in which they were written. */
INLINE void FN(next_whole_group)(FN(groups) * at, const ons_run_of_rows *run, bool past_caches) {
    int64_t N = run->N, bytes = N * (int64_t)sizeof(T);
    T *y = (T *)(void *)at->y;
    const T *before = at->e_before, *factors = at->before->factor, *beyonds = at->before->beyond;
    int64_t head = past_caches ? FN(unaligned)(y, N) : 0;
    if (head > 0) {
        VEC first = V(times)(V(load)(before), SET_OF(factors, 0), SET_OF(beyonds, 0));
        if (at->done > 0) {
            V(store_part)(at->shared + WIDTH - head, first, head);
            V(stream)(y + head - WIDTH, V(load)(at->shared));
        } else {
            V(store_part)(y, first, head);
        }
        before += head;
        y += head;
    }
    int64_t turn = at->most * bytes <= 8192 ? 1024 / bytes : 0;
    for (int64_t i = 0; i < at->most; i++) {
        int64_t k = (i + turn) % at->most, next = k + 1 < at->most ? k + 1 : k;
        const T *from = before + k * N;
        T *to = y + k * N;
        const T *x = (const T *)(const void *)(at->x + i * at->across);
        const T *behind = (const T *)(const void *)(at->behind + i * at->across);
        const char *fetch = at->fetch + i * run->x.across;
        T *e = at->e + i * N;
        VEC shift = SET_OF(at->now->shift, i), floor = SET_OF(at->now->floor, i);
        VEC factor = SET_OF(factors, k), beyond = SET_OF(beyonds, k);
        VEC lanes[VECS], even = V(set)((T)-INFINITY), odd = even;
        for (int64_t v = 0; v < VECS; v++) lanes[v] = V(set)(0);
        for (int64_t q = 0; q < N; q += QUAD) {
            for (int64_t v = 0; v < VECS; v++) {
                int64_t from = q + v * WIDTH;
                VEC sum = FN(whole_quad)(e + from, x + from, shift, floor, false);
                lanes[v] = V(add)(lanes[v], sum);
            }
            int64_t last = q + QUAD - WIDTH;
            for (int64_t j = q; j < last; j += WIDTH) {
                VEC quotient = V(times)(V(held)(V(load)(from + j)), factor, beyond);
                FN(put_vector)(to + j, quotient, past_caches);
            }
            if (q + QUAD == N) { /* which goes on in the next row */
                factor = V(join)(factor, SET_OF(factors, next), WIDTH - head);
                beyond = V(join)(beyond, SET_OF(beyonds, next), WIDTH - head);
            }
            VEC quotient = V(times)(V(held)(V(load)(from + last)), factor, beyond);
            if (q + QUAD == N && k + 1 == at->most && head > 0)
                V(store)(at->shared, quotient);
            else
                FN(put_vector)(to + last, quotient, past_caches);
            for (int64_t k = q; k < q + QUAD; k += 2 * WIDTH) {
                even = V(max)(V(load)(behind + k), even);
                odd = V(max)(V(load)(behind + k + WIDTH), odd);
            }
            for (int64_t line = 0; line < QUAD; line += FN(line))
                FN(fetch)(fetch + (q + line) * (int64_t)sizeof(T));
        }
        for (int64_t v = 0; v < VECS; v++) at->sums[i][v] = lanes[v];
        at->largest[i] = V(max)(even, odd);
    }
}

/* The vectors of y that begin in row k of a group whose rows follow each other without a gap; y is
 * aligned from its element `head` on. */
typedef struct {
    const T *e;
    T *y;
    int64_t whole; /* vectors before the last one */
    int64_t cut;   /* elements of that which are the row's: others are the next one's */
    VEC factor, beyond;
} FN(vectors_of_row);

INLINE FN(vectors_of_row) FN(begin_vectors)(const FN(group) * group, const T *e, T *y, int64_t k,
                                            int64_t n, int64_t head) {
    int64_t begin = k * n, end = begin + n;
    int64_t first = (begin - head + WIDTH - 1) & -WIDTH, last = (end - head - 1) & -WIDTH;
    return (FN(vectors_of_row)){e + head + first - begin, y + head + first,
                                (last - first) / WIDTH,   end - head - last,
                                SET_OF(group->factor, k), SET_OF(group->beyond, k)};
}

INLINE void FN(divide_whole)(const FN(vectors_of_row) * row, int64_t from, int64_t to,
                             bool past_caches) {
    for (int64_t v = from; v < to; v++) {
        VEC e = V(load)(row->e + v * WIDTH);
        FN(put_vector)(row->y + v * WIDTH, V(times)(e, row->factor, row->beyond), past_caches);
    }
}

/* Rows by which the division of a group begins ahead of its first, so that no load of x soon
 * follows a store to y with the same last 12 bits of its address (see FN(lag)). */
INLINE int64_t FN(turn)(const FN(groups) * at, int64_t bytes) {
    int64_t turn = 0;
    while (turn < 4 &&
           (((uintptr_t)at->y + (uintptr_t)(turn * bytes) - (uintptr_t)at->x) & 4095) < 768)
        turn++;
    return turn;
}

/* next_group of groups that have all their rows, none of them anchored, which follow each other in
 * y without a gap: y is divided from its first aligned place on, whatever row that is in. What is
 * left is joined with the next group by `shared`, as begin_quotient does it, where y goes past the
 * caches. */
INLINE void FN(next_joined_group)(FN(groups) * at, const ons_run_of_rows *run, bool past_caches) {
    ons_dtype as = OWN;
    int64_t N = run->N, bytes = N * (int64_t)sizeof(T);
    T *y = (T *)(void *)at->y;
    int64_t head = FN(unaligned)(y, N);
    if (head > 0) {
        VEC first = V(times)(V(load)(at->e_before), SET_OF(at->before->factor, 0),
                             SET_OF(at->before->beyond, 0));
        if (!past_caches) { /* the second vector overwrites a part of it */
            V(store)(y, first);
        } else if (at->done > 0) {
            V(store_part)(at->shared + WIDTH - head, first, head);
            V(stream)(y + head - WIDTH, V(load)(at->shared));
        } else {
            V(store_part)(y, first, head);
        }
    }
    int64_t turn = FN(turn)(at, bytes);
    int64_t fewest = N / WIDTH - 1, steadily = fewest & -(QUAD / WIDTH); /* vectors of each row */
    bool cut = head > 0 || N % WIDTH != 0;
    for (int64_t i = 0; i < at->most; i++) {
        int64_t k = (i + turn) % at->most, next = k + 1 < at->most ? k + 1 : k, divided = 0;
        FN(vectors_of_row)
        row = FN(begin_vectors)(at->before, at->e_before + k * run->pitch, y, k, N, head);
        const T *x = (const T *)(const void *)(at->x + i * at->across);
        const char *fetch = at->fetch + i * run->x.across;
        T *e = at->e + i * run->pitch;
        VEC shift = SET_OF(at->now->shift, i), floor = SET_OF(at->now->floor, i);
        FN(maximum) behind = FN(begin_maximum)(at->behind + i * at->across, N);
        for (int64_t b = 0; b < ONS_GROUPED_BLOCKS; b++) {
            int64_t n = b + 1 < ONS_GROUPED_BLOCKS ? BLOCK : N - b * BLOCK, q = 0;
            VEC lanes[VECS];
            for (int64_t v = 0; v < VECS; v++) lanes[v] = V(set)(0);
            for (; q + QUAD <= n; q += QUAD) {
                for (int64_t v = 0; v < VECS; v++) {
                    int64_t from = q + v * WIDTH;
                    VEC sum = FN(whole_quad)(e + from, x + from, shift, floor, false);
                    lanes[v] = V(add)(lanes[v], sum);
                }
                if (divided < steadily) {
                    FN(divide_whole)(&row, divided, divided + QUAD / WIDTH, past_caches);
                    divided += QUAD / WIDTH;
                }
                FN(compare_vectors)(&behind, QUAD / WIDTH / 2, as);
                for (int64_t line = 0; line < QUAD; line += FN(line))
                    FN(fetch)(fetch + (q + line) * (int64_t)sizeof(T));
            }
            if (q < n)
                for (int64_t v = 0; v < VECS; v++) {
                    int64_t from = q + v * WIDTH;
                    VEC sum =
                        FN(part_of_quad)(e + from, x + from, n - from, shift, floor, false, true);
                    lanes[v] = V(add)(lanes[v], sum);
                }
            for (; q < n; q += FN(line)) FN(fetch)(fetch + q * (int64_t)sizeof(T));
            for (int64_t v = 0; v < VECS; v++) FN(lanes_of)(at, i, b)[v] = lanes[v];
            e += n;
            x += n;
            fetch += n * (int64_t)sizeof(T);
        }
        FN(divide_whole)(&row, divided, fewest, past_caches);
        if (row.whole > fewest) FN(divide_whole)(&row, fewest, fewest + 1, past_caches);
        VEC last = V(times)(V(load)(row.e + row.whole * WIDTH), row.factor, row.beyond);
        if (cut) {
            const T *e_next = at->e_before + next * run->pitch - row.cut;
            last = V(join)(last,
                           V(times)(V(load)(e_next), SET_OF(at->before->factor, next),
                                    SET_OF(at->before->beyond, next)),
                           row.cut);
        }
        if (past_caches && k + 1 == at->most && row.cut < WIDTH)
            V(store)(at->shared, last);
        else
            FN(put_vector)(row.y + row.whole * WIDTH, last, past_caches);
        at->largest[i] = FN(lanes_of_maximum)(&behind, as);
    }
}
