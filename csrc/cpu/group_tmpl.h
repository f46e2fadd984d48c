/* group_tmpl.h - softmax of whole rows, WIDTH of them together, so that what there is one of a row
 * - its reference c, its d, the division - is a vector for all of them: one row of a group after
 * the other as in fused_tmpl.h, each while a row of the group before is divided and the maximum of
 * one of the group behind is found. Adds up as row_tmpl.h does. Part of primitives_tmpl.h, whose
 * parameters and names it uses. */

#define GROUP WIDTH /* rows at once, the most */

/* Half as many where they would be more than 10 KiB: what is kept of two groups, and x of two, must
 * leave room in the first cache. */
INLINE int64_t FN(rows_together)(int64_t N) {
    return GROUP > 1 && GROUP * N * (int64_t)sizeof(T) > 10240 ? GROUP / 2 : GROUP;
}

/* The longest rows of a group: two blocks, or where a vector is so long that the group's
 * exponentials would be more than 22 KiB as many as that gives: one row after the other is then
 * faster. Without vectors, and in float64, it is as good. */
enum {
    FN(grouped_in_room) = 22528 / sizeof(VEC),
    FN(longest_grouped) = WIDTH == 1 || BITS == 64 ? BLOCK
                          : FN(grouped_in_room) < ONS_GROUPED_BLOCKS * BLOCK
                              ? FN(grouped_in_room)
                              : ONS_GROUPED_BLOCKS * BLOCK
};

/* What there is one of a row. */
typedef struct {
    T m[GROUP], anchor[GROUP], shift[GROUP], floor[GROUP], factor[GROUP], beyond[GROUP];
    FN(wide) d;
} FN(group);

/* Shift and floor of rows from their m, one a lane, which is not far: c is ceil(m * log2(e)), or
 * where that is next to an integer the other neighbour: which one does not show. */
INLINE void FN(refer_lanes)(VEC m, T *shift, T *floor) {
    VEC magic = V(set)((T)MAGIC);
    VEC c = V(fma)(m, V(set)((T)ONS_LOG2_E), V(set)((T)0.5));
    c = V(sub)(V(add)(c, magic), magic);
    V(store)(shift, V(fma)(c, V(set)(-STEPS), V(set)((T)(MAGIC + STEPS * LIFT))));
    VEC below = V(sub)(c, V(set)((T)BELOW));
    V(store)(floor, V(mul)(below, V(set)((T)(1 / ONS_LOG2_E))));
}

/* Whether a lane is beyond ONS_LARGEST_REFERENCE, or infinite. */
INLINE bool FN(any_far)(VEC m) { return V(any_beyond)(m, V(set)((T)ONS_LARGEST_REFERENCE)); }

/* What an infinite m is taken for. */
INLINE VEC FN(nearer)(VEC m) {
    VEC zero = V(set)(0), bound = V(set)((T)-ONS_LARGEST_REFERENCE);
    return V(sub)(zero, V(max)(bound, V(sub)(zero, V(max)(bound, m))));
}

/* The anchors of rows of these maxima (ons_needs_anchor); 0 where a row needs none. */
INLINE VEC FN(anchors)(VEC m) {
    return V(between)(m, V(set)((T)ONS_LARGEST_REFERENCE), V(set)((T)INFINITY));
}

/* From m to anchor, shift and floor; whether a row has an anchor. */
INLINE bool FN(refer_group)(FN(group) * group) {
    VEC m = V(load)(group->m), anchor = V(set)(0);
    bool far = FN(any_far)(m);
    if (__builtin_expect(far, false)) {
        anchor = FN(anchors)(m);
        far = V(any_beyond)(anchor, V(set)(0));
        m = V(sub)(m, anchor);
        V(store)(group->m, m);
        m = FN(nearer)(m);
    }
    V(store)(group->anchor, anchor);
    FN(refer_lanes)(m, group->shift, group->floor);
    return far;
}

/* The factors of the first `rows` added to a sum, which is NaN for good once a row is. */
INLINE VEC FN(add_factors)(VEC sum, const FN(group) * group, int64_t rows) {
    return V(add)(sum, V(join)(V(load)(group->factor), V(set)(0), rows));
}

