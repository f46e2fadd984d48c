/* run_of_groups_tmpl.h - a run of rows, group after group (group_tmpl.h,
 * whole_group_tmpl.h). Part of primitives_tmpl.h, whose parameters and names it uses. */

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

/* What a row's lanes have is added up, and compared, behind its group: a chain of long instructions
 * in each row would hold up the next ones. */
INLINE bool FN(groups_of_kind)(const ons_run_of_rows *run, FN(kind) kind) {
    FN(group) groups[2] = {0}, *now = groups, *before = groups + 1;
    int64_t N = run->N, bytes = N * run->x.along, most = FN(rows_together)(N);
    int64_t fetched = (run->bring ? 2 : 1) * most + (FN(ahead) + bytes - 1) / bytes;
    T shared[WIDTH];
    FN(groups) at = {.most = most, .y = run->y.data, .kept = run->kept, .shared = shared};
    at.across = run->bring ? run->pitch * (int64_t)sizeof(T) : run->x.across;
    at.fetch = (const char *)run->x.data + fetched * run->x.across;
    at.follow = FN(follow_each_other)(run, kind);
    bool values = FN(is_one_a_row)(kind.operation);
    bool wide = FN(size_as)(kind.y) != 2 && !values; /* constants */
    bool past_caches = wide && run->past_caches && (uintptr_t)run->y.data % sizeof(T) == 0 &&
                       run->y.across % sizeof(T) == 0;
    bool follow = WIDTH > 1 && wide && FN(size_as)(kind.x) != 2 &&
                  run->y.across == N * (int64_t)sizeof(T) &&
                  (uintptr_t)run->y.data % sizeof(T) == 0;
    bool exponentials = FN(keeps_exponentials)(kind.operation);
    int64_t pitch = run->pitch * (int64_t)sizeof(T);
    at.kept_across = exponentials ? pitch : at.across;
    bool whole =
        follow && N % QUAD == 0 && run->pitch == N && at.kept_across == N * (int64_t)sizeof(T);
    at.rows = run->count < most ? run->count : most;
    at.behind = FN(take_group)(run, 0, most, at.rows);
    FN(largest_of)(now->m, at.behind, at.across, at.rows, most, N, kind.x);
    at.anchored = FN(refer_group)(now);
    VEC sum = V(set)(0);
    int64_t left = run->count - at.rows;
    for (int64_t g = 0; at.rows > 0 || at.rows_before > 0; g++) {
        at.rows_behind = left < most ? left : most;
        at.x = at.behind;
        at.behind = FN(take_group)(run, g + 1, most, at.rows_behind);
        at.e = FN(room_of_group)(run, g, most);
        if (exponentials) at.kept = (const char *)FN(room_of_group)(run, g - 1, most);
        at.now = now;
        at.before = before;
        /* told apart for the compiler where that shows in the time */
        bool full = at.rows_before == most && at.rows_behind == most && !at.anchored;
        if (full && whole && past_caches)
            FN(next_whole_group)(&at, run, kind, true);
        else if (full && whole)
            FN(next_whole_group)(&at, run, kind, false);
        else if (full && wide && past_caches)
            FN(next_group)(&at, run, kind, true, true);
        else if (full && wide)
            FN(next_group)(&at, run, kind, true, false);
        else
            FN(next_group)(&at, run, kind, false, past_caches);
        FN(group) *behind = before;
        V(store)(behind->m, V(max_rows)(at.largest));
        at.anchored = FN(refer_group)(behind);
        FN(end_group)(kind.operation, now, at.lanes, N, run->bring != NULL);
        if (values) {
            char *y = at.y + at.rows_before * run->y.across;
            ons_tile to = {y, run->y.along, run->y.across};
            ons_tile from = {(char *)at.x, FN(size_as)(kind.x), at.across};
            FN(store_values)(to, run->dtype, now->first, now->m, at.rows, from, kind.x, N);
        }
        if (!values) sum = FN(add_rows)(sum, now, at.rows);
        if (!exponentials) at.kept = at.x;
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
    return FN(has_nan)(sum);
}

/* y of type `as`, from an x of that type or what is brought. */
INLINE bool FN(groups_to)(const ons_run_of_rows *run, ons_operation operation, ons_dtype as) {
    if (as != OWN && run->bring && !FN(is_one_a_row)(operation))
        return FN(groups_of_kind)(run, FN(kind_of)(operation, OWN, as));
    return FN(groups_of_kind)(run, FN(kind_of)(operation, as, as));
}
