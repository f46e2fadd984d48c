/* run_of_groups_tmpl.h - softmax of a run of rows, group after group (group_tmpl.h,
 * joined_group_tmpl.h). Part of primitives_tmpl.h, whose parameters and names it uses. */

/* Room for the rows of group g: two groups take turns, or three where they are brought. */
INLINE T *FN(room_of_group)(const ons_run_of_rows *run, int64_t g, int64_t most) {
    int64_t turn = run->bring ? (g + 3) % 3 : (g + 2) % 2;
    return (T *)run->kept + turn * most * run->pitch;
}

/* Where the rows of group g lie, which are brought there first. */
INLINE const char *FN(take_group)(const ons_run_of_rows *run, int64_t g, int64_t most,
                                  int64_t rows) {
    if (!run->bring) return (const char *)run->x.data + g * most * run->x.across;
    T *room = FN(room_of_group)(run, g, most);
    if (rows > 0) run->bring(run->from, g * most, rows, room, run->pitch);
    return (const char *)room;
}

/* Rows of `blocks` blocks, a constant, the last of which may be a part. What a row's lanes have is
 * added up, and compared, behind its group: a chain of long instructions in each row would hold up
 * the next ones. */
INLINE bool FN(softmax_groups_of)(const ons_run_of_rows *run, ons_dtype as_y, ons_dtype as,
                                  int64_t blocks) {
    FN(group) groups[2] = {0}, *now = groups, *before = groups + 1;
    int64_t N = run->N, bytes = N * run->x.along, most = FN(rows_together)(N);
    int64_t fetched = (run->bring ? 2 : 1) * most + (FN(ahead) + bytes - 1) / bytes;
    T shared[WIDTH];
    FN(sums_of_block) later[ONS_GROUPED_BLOCKS - 1] = {0};
    FN(groups) at = {.most = most, .y = run->y.data, .shared = shared};
    if (blocks > 1) at.later = later;
    at.across = run->bring ? run->pitch * (int64_t)sizeof(T) : run->x.across;
    at.fetch = (const char *)run->x.data + fetched * run->x.across;
    at.follow = FN(follow_each_other)(run, as_y);
    at.past_caches = run->past_caches && FN(size_as)(as_y) != 2 &&
                     (uintptr_t)run->y.data % sizeof(T) == 0 && run->y.across % sizeof(T) == 0;
    bool follow = WIDTH > 1 && FN(size_as)(as_y) != 2 && FN(size_as)(as) != 2 &&
                  run->y.across == N * (int64_t)sizeof(T) &&
                  (uintptr_t)run->y.data % sizeof(T) == 0;
    bool whole = blocks == 1 && follow && N % QUAD == 0 && run->pitch == N;
    /* where all loads of half a line are unaligned, next_group is the faster */
    bool joined = blocks > 1 && follow && (sizeof(VEC) == 64 || N % WIDTH == 0);
    at.rows = run->count < most ? run->count : most;
    at.behind = FN(take_group)(run, 0, most, at.rows);
    for (int64_t i = 0; i < most; i++) {
        FN(maximum) m = FN(begin_maximum)(at.behind + i * at.across, i < at.rows ? N : 0);
        now->m[i] = FN(end_maximum)(&m, as);
    }
    at.anchored = FN(refer_group)(now);
    VEC factors = V(set)(0);
    int64_t left = run->count - at.rows;
    for (int64_t g = 0; at.rows > 0 || at.rows_before > 0; g++) {
        at.rows_behind = left < most ? left : most;
        at.x = at.behind;
        at.behind = FN(take_group)(run, g + 1, most, at.rows_behind);
        at.e = FN(room_of_group)(run, g, most);
        at.e_before = FN(room_of_group)(run, g - 1, most);
        at.now = now;
        at.before = before;
        bool full = at.rows_before == most && at.rows_behind == most && !at.anchored;
        if (full && whole && at.past_caches)
            FN(next_whole_group)(&at, run, true);
        else if (full && whole)
            FN(next_whole_group)(&at, run, false);
        else if (full && joined && at.past_caches)
            FN(next_joined_group)(&at, run, true);
        else if (full && joined)
            FN(next_joined_group)(&at, run, false);
        else if (full && at.past_caches)
            FN(next_group)(&at, run, as_y, as, blocks, true, true);
        else if (full)
            FN(next_group)(&at, run, as_y, as, blocks, true, false);
        else
            FN(next_group)(&at, run, as_y, as, blocks, false, at.past_caches);
        FN(group) *behind = before;
        V(store)(behind->m, V(max_rows)(at.largest));
        at.anchored = FN(refer_group)(behind);
        FN(end_group)(now, at.sums, at.later, blocks);
        factors = FN(add_factors)(factors, now, at.rows);
        before = now;
        now = behind;
        at.fetch += most * run->x.across;
        at.y += at.rows_before * run->y.across;
        at.done += at.rows_before;
        at.rows_before = at.rows;
        at.rows = at.rows_behind;
        left -= at.rows_behind;
    }
    if (run->past_caches) V(settle)();
    return FN(has_nan)(factors);
}

/* y of type as_y, from an x of that type or what is brought. */
INLINE bool FN(softmax_groups_to)(const ons_run_of_rows *run, ons_dtype as_y, int64_t blocks) {
    if (run->bring) return FN(softmax_groups_of)(run, as_y, OWN, blocks);
    return FN(softmax_groups_of)(run, as_y, as_y, blocks);
}

static bool FN(softmax_groups)(const ons_run_of_rows *run) {
    return FN(softmax_groups_of)(run, OWN, OWN, 1);
}

#if BITS == 32
static bool FN(softmax_half_groups)(const ons_run_of_rows *run) {
    return FN(softmax_groups_to)(run, ONS_FLOAT16, 1);
}
static bool FN(softmax_bfloat_groups)(const ons_run_of_rows *run) {
    return FN(softmax_groups_to)(run, ONS_BFLOAT16, 1);
}
static bool FN(softmax_long_groups)(const ons_run_of_rows *run) {
    return FN(softmax_groups_of)(run, OWN, OWN, ONS_GROUPED_BLOCKS);
}
static bool FN(softmax_long_half_groups)(const ons_run_of_rows *run) {
    return FN(softmax_groups_to)(run, ONS_FLOAT16, ONS_GROUPED_BLOCKS);
}
static bool FN(softmax_long_bfloat_groups)(const ons_run_of_rows *run) {
    return FN(softmax_groups_to)(run, ONS_BFLOAT16, ONS_GROUPED_BLOCKS);
}
#endif
