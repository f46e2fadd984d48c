/* fused_tmpl.h - softmax of whole rows that lie in memory as the arithmetic takes them, or of 16
 * bits, or that are brought: one row after the other, each while the row before is divided and the
 * maximum of the row behind is found (overlap_tmpl.h). Adds up as row_tmpl.h does. Part of
 * primitives_tmpl.h, whose parameters and names it uses. */

/* Blocks whose lanes are added up together, in the caches and where they are several vectors: that
 * is a chain of long instructions, and behind each block it would hold up the next one. */
enum { FN(blocks_at_once) = VECS > 1 ? 16 : 1 };

/* e = e^x, and their sum to the state. */
INLINE void FN(exponentials)(const ons_rows *rows, T *e, const char *x, int64_t n,
                             FN(meanwhile) * with, ons_dtype as_y, ons_dtype as, bool past_caches) {
    VEC shift = SET_OF(rows->shift, 0), floor = SET_OF(rows->floor, 0);
    VEC lanes[FN(blocks_at_once)][VECS];
    ons_state state = rows->state[0];
    int64_t blocks = 0;
    for (int64_t j = 0; j < n; j += BLOCK) {
        FN(lanes_meanwhile)
        (lanes[blocks++], shift, floor, e + j, x + j * FN(size_as)(as),
         n - j < BLOCK ? n - j : BLOCK, with, as_y, as, past_caches);
        if (!past_caches && blocks < FN(blocks_at_once) && j + BLOCK < n) continue;
        for (int64_t b = 0; b < blocks; b++)
            ons_state_add(&state, LOWERED * V(sum_lanes)(lanes[b]));
        blocks = 0;
    }
    rows->state[0] = state;
}

/* The same of a row that is taken relative to its maximum (ons_panel_anchor). */
static void FN(anchored_exponentials)(const ons_rows *rows, T *e, const char *x, int64_t n,
                                      ons_dtype as, T m) {
    double anchor = (double)m;
    if (x != (const char *)e) FN(load)(e, x, FN(size_as)(as), as, n);
    FN(subtract)(e, &anchor, false, n);
    FN(exp_store_sum_row)(rows, (ons_tile){e, sizeof(T), 0}, (ons_tile){e, sizeof(T), 0}, n);
}

/* What is fetched while the exponentials of a row are computed, as much as it has bytes: ahead of
 * the row behind it, which is brought as a whole where rows are brought. */
INLINE const char *FN(fetched_with)(const ons_run_of_rows *run, const char *row, int64_t bytes) {
    int64_t rows = (run->bring ? 2 : 1) + FN(ahead) / bytes;
    return row + rows * run->x.across + (run->bring ? 0 : FN(ahead) % bytes);
}

/* Where the exponentials of row i are kept. Those of a long row that is not brought are written
 * over the ones of the row before, which is divided meanwhile: `step` elements in front of them,
 * more than the division is ever behind. So two rows take little more of the caches than one. A row
 * that begins anew at the end of the room is clear of the one before. */
typedef struct {
    T *room;
    int64_t step, turns;
} FN(kept);

INLINE FN(kept) FN(begin_kept)(const ons_run_of_rows *run) {
    int64_t step = FN(lag) + 8 * QUAD;
    if (run->bring) return (FN(kept)){run->kept, run->pitch, ONS_KEPT_ROWS};
    if (run->pitch < step) step = run->pitch;
    return (FN(kept)){run->kept, step, (run->N + step - 1) / step + 1};
}

INLINE T *FN(place_of)(const FN(kept) * kept, int64_t i) {
    return kept->room + (kept->turns - 1 - i % kept->turns) * kept->step;
}

/* as_y is the type of y, `as` that of x, which is T where rows are brought: each then lies where
 * its exponentials will. */
INLINE bool FN(softmax_rows_as)(const ons_run_of_rows *run, ons_dtype as_y, ons_dtype as) {
    T shift, floor, factor = 0, beyond = 0, shared[WIDTH];
    bool nan = false;
    ons_state state;
    ons_rows rows = {.width = 1,
                     .state = &state,
                     .shift = &shift,
                     .floor = &floor,
                     .factor = &factor,
                     .factor_beyond = &beyond};
    int64_t N = run->N, bytes = N * run->x.along;
    FN(kept) kept = FN(begin_kept)(run);
    T *room = FN(place_of)(&kept, 0);
    if (run->bring) run->bring(run->from, 0, 1, room, run->pitch);
    const char *x = run->bring ? (const char *)room : run->x.data, *in_memory = run->x.data;
    char *y = run->y.data;
    FN(maximum) first = FN(begin_maximum)(x, N);
    T m = FN(end_maximum)(&first, as);
    FN(meanwhile) with;
    with.before = FN(begin_quotient)(0, 0, y, room, 0, as_y, false, NULL);
    bool follow = FN(follow_each_other)(run, as_y);
    for (int64_t i = 0; i < run->count; i++, y += run->y.across, in_memory += run->x.across) {
        T *e = room;
        room = FN(place_of)(&kept, i + 1);
        bool far = ons_needs_anchor((double)m), last = i + 1 == run->count;
        if (run->bring && !last) run->bring(run->from, i + 1, 1, room, run->pitch);
        const char *behind = run->bring ? (const char *)room : in_memory + run->x.across;
        state = ons_state_empty();
        ons_state_raise(&state, far ? 0.0 : (double)m);
        FN(refer)(&rows);
        with.behind = FN(begin_maximum)(behind, last ? 0 : N);
        with.lag = last ? -N : FN(lag); /* behind nothing */
        with.fetch = FN(fetched_with)(run, in_memory, bytes);
        with.fetch_step = QUAD * FN(size_as)(as);
        if (far && !run->bring) { /* nothing is divided meanwhile */
            FN(end_quotient)(&with.before, as_y);
            with.before.at = with.before.n = 0;
        }
        if (far)
            FN(anchored_exponentials)(&rows, e, x, N, as, m);
        else if (with.before.past_caches)
            FN(exponentials)(&rows, e, x, N, &with, as_y, as, true);
        else
            FN(exponentials)(&rows, e, x, N, &with, as_y, as, false);
        FN(end_quotient)(&with.before, as_y);
        m = FN(end_maximum)(&with.behind, as);
        x = behind;
        FN(normalize)(&rows);
        nan |= isnan(factor) != 0;
        with.before = FN(begin_quotient)(factor, beyond, y, e, N, as_y, run->past_caches,
                                         follow && i > 0 ? shared : NULL);
        with.before.shared = follow && !last ? shared : NULL;
    }
    FN(end_quotient)(&with.before, as_y);
    if (run->past_caches) V(settle)();
    return nan;
}

/* Rows of y of type `as`: of an x of that type, or of what is brought. */
INLINE bool FN(softmax_rows_to)(const ons_run_of_rows *run, ons_dtype as) {
    if (run->bring) return FN(softmax_rows_as)(run, as, OWN);
    return FN(softmax_rows_as)(run, as, as);
}

static bool FN(softmax_rows)(const ons_run_of_rows *run) {
    return FN(softmax_rows_as)(run, OWN, OWN);
}

#if BITS == 32
static bool FN(softmax_half_rows)(const ons_run_of_rows *run) {
    return FN(softmax_rows_to)(run, ONS_FLOAT16);
}
static bool FN(softmax_bfloat_rows)(const ons_run_of_rows *run) {
    return FN(softmax_rows_to)(run, ONS_BFLOAT16);
}
#endif