INLINE bool FN(has_nan)(VEC sum) {
    T lanes[WIDTH];
    bool nan = false;
    V(store)(lanes, sum);
    for (int64_t l = 0; l < WIDTH; l++) nan |= isnan(lanes[l]) != 0;
    return nan;
}

/* The lanes of a block of each row of a group. */
typedef VEC FN(sums_of_block)[GROUP][VECS];

/* From the sums in the lanes of the first block and of the later ones to factor and beyond: block
 * after block as ons_state_add adds them. */
INLINE void FN(end_group)(FN(group) * group, FN(sums_of_block) first, FN(sums_of_block) * later,
                          int64_t blocks) {
    FN(wide) term, beyond = FN(wide_zero)();
    V(sum_rows)(group->d.part, first);
    for (int64_t b = 1; b < blocks; b++) {
        V(sum_rows)(term.part, later[b - 1]);
        FN(add_term)(&group->d, &beyond, term);
    }
    FN(inverse)
    (group->d, blocks > 1 ? &beyond : NULL, V(load)(group->m), group->factor, group->beyond);
}

/* e = e^x of a row's block that is taken relative to its anchor, and the sums in the lanes. */
INLINE void FN(anchored_lanes)(VEC *lanes, const FN(group) * group, int64_t i, T *e, const char *x,
                               int64_t n, ons_dtype as) {
    double anchor = (double)group->anchor[i]; /* 0 where the row needs none */
    if (x != (const char *)e) FN(load)(e, x, FN(size_as)(as), as, n);
    FN(subtract)(e, &anchor, false, n);
    FN(block_lanes)
    (lanes, SET_OF(group->shift, i), SET_OF(group->floor, i), e, e, n, false, true, NULL, 0);
}

/* Where a run of rows stands: the exponentials of group `now` are next. */
typedef struct {
    int64_t most;           /* rows of a whole group */
    const char *x, *behind; /* its first row, and that of the group behind */
    int64_t across;         /* bytes from row to row of both */
    const char *fetch;      /* in memory: what is fetched with its first row */
    char *y;                /* the first row of the group before */
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

/* One group's exponentials, while the one before is divided and the one behind compared. as_y is
 * the type of y, `as` that of x as it is taken. `full`: all three have all their rows, and none is
 * anchored. */
INLINE void FN(next_group)(FN(groups) * at, const ons_run_of_rows *run, ons_dtype as_y,
                           ons_dtype as, int64_t blocks, bool full, bool past_caches) {
    int64_t N = run->N, most = at->most, across = at->across, fetch_across = run->x.across;
    const char *x = at->x, *behind = at->behind, *fetch = at->fetch;
    for (int64_t i = 0; i < most; i++, x += across, behind += across, fetch += fetch_across) {
        T *e = at->e + i * run->pitch;
        bool divides = full || i < at->rows_before;
        int64_t n = full || i < at->rows ? N : 0;
        VEC shift = SET_OF(at->now->shift, i), floor = SET_OF(at->now->floor, i);
        FN(meanwhile) with;
        with.before = FN(begin_quotient)(
            divides ? at->before->factor[i] : 0, divides ? at->before->beyond[i] : 0,
            at->y + (divides ? i * run->y.across : 0), at->e_before + i * run->pitch,
            divides ? N : 0, as_y, past_caches, at->follow && at->done + i > 0 ? at->shared : NULL);
        with.before.shared =
            at->follow && (full || at->done + i + 1 < run->count) ? at->shared : NULL;
        with.behind = FN(begin_maximum)(behind, full || i < at->rows_behind ? N : 0);
        with.lag = 0;
        with.fetch = fetch;
        with.fetch_step = QUAD * FN(size_as)(as);
        for (int64_t b = 0; b < blocks; b++) {
            int64_t from = b * BLOCK, left = n == 0 ? 0 : b + 1 < blocks ? BLOCK : n - from;
            const char *x_from = x + from * FN(size_as)(as);
            VEC *lanes = FN(lanes_of)(at, i, b);
            if (!full && at->anchored)
                FN(anchored_lanes)(lanes, at->now, i, e + from, x_from, left, as);
            else
                FN(lanes_meanwhile)
            (lanes, shift, floor, e + from, x_from, left, &with, as_y, as, past_caches);
        }
        FN(end_quotient)(&with.before, as_y);
        at->largest[i] = FN(lanes_of_maximum)(&with.behind, as);
    }
}
