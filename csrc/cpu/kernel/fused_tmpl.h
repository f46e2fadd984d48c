/* fused_tmpl.h - whole rows of the compute type, of 16 bits, or converted: one row after the
 * other. While a row is computed, the row before is finished and the maximum of the row behind
 * is found (overlap_tmpl.h). Adds up as row_tmpl.h does. Part of primitives_tmpl.h, whose
 * parameters and names it uses. */

/* The exponentials of a row to its state, and to e where they are kept. */
INLINE void FN(exponentials)(const ons_rows *rows, T *e, const char *x, int64_t n,
                             FN(meanwhile) * with, FN(kind) kind, bool past_caches) {
    VEC shift = SET_OF(rows->shift, 0), floor = SET_OF(rows->floor, 0);
    int64_t at_once = FN(chunks_at_once) * CHUNK;
    FN(sums) sums = FN(no_sums)();
    for (int64_t j = 0; j < n; j += at_once) {
        VEC lanes[FN(chunks_at_once)][VECS];
        int64_t chunks =
            FN(lanes_meanwhile)(lanes, shift, floor, e + j, x + j * FN(size_as)(kind.x),
                                n - j < at_once ? n - j : at_once, with, kind, past_caches);
        FN(add_chunks)(&sums, lanes, chunks);
        if ((j + at_once) % ONS_BLOCK != 0 && j + at_once < n) continue;
        FN(add_total)(rows->state, &sums, false, false);
        sums = FN(no_sums)();
    }
}

/* The same of a row that is taken relative to its maximum (ons_strip_anchor). At e its exponentials
 * or its elements less the anchor are left. */
static void FN(anchored_exponentials)(const ons_rows *rows, T *e, const char *x, int64_t n,
                                      ons_dtype as, double anchor, bool keeps_exponentials) {
    if (x != (const char *)e) FN(load)(e, x, FN(size_as)(as), as, n);
    FN(subtract)(e, &anchor, false, n);
    for (int64_t j = 0; j < n; j += ONS_BLOCK) {
        ons_tile tile = {e + j, sizeof(T), 0};
        int64_t some = n - j < ONS_BLOCK ? n - j : ONS_BLOCK;
        if (keeps_exponentials)
            FN(exp_store_sum_row)(rows, tile, tile, some);
        else
            FN(sum_exp_row)(rows, tile, some);
        FN(end_block_row)(rows, false);
    }
}

/* Where to fetch from while the exponentials of a row are computed, as many bytes as the row
 * has: ahead of the row behind. Where rows are converted, that one is read as a whole. */
INLINE const char *FN(fetched_with)(const ons_run_of_rows *run, const char *row, int64_t bytes) {
    int64_t rows = (run->convert ? 2 : 1) + FN(ahead) / bytes;
    return row + rows * run->x.across + (run->convert ? 0 : FN(ahead) % bytes);
}

/* The buffer for the exponentials of row i. A long row that is not converted overwrites those of
 * the row before, which is divided meanwhile. It begins `step` elements in front of them,
 * further than the division is ever behind. So two rows take little more of the caches than one.
 * At the end of the buffer a row begins again at its other end, clear of the row before. */
typedef struct {
    T *room;
    int64_t step, turns;
} FN(kept);

INLINE FN(kept) FN(begin_kept)(const ons_run_of_rows *run) {
    int64_t step = FN(lag) + 8 * QUAD;
    if (run->convert) return (FN(kept)){run->kept, run->pitch, ONS_KEPT_ROWS};
    if (run->pitch < step) step = run->pitch;
    return (FN(kept)){run->kept, step, (run->N + step - 1) / step + 1};
}

INLINE T *FN(place_of)(const FN(kept) * kept, int64_t i) {
    return kept->room + (kept->turns - 1 - i % kept->turns) * kept->step;
}

