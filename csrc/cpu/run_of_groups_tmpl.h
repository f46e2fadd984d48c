/* run_of_groups_tmpl.h - softmax of a run of rows, group after group (group_tmpl.h,
 * joined_group_tmpl.h). Part of primitives_tmpl.h, whose parameters and names it uses. */

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
