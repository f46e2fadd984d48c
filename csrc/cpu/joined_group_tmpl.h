/* joined_group_tmpl.h - next_group of group_tmpl.h where the rows of a group follow each other in y
 * without a gap, so that whole vectors go there, and past the caches whole lines, whichever rows
 * they belong to: one for rows of whole quads of one block, one for rows of any length of more.
 * Part of primitives_tmpl.h, whose parameters and names it uses. */

/* Of a vector's elements, how many lie in a row of which so many are left. */
INLINE int64_t FN(own_of)(int64_t left) { return left < 0 ? 0 : left < WIDTH ? left : WIDTH; }

/* What lies before the first line of y, which goes past the caches; how many elements that are. All
 * rows of the group are divided so far ahead. */
INLINE int64_t FN(divide_to_line)(FN(groups) * at, int64_t N) {
    T *shared = at->done > 0 ? at->shared : NULL;
    FN(quotient)
    first = FN(begin_quotient)(at->before->factor[0], at->before->beyond[0], at->y, at->e_before, N,
                               OWN, true, shared);
    return first.at;
}

/* next_group of whole groups of rows of whole quads, which follow each other in y without a gap: y
 * is divided, past the caches from its first line on, whatever row that is in. What is left is
 * joined with the next group by `shared`, as begin_quotient does it. Rows are divided in `turn`, a
 * KiB behind the places of x that are read meanwhile (see FN(lag)); not where two groups fill the
 * first cache, which takes them best in the order in which they were written. */
INLINE void FN(next_whole_group)(FN(groups) * at, const ons_run_of_rows *run, bool past_caches) {
    int64_t N = run->N, bytes = N * (int64_t)sizeof(T);
    T *y = (T *)(void *)at->y;
    const T *before = at->e_before, *factors = at->before->factor, *beyonds = at->before->beyond;
    int64_t ahead = past_caches ? FN(divide_to_line)(at, N) : 0;
    before += ahead;
    y += ahead;
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
            int64_t line = q + QUAD - FN(line);
            for (int64_t j = q; j < line; j += WIDTH) {
                VEC quotient = V(times)(V(held)(V(load)(from + j)), factor, beyond);
                FN(put_vector)(to + j, quotient, past_caches);
            }
            bool cut = past_caches && ahead > 0 && q + QUAD == N; /* by the end of the row */
            for (int64_t j = line; j < line + FN(line); j += WIDTH) {
                int64_t own = WIDTH; /* elements that are not the next row's */
                if (cut) {
                    own = FN(own_of)(N - ahead - j);
                    factor = V(join)(factor, SET_OF(factors, next), own);
                    beyond = V(join)(beyond, SET_OF(beyonds, next), own);
                }
                VEC quotient = V(times)(V(held)(V(load)(from + j)), factor, beyond);
                if (!cut || k + 1 < at->most || own == WIDTH)
                    FN(put_vector)(to + j, quotient, past_caches);
                else if (own > 0)
                    V(store)(at->shared, quotient);
            }
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

/* The lines of y that begin in row k of a group whose rows follow each other without a gap; the
 * first one begins at element `ahead` of y. */
typedef struct {
    const T *e;
    T *y;
    int64_t whole; /* vectors before the last line */
    int64_t own;   /* elements of that which are the row's: others are the next one's */
    VEC factor, beyond;
} FN(lines_of_row);

INLINE FN(lines_of_row) FN(begin_lines_of_row)(const FN(group) * group, const T *e, T *y, int64_t k,
                                               int64_t n, int64_t ahead) {
    int64_t begin = k * n - ahead, end = begin + n;
    int64_t first = (begin + FN(line) - 1) & -FN(line), last = (end - 1) & -FN(line);
    return (FN(lines_of_row)){e + first - begin,        y + ahead + first,
                              (last - first) / WIDTH,   end - last,
                              SET_OF(group->factor, k), SET_OF(group->beyond, k)};
}

INLINE void FN(divide_whole)(const FN(lines_of_row) * row, int64_t from, int64_t to,
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
 * y without a gap: y is divided from its first line on, in the caches from its first aligned place,
 * whatever row that is in. What is left is joined with the next group by `shared`, as
 * begin_quotient does it, where y goes past the caches. */
INLINE void FN(next_joined_group)(FN(groups) * at, const ons_run_of_rows *run, bool past_caches) {
    ons_dtype as = OWN;
    int64_t N = run->N, bytes = N * (int64_t)sizeof(T);
    T *y = (T *)(void *)at->y;
    int64_t ahead = past_caches ? FN(divide_to_line)(at, N) : FN(unaligned)(y, N);
    if (!past_caches && ahead > 0) /* the second vector overwrites a part of it */
        V(store)
    (y,
     V(times)(V(load)(at->e_before), SET_OF(at->before->factor, 0), SET_OF(at->before->beyond, 0)));
    int64_t turn = FN(turn)(at, bytes);
    int64_t fewest = (N / FN(line) - 1) * (FN(line) / WIDTH); /* vectors of each row */
    int64_t steadily = fewest & -(QUAD / WIDTH);
    bool cut = ahead > 0 || N % FN(line) != 0;
    for (int64_t i = 0; i < at->most; i++) {
        int64_t k = (i + turn) % at->most, next = k + 1 < at->most ? k + 1 : k, divided = 0;
        FN(lines_of_row)
        row = FN(begin_lines_of_row)(at->before, at->e_before + k * run->pitch, y, k, N, ahead);
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
        FN(divide_whole)(&row, divided, row.whole, past_caches);
        const T *last = row.e + row.whole * WIDTH;
        const T *last_next = at->e_before + next * run->pitch - row.own;
        for (int64_t j = 0; j < FN(line); j += WIDTH) {
            int64_t own = cut ? FN(own_of)(row.own - j) : WIDTH;
            VEC quotient = V(times)(V(load)(last + j), row.factor, row.beyond);
            if (cut)
                quotient =
                    V(join)(quotient,
                            V(times)(V(load)(last_next + j), SET_OF(at->before->factor, next),
                                     SET_OF(at->before->beyond, next)),
                            own);
            bool whole = own == WIDTH || k + 1 < at->most;
            if (past_caches && !whole && own > 0)
                V(store)(at->shared, quotient);
            else if (whole || own > 0)
                FN(put_vector)(row.y + row.whole * WIDTH + j, quotient, past_caches);
        }
        at->largest[i] = FN(lanes_of_maximum)(&behind, as);
    }
}