/* What row i is finished from, once its sum is known: its exponentials, or its elements. */
INLINE const void *FN(kept_of)(FN(kind) kind, const T *room, const char *x) {
    return FN(keeps_exponentials)(kind.operation) ? (const void *)room : (const void *)x;
}

/* kind.x is T where rows are converted: each lies where its exponentials will be. */
INLINE bool FN(rows_of_kind)(const ons_run_of_rows *run, FN(kind) kind) {
    T shift, floor, first = 0, second = 0, shared[WIDTH];
    double sums[2 * ONS_SUMS] = {0};
    bool nan = false;
    ons_state state;
    ons_rows rows = {.width = 1,
                     .state = &state,
                     .sums = sums,
                     .sums_along = 1,
                     .shift = &shift,
                     .floor = &floor};
    int64_t N = run->N, bytes = N * run->x.along;
    FN(kept) kept = FN(begin_kept)(run);
    T *room = FN(place_of)(&kept, 0);
    if (run->convert) run->convert(run->from, 0, 1, room, run->pitch);
    const char *x = run->convert ? (const char *)room : run->x.data, *in_memory = run->x.data;
    char *y = run->y.data;
    FN(maximum) largest = FN(begin_maximum)(x, N);
    T m = FN(end_maximum)(&largest, kind.x);
    FN(meanwhile) with;
    with.before = FN(begin_finishing)(0, 0, y, room, 0, kind, false, NULL);
    bool follow = FN(follow_each_other)(run, kind);
    for (int64_t i = 0; i < run->count; i++, y += run->y.across, in_memory += run->x.across) {
        T *e = room;
        room = FN(place_of)(&kept, i + 1);
        bool far = ons_needs_anchor((double)m), last = i + 1 == run->count;
        double anchor = far ? (double)m : 0.0;
        if (run->convert && !last) run->convert(run->from, i + 1, 1, room, run->pitch);
        const char *behind = run->convert ? (const char *)room : in_memory + run->x.across;
        state = ons_state_empty();
        ons_state_raise(&state, far ? 0.0 : (double)m);
        FN(set_references)(&rows);
        with.behind = FN(begin_maximum)(behind, last ? 0 : N);
        with.lag = last ? -N : FN(lag); /* behind nothing */
        with.fetch = FN(fetched_with)(run, in_memory, bytes);
        with.fetch_step = QUAD * FN(size_as)(kind.x);
        if (far && !run->convert) { /* nothing is finished meanwhile */
            FN(end_finishing)(&with.before, kind);
            with.before.at = with.before.n = 0;
        }
        if (far) FN(anchored_exponentials)
        (&rows, e, x, N, kind.x, anchor, FN(keeps_exponentials)(kind.operation));
        else if (FN(size_as)(kind.y) != 2 && with.before.past_caches)
            FN(exponentials)(&rows, e, x, N, &with, kind, true);
        else FN(exponentials)(&rows, e, x, N, &with, kind, false);
        FN(end_finishing)(&with.before, kind);
        m = FN(end_maximum)(&with.behind, kind.x);
        /* of a converted row the anchor was subtracted in memory */
        FN(row)(kind.operation, &state, run->convert ? 0.0 : anchor, &first, &second);
        nan |= isnan(first) || isnan(second);
        with.before = FN(begin_finishing)(first, second, y, FN(kept_of)(kind, e, x), N, kind,
                                          run->past_caches, follow && i > 0 ? shared : NULL);
        with.before.shared = follow && !last ? shared : NULL;
        x = behind;
    }
    FN(end_finishing)(&with.before, kind);
    if (run->past_caches) V(fence)();
    return nan;
}

/* Rows of y of type `as`, from an x of that type or from converted rows. */
INLINE bool FN(rows_to)(const ons_run_of_rows *run, ons_operation operation, ons_dtype as) {
    if (as != OWN && run->convert) return FN(rows_of_kind)(run, FN(kind_of)(operation, OWN, as));
    return FN(rows_of_kind)(run, FN(kind_of)(operation, as, as));
}
