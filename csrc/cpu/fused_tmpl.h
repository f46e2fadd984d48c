/* fused_tmpl.h - softmax of whole rows that lie in memory as the arithmetic takes them, or of 16
 * bits: one row after the other, each while the row before is divided and the maximum of the row
 * behind is found (overlap_tmpl.h). Adds up as row_tmpl.h does. Part of primitives_tmpl.h, whose
 * parameters and names it uses. */

/* e = e^x, and their sum to the state. */
INLINE void FN(exponentials)(const ons_rows *rows, T *e, const char *x, int64_t n,
                             FN(meanwhile) * with, ons_dtype as, bool past_caches) {
    VEC shift = SET_OF(rows->shift, 0), floor = SET_OF(rows->floor, 0);
    ons_state state = rows->state[0];
    for (int64_t j = 0; j < n; j += BLOCK) {
        VEC lanes[VECS];
        FN(lanes_meanwhile)
        (lanes, shift, floor, e + j, x + j * FN(size_as)(as), n - j < BLOCK ? n - j : BLOCK, with,
         as, past_caches);
        ons_state_add(&state, LOWERED * V(sum_lanes)(lanes));
    }
    rows->state[0] = state;
}

/* The same of a row that is taken relative to its maximum (ons_panel_anchor). */
static void FN(anchored_exponentials)(const ons_rows *rows, T *e, const char *x, int64_t n,
                                      ons_dtype as, T m) {
    double anchor = (double)m;
    FN(load)(e, x, FN(size_as)(as), as, n);
    FN(subtract)(e, &anchor, false, n);
    FN(exp_store_sum_row)(rows, (ons_tile){e, sizeof(T), 0}, (ons_tile){e, sizeof(T), 0}, n);
}

INLINE void FN(softmax_rows_as)(const ons_run_of_rows *run, ons_dtype as) {
    T shift, floor, factor = 0, beyond = 0;
    ons_state state;
    ons_rows rows = {.width = 1,
                     .state = &state,
                     .shift = &shift,
                     .floor = &floor,
                     .factor = &factor,
                     .factor_beyond = &beyond};
    int64_t N = run->N;
    const char *x = run->x.data;
    char *y = run->y.data;
    FN(maximum) first = FN(begin_maximum)(x, N);
    T m = FN(end_maximum)(&first, as);
    FN(meanwhile) with;
    with.before = FN(begin_quotient)(0, 0, y, run->kept, 0, as, false, NULL);
    T shared[WIDTH];
    bool follow = FN(follow_each_other)(run, as);
    for (int64_t i = 0; i < run->count; i++, x += run->x.across, y += run->y.across) {
        const char *behind = x + run->x.across;
        T *e = (T *)run->kept + i % 2 * run->pitch;
        bool far = ons_needs_anchor((double)m);
        state = ons_state_empty();
        ons_state_raise(&state, far ? 0.0 : (double)m);
        FN(refer)(&rows);
        with.behind = FN(begin_maximum)(behind, i + 1 < run->count ? N : 0);
        with.fetch = behind + FN(ahead);
        with.fetch_end = behind + N * FN(size_as)(as);
        with.fetch_then = behind + run->x.across;
        if (far)
            FN(anchored_exponentials)(&rows, e, x, N, as, m);
        else if (with.before.past_caches)
            FN(exponentials)(&rows, e, x, N, &with, as, true);
        else
            FN(exponentials)(&rows, e, x, N, &with, as, false);
        FN(end_quotient)(&with.before, as);
        m = FN(end_maximum)(&with.behind, as);
        FN(normalize)(&rows);
        with.before = FN(begin_quotient)(factor, beyond, y, e, N, as, run->past_caches,
                                         follow && i > 0 ? shared : NULL);
        with.before.shared = follow && i + 1 < run->count ? shared : NULL;
    }
    FN(end_quotient)(&with.before, as);
    if (run->past_caches) V(settle)();
}

static void FN(softmax_rows)(const ons_run_of_rows *run) {
    FN(softmax_rows_as)(run, BITS == 32 ? ONS_FLOAT32 : ONS_FLOAT64);
}

#if BITS == 32
static void FN(softmax_half_rows)(const ons_run_of_rows *run) {
    FN(softmax_rows_as)(run, ONS_FLOAT16);
}
static void FN(softmax_bfloat_rows)(const ons_run_of_rows *run) {
    FN(softmax_rows_as)(run, ONS_BFLOAT16);
}
#endif
