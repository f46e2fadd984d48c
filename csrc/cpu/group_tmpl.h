/* group_tmpl.h - softmax of whole rows, WIDTH of them together, so that what there is one of a row
 * - its reference c, its d, the division - is a vector for all of them: one row of a group after
 * the other as in fused_tmpl.h, each while a row of the group before is divided and the maximum of
 * one of the group behind is found. Adds up as row_tmpl.h does. Part of primitives_tmpl.h, whose
 * parameters and names it uses. */

#define GROUP WIDTH /* rows at once */

/* The longest rows of a group: two blocks, or where a vector is so long that the group's
 * exponentials would be more than 26 KiB as many as that gives (rows from memory lose by more).
 * Without vectors, and in float64, one row after the other is as good. */
enum {
    FN(grouped_in_room) = 26624 / sizeof(VEC),
    FN(longest_grouped) = WIDTH == 1 || BITS == 64 ? BLOCK
                          : FN(grouped_in_room) < ONS_GROUPED_BLOCKS * BLOCK
                              ? FN(grouped_in_room)
                              : ONS_GROUPED_BLOCKS * BLOCK
};

/* What there is one of a row. */
typedef struct {
    T m[GROUP], anchor[GROUP], shift[GROUP], floor[GROUP], factor[GROUP], beyond[GROUP];
    double d[GROUP]; /* lifted */
} FN(group);

/* Shift and floor of rows from their m, one a lane: c is ceil(m * log2(e)), or where that is next
 * to an integer the other neighbour: which one does not show. */
INLINE void FN(refer_lanes)(VEC m, T *shift, T *floor) {
    VEC zero = V(set)(0), bound = V(set)((T)-ONS_LARGEST_REFERENCE), magic = V(set)((T)MAGIC);
    VEC near = V(sub)(zero, V(max)(bound, V(sub)(zero, V(max)(bound, m))));
    VEC c = V(fma)(near, V(set)((T)ONS_LOG2_E), V(set)((T)0.5));
    c = V(sub)(V(add)(c, magic), magic);
    V(store)(shift, V(fma)(c, V(set)(-STEPS), V(set)((T)(MAGIC + STEPS * LIFT))));
    VEC below = V(sub)(c, V(set)((T)BELOW));
    V(store)(floor, V(mul)(below, V(set)((T)(1 / ONS_LOG2_E))));
}

/* Whether a lane is beyond ONS_LARGEST_REFERENCE, or infinite. */
INLINE bool FN(any_far)(VEC m) {
    return V(max_lanes)(V(max)(m, V(sub)(V(set)(0), m))) > (T)ONS_LARGEST_REFERENCE;
}

/* From m to anchor, shift and floor; whether a row has an anchor (ons_panel_anchor). */
INLINE bool FN(refer_group)(FN(group) * group) {
    VEC m = V(load)(group->m);
    V(store)(group->anchor, V(set)(0));
    bool far = FN(any_far)(m);
    if (far) {
        far = false;
        for (int64_t i = 0; i < GROUP; i++) {
            bool needs = ons_needs_anchor((double)group->m[i]);
            group->anchor[i] = needs ? group->m[i] : 0;
            far |= needs;
        }
        m = V(sub)(m, V(load)(group->anchor));
        V(store)(group->m, m);
    }
    FN(refer_lanes)(m, group->shift, group->floor);
    return far;
}

/* From d to factor and beyond, as FN(reciprocal) does. `d_beyond`: what d rounded away, or NULL. */
INLINE void FN(normalize_group)(FN(group) * group, const double *d_beyond) {
    double quotient[GROUP], beyond[GROUP];
    for (int64_t i = 0; i < GROUP; i++)
        quotient[i] = LOWERED / (LOWERED * (d_beyond ? group->d[i] + d_beyond[i] : group->d[i]));
    VEC factor = V(narrow)(quotient), m = V(load)(group->m);
    V(store)(group->factor, factor);
    for (int64_t i = 0; i < GROUP; i++) {
        double nearest = (double)group->factor[i];
        double rest = fma(-nearest, LOWERED * group->d[i], LOWERED);
        if (d_beyond) rest -= nearest * (LOWERED * d_beyond[i]);
        beyond[i] = rest * nearest * (1.0 / LOWERED);
    }
    VEC none = V(sub)(m, m); /* NaN where m is not finite, else 0 */
    V(store)(group->factor, V(add)(factor, none));
    V(store)(group->beyond, V(narrow)(beyond));
}

/* The lanes of a block of each row of a group. */
typedef VEC FN(sums_of_block)[GROUP][VECS];

/* From the sums in the lanes of the first block and of the later ones to factor and beyond: block
 * after block as ons_state_add adds them. */
INLINE void FN(end_group)(FN(group) * group, FN(sums_of_block) first, FN(sums_of_block) * later,
                          int64_t blocks) {
    double term[GROUP], beyond[GROUP];
    V(sum_rows)(group->d, first);
    for (int64_t i = 0; i < GROUP && blocks > 1; i++) beyond[i] = 0;
    for (int64_t b = 1; b < blocks; b++) {
        V(sum_rows)(term, later[b - 1]);
        for (int64_t i = 0; i < GROUP; i++) {
            double sum = group->d[i] + term[i], other = sum - group->d[i];
            beyond[i] += (group->d[i] - (sum - other)) + (term[i] - other);
            group->d[i] = sum;
        }
    }
    FN(normalize_group)(group, blocks > 1 ? beyond : NULL);
}

/* e = e^x of a row's block that is taken relative to its anchor, and the sums in the lanes. */
INLINE void FN(anchored_lanes)(VEC *lanes, const FN(group) * group, int64_t i, T *e, const char *x,
                               int64_t n, ons_dtype as) {
    double anchor = (double)group->anchor[i]; /* 0 where the row needs none */
    FN(load)(e, x, FN(size_as)(as), as, n);
    FN(subtract)(e, &anchor, false, n);
    FN(block_lanes)
    (lanes, SET_OF(group->shift, i), SET_OF(group->floor, i), e, e, n, false, true, NULL, 0);
}

/* Where a run of rows stands: the exponentials of group `now` are next. */
typedef struct {
    const char *x; /* its first row */
    char *y;       /* that of the group before */
    T *e, *e_before, *shared;
    int64_t rows_before, rows, rows_behind; /* of the group before, of this and of the one behind */
    bool anchored, past_caches, follow;
    int64_t done; /* rows that are in y */
    const FN(group) * now, *before;
    FN(sums_of_block) * later;             /* of this group, without those of the first block */
    VEC sums[GROUP][VECS], largest[GROUP]; /* of this group, of the group behind */
} FN(groups);

INLINE VEC *FN(lanes_of)(FN(groups) * at, int64_t i, int64_t block) {
    return block == 0 ? at->sums[i] : at->later[block - 1][i];
}

/* One group's exponentials, while the one before is divided and the one behind compared. `full`:
 * all three have all their rows, and none is anchored. */
INLINE void FN(next_group)(FN(groups) * at, const ons_run_of_rows *run, ons_dtype as,
                           int64_t blocks, bool full, bool past_caches) {
    int64_t N = run->N, bytes = N * FN(size_as)(as);
    int64_t fetch = (GROUP + (FN(ahead) + bytes - 1) / bytes) * run->x.across;
    for (int64_t i = 0; i < GROUP; i++) {
        const char *x = at->x + i * run->x.across;
        T *e = at->e + i * run->pitch;
        bool divides = full || i < at->rows_before;
        int64_t n = full || i < at->rows ? N : 0;
        VEC shift = SET_OF(at->now->shift, i), floor = SET_OF(at->now->floor, i);
        FN(meanwhile) with;
        with.before = FN(begin_quotient)(
            divides ? at->before->factor[i] : 0, divides ? at->before->beyond[i] : 0,
            at->y + (divides ? i * run->y.across : 0), at->e_before + i * run->pitch,
            divides ? N : 0, as, past_caches, at->follow && at->done + i > 0 ? at->shared : NULL);
        with.before.shared =
            at->follow && (full || at->done + i + 1 < run->count) ? at->shared : NULL;
        with.behind =
            FN(begin_maximum)(x + GROUP * run->x.across, full || i < at->rows_behind ? N : 0);
        with.lag = 0;
        with.fetch = x + fetch;
        with.fetch_step = QUAD * FN(size_as)(as);
        for (int64_t b = 0; b < blocks; b++) {
            int64_t from = b * BLOCK, left = n == 0 ? 0 : b + 1 < blocks ? BLOCK : n - from;
            const char *x_from = x + from * FN(size_as)(as);
            VEC *lanes = FN(lanes_of)(at, i, b);
            if (!full && at->anchored)
                FN(anchored_lanes)(lanes, at->now, i, e + from, x_from, left, as);
            else
                FN(lanes_meanwhile)
            (lanes, shift, floor, e + from, x_from, left, &with, as, as, past_caches);
        }
        FN(end_quotient)(&with.before, as);
        at->largest[i] = FN(lanes_of_maximum)(&with.behind, as);
    }
}

/* The same of whole groups of rows of whole quads that follow each other in y without a gap: y is
 * divided from its first aligned place on, whatever row that is in. What is left is joined with the
 * next group by `shared`, as begin_quotient does it. Rows are divided in `turn`, a KiB behind the
 * places of x that are read meanwhile (see FN(lag)); not where two groups fill the first cache,
 * which takes them best in the order in which they were written. */
INLINE void FN(next_whole_group)(FN(groups) * at, const ons_run_of_rows *run, bool past_caches) {
    int64_t N = run->N, bytes = N * (int64_t)sizeof(T);
    int64_t fetch = (GROUP + (FN(ahead) + bytes - 1) / bytes) * run->x.across;
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
    int64_t turn = GROUP * bytes <= 8192 ? 1024 / bytes : 0;
    for (int64_t i = 0; i < GROUP; i++) {
        int64_t k = (i + turn) % GROUP, next = k + 1 < GROUP ? k + 1 : k;
        const T *from = before + k * N;
        T *to = y + k * N;
        const T *x = (const T *)(const void *)(at->x + i * run->x.across);
        const T *behind = (const T *)(const void *)((const char *)x + GROUP * run->x.across);
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
            if (q + QUAD == N && k + 1 == GROUP && head > 0)
                V(store)(at->shared, quotient);
            else
                FN(put_vector)(to + last, quotient, past_caches);
            for (int64_t k = q; k < q + QUAD; k += 2 * WIDTH) {
                even = V(max)(V(load)(behind + k), even);
                odd = V(max)(V(load)(behind + k + WIDTH), odd);
            }
            for (int64_t line = 0; line < QUAD; line += FN(line))
                FN(fetch)((const char *)(x + q + line) + fetch);
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
    ons_dtype as = BITS == 32 ? ONS_FLOAT32 : ONS_FLOAT64;
    int64_t N = run->N, bytes = N * (int64_t)sizeof(T);
    int64_t fetch = (GROUP + (FN(ahead) + bytes - 1) / bytes) * run->x.across;
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
    for (int64_t i = 0; i < GROUP; i++) {
        int64_t k = (i + turn) % GROUP, next = k + 1 < GROUP ? k + 1 : k, divided = 0;
        FN(vectors_of_row)
        row = FN(begin_vectors)(at->before, at->e_before + k * run->pitch, y, k, N, head);
        const T *x = (const T *)(const void *)(at->x + i * run->x.across);
        T *e = at->e + i * run->pitch;
        VEC shift = SET_OF(at->now->shift, i), floor = SET_OF(at->now->floor, i);
        FN(maximum) behind = FN(begin_maximum)((const char *)x + GROUP * run->x.across, N);
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
                    FN(fetch)((const char *)(x + q + line) + fetch);
            }
            if (q < n)
                for (int64_t v = 0; v < VECS; v++) {
                    int64_t from = q + v * WIDTH;
                    VEC sum =
                        FN(part_of_quad)(e + from, x + from, n - from, shift, floor, false, true);
                    lanes[v] = V(add)(lanes[v], sum);
                }
            for (; q < n; q += FN(line)) FN(fetch)((const char *)(x + q) + fetch);
            for (int64_t v = 0; v < VECS; v++) FN(lanes_of)(at, i, b)[v] = lanes[v];
            e += n;
            x += n;
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
        if (past_caches && k + 1 == GROUP && row.cut < WIDTH)
            V(store)(at->shared, last);
        else
            FN(put_vector)(row.y + row.whole * WIDTH, last, past_caches);
        at->largest[i] = FN(lanes_of_maximum)(&behind, as);
    }
}

/* Rows of `blocks` blocks, a constant, the last of which may be a part. What a row's lanes have is
 * added up, and compared, behind its group: a chain of long instructions in each row would hold up
 * the next ones. */
INLINE void FN(softmax_groups_of)(const ons_run_of_rows *run, ons_dtype as, int64_t blocks) {
    FN(group) groups[2], *now = groups, *before = groups + 1;
    int64_t N = run->N;
    T shared[WIDTH];
    FN(sums_of_block) later[ONS_GROUPED_BLOCKS - 1];
    FN(groups) at = {.x = run->x.data, .y = run->y.data, .e = run->kept, .shared = shared};
    if (blocks > 1) at.later = later;
    at.e_before = at.e + GROUP * run->pitch;
    at.follow = FN(follow_each_other)(run, as);
    at.past_caches = run->past_caches && FN(size_as)(as) != 2 &&
                     (uintptr_t)run->y.data % sizeof(T) == 0 && run->y.across % sizeof(T) == 0;
    bool follow = WIDTH > 1 && FN(size_as)(as) != 2 && run->y.across == N * (int64_t)sizeof(T) &&
                  (uintptr_t)run->y.data % sizeof(T) == 0;
    bool whole = blocks == 1 && follow && N % QUAD == 0 && run->pitch == N;
    /* where all loads of half a line are unaligned, next_group is the faster */
    bool joined = blocks > 1 && follow && (sizeof(VEC) == 64 || N % WIDTH == 0);
    at.rows = run->count < GROUP ? run->count : GROUP;
    for (int64_t i = 0; i < GROUP; i++) {
        FN(maximum) m = FN(begin_maximum)(at.x + i * run->x.across, i < at.rows ? run->N : 0);
        now->m[i] = FN(end_maximum)(&m, as);
    }
    at.anchored = FN(refer_group)(now);
    for (int64_t left = run->count - at.rows; at.rows > 0 || at.rows_before > 0;) {
        at.rows_behind = left < GROUP ? left : GROUP;
        at.now = now;
        at.before = before;
        bool full = at.rows_before == GROUP && at.rows_behind == GROUP && !at.anchored;
        if (full && whole && at.past_caches)
            FN(next_whole_group)(&at, run, true);
        else if (full && whole)
            FN(next_whole_group)(&at, run, false);
        else if (full && joined && at.past_caches)
            FN(next_joined_group)(&at, run, true);
        else if (full && joined)
            FN(next_joined_group)(&at, run, false);
        else if (full && at.past_caches)
            FN(next_group)(&at, run, as, blocks, true, true);
        else if (full)
            FN(next_group)(&at, run, as, blocks, true, false);
        else
            FN(next_group)(&at, run, as, blocks, false, at.past_caches);
        FN(group) *behind = before;
        V(store)(behind->m, V(max_rows)(at.largest));
        at.anchored = FN(refer_group)(behind);
        FN(end_group)(now, at.sums, at.later, blocks);
        before = now;
        now = behind;
        T *other = at.e;
        at.e = at.e_before;
        at.e_before = other;
        at.x += GROUP * run->x.across;
        at.y += at.rows_before * run->y.across;
        at.done += at.rows_before;
        at.rows_before = at.rows;
        at.rows = at.rows_behind;
        left -= at.rows_behind;
    }
    if (run->past_caches) V(settle)();
}

static void FN(softmax_groups)(const ons_run_of_rows *run) {
    FN(softmax_groups_of)(run, BITS == 32 ? ONS_FLOAT32 : ONS_FLOAT64, 1);
}

#if BITS == 32
static void FN(softmax_half_groups)(const ons_run_of_rows *run) {
    FN(softmax_groups_of)(run, ONS_FLOAT16, 1);
}
static void FN(softmax_bfloat_groups)(const ons_run_of_rows *run) {
    FN(softmax_groups_of)(run, ONS_BFLOAT16, 1);
}
static void FN(softmax_long_groups)(const ons_run_of_rows *run) {
    FN(softmax_groups_of)(run, ONS_FLOAT32, ONS_GROUPED_BLOCKS);
}
static void FN(softmax_long_half_groups)(const ons_run_of_rows *run) {
    FN(softmax_groups_of)(run, ONS_FLOAT16, ONS_GROUPED_BLOCKS);
}
static void FN(softmax_long_bfloat_groups)(const ons_run_of_rows *run) {
    FN(softmax_groups_of)(run, ONS_BFLOAT16, ONS_GROUPED_BLOCKS);
}
#endif
