/* short_tmpl.h - whole rows that fill their lanes at most twice, WIDTH of them at once:
 * a vector is the same element of every row. Adds up as row_tmpl.h does. Part of primitives_tmpl.h,
 * whose parameters and names it uses. */

/* The four elements from j on, or where the row has fewer the last four: those before them once
 * more. */
INLINE int64_t FN(four_from)(int64_t j, int64_t N) { return j + 4 <= N || N < 4 ? j : N - 4; }

/* Where the finished rows of a group are put together before they go to y, so that vectors can be
 * stored whole: what one row writes too much the next one overwrites. */
typedef struct {
    T *y;
    int64_t pitch; /* elements */
    bool apart;    /* it is not y itself */
} FN(finished);

/* n finished elements to y, which is aligned to an element; the last ones, where they do not fill a
 * vector, only when `all`. Returns how many went. */
INLINE int64_t FN(send)(T *y, const T *from, int64_t n, bool past_caches, bool all) {
    int64_t head = FN(unaligned)(y, n), j;
#define BODY(a, j) (a)
    EACH_VECTOR(y, from, head, BODY);
    if (past_caches)
        for (j = head; j + WIDTH <= n; j += WIDTH) V(stream)(y + j, V(load)(from + j));
    else
        for (j = head; j + WIDTH <= n; j += WIDTH) V(store)(y + j, V(load)(from + j));
    if (!all) return j;
    EACH_VECTOR(y + j, from + j, n - j, BODY);
    return n;
#undef BODY
}

/* Room for the finished rows of a group, which lie apart from y, or of another one. */
INLINE T *FN(room_apart)(const ons_run_of_rows *run, int64_t turn) {
    return (T *)run->kept + turn * (GROUP * run->pitch + WIDTH);
}

/* Where a group of rows lies as the arithmetic takes it. */
INLINE ons_tile FN(rows_at)(const ons_run_of_rows *run, int64_t first) {
    if (!run->bring) return (ons_tile){ROW(run->x, first), run->x.along, run->x.across};
    T *brought = FN(room_apart)(run, 2) + first % ONS_BROUGHT_SHORT_ROWS * run->N;
    return (ons_tile){brought, sizeof(T), run->N * (int64_t)sizeof(T)};
}

/* The same of one that is taken now. Rows that must be brought are, many at a time and without a
 * gap: vectors are loaded across others that were stored shortly before, which must wait until the
 * caches have them. */
INLINE ons_tile FN(take_rows)(const ons_run_of_rows *run, int64_t first) {
    int64_t left = run->count - first;
    if (run->bring && first % ONS_BROUGHT_SHORT_ROWS == 0)
        run->bring(run->from, first, left < ONS_BROUGHT_SHORT_ROWS ? left : ONS_BROUGHT_SHORT_ROWS,
                   FN(room_apart)(run, 2), run->N);
    return FN(rows_at)(run, first);
}

/* Where rows are too few or too short for what is loaded or stored at once. */
typedef T FN(few)[GROUP][2 * LANES];

/* Each element of a group's rows as a vector. Rows that are missing are 0, or whatever lies there;
 * so is what is loaded beyond the end of rows of fewer than 4. */
INLINE void FN(columns_of_rows)(VEC *e, const ons_run_of_rows *run, int64_t first, int64_t rows,
                                FN(few) few) {
    int64_t N = run->N;
    ons_tile x = FN(take_rows)(run, first);
    /* whether four elements of the last row lie within the rows of the run */
    int64_t row = N * (int64_t)sizeof(T), behind = run->count - first - GROUP;
    bool read_beyond = x.across >= row && behind * x.across + row >= 4 * (int64_t)sizeof(T);
    if (rows == 1 && N >= 4) {
        x.across = 0; /* every lane has that row */
    } else if (rows < GROUP || (N < 4 && !read_beyond)) {
        memset(few, 0, sizeof(FN(few)));
        for (int64_t i = 0; i < rows; i++) memcpy(few[i], ROW(x, i), (size_t)N * sizeof(T));
        x = (ons_tile){few, sizeof(T), sizeof *few};
    }
    for (int64_t j = 0; j < N; j += 4) {
        int64_t from = FN(four_from)(j, N);
        V(load_columns)(e + from, (const char *)x.data + from * (int64_t)sizeof(T), x.across);
    }
}

/* The reverse, to where the rows are finished. */
INLINE void FN(rows_of_columns)(FN(finished) to, const VEC *e, int64_t N, int64_t rows,
                                FN(few) few) {
    bool whole = to.apart || (rows == GROUP && N >= 4);
    T *y = whole ? to.y : few[0];
    int64_t pitch = whole ? to.pitch : (int64_t)(sizeof *few / sizeof(T));
    for (int64_t j = 0; j < N; j += 4) {
        int64_t from = FN(four_from)(j, N);
        V(store_columns)(y + from, pitch, e + from);
    }
    for (int64_t i = 0; i < rows && !whole; i++)
        memcpy(to.y + i * to.pitch, few[i], (size_t)N * sizeof(T));
}

/* The results of GROUP rows, of which vector j of x has element j, in its place; or the value of
 * each in `first` of the group. */
INLINE void FN(finish_columns)(ons_operation operation, VEC *x, int64_t N, FN(group) * group) {
    bool exponentials = FN(keeps_exponentials)(operation);
    VEC even = V(set)((T)-INFINITY), odd = even, apart[2 * LANES], *e = exponentials ? x : apart;
    for (int64_t j = 0; j + 2 <= N; j += 2) {
        even = V(max)(x[j], even);
        odd = V(max)(x[j + 1], odd);
    }
    if (N % 2 != 0) even = V(max)(x[N - 1], even);
    V(store)(group->m, V(max)(even, odd));
    if (FN(refer_group)(group))
        for (int64_t j = 0; j < N; j++) x[j] = V(sub)(x[j], V(load)(group->anchor));
    VEC shift = V(load)(group->shift), floor = V(load)(group->floor);
    for (int64_t j = 0; j < N && !exponentials; j++) e[j] = x[j];
    int64_t done = 0;
    for (; done + 4 <= N; done += 4) FN(exponential_each)(e + done, 4, shift, floor);
    for (; done < N; done++) FN(exponential_each)(e + done, 1, shift, floor);
    group->d = FN(total_of_few)(e, N);
    FN(end_rows)(operation, group, NULL, true);
    if (FN(is_one_a_row)(operation)) return;
    VEC first = V(load)(group->first), second = V(load)(group->second);
    for (int64_t j = 0; j < N; j++) x[j] = FN(element)(operation, x[j], first, second);
}

/* A group of short rows; what they need is added to `sum`. */
INLINE VEC FN(group_of_columns)(const ons_run_of_rows *run, ons_operation operation, int64_t first,
                                int64_t rows, FN(finished) to, VEC sum) {
    FN(group) group;
    VEC x[2 * LANES];
    FN(few) few;
    const char *next = (const char *)ROW(run->x, first) + FN(ahead);
    for (int64_t line = 0; line < GROUP * run->x.across; line += 64)
        __builtin_prefetch(next + line);
    FN(columns_of_rows)(x, run, first, rows, few);
    FN(finish_columns)(operation, x, run->N, &group);
    if (FN(is_one_a_row)(operation)) {
        ons_tile y = {ROW(run->y, first), run->y.along, run->y.across};
        FN(store_values)
        (y, run->dtype, group.first, group.m, rows, FN(rows_at)(run, first), OWN, run->N);
        return sum;
    }
    FN(rows_of_columns)(to, x, run->N, rows, few);
    return FN(add_rows)(sum, &group, rows);
}

/* Rows that follow each other without a gap are put together apart from y, and so are those of a y
 * of another type. A group is sent after the next one: its rows were stored across the vectors that
 * are read then, which must wait until the caches have them. */
typedef struct {
    char *y;         /* where what is sent next goes */
    T *apart[2];     /* the groups, by turns */
    int64_t ahead;   /* elements in front of the next group, which did not fill a vector */
    int64_t waiting; /* elements of the group before and in front of it; its rows if converted */
} FN(sending);

/* What does not fill a vector is sent with the next group, in front of it. */
INLINE void FN(send_group)(FN(sending) * at, const ons_run_of_rows *run, int64_t turn, int64_t rows,
                           bool first) {
    T *y = (T *)(void *)at->y;
    if (!first) {
        const T *from = at->apart[1 - turn];
        int64_t sent = FN(send)(y, from, at->waiting, run->past_caches, rows == 0);
        memcpy(at->apart[turn], from + sent, (size_t)(at->waiting - sent) * sizeof(T));
        y += sent;
    }
    at->y = (char *)y;
    at->waiting = at->ahead + rows * run->N;
    at->ahead = (at->waiting - (first ? FN(unaligned)(y, at->waiting) : 0)) % WIDTH;
}

INLINE void FN(send_converted)(FN(sending) * at, const ons_run_of_rows *run, int64_t turn,
                               int64_t rows) {
    int64_t N = run->N, size = ons_dtype_size(run->dtype), across = run->y.across;
    int64_t at_once = across == N * size ? at->waiting : 1;
    for (int64_t i = 0; i < at->waiting; i += at_once, at->y += at_once * across)
        FN(store)(at->y, size, run->dtype, at->apart[1 - turn] + i * N, at_once * N);
    at->waiting = rows;
}

INLINE bool FN(short_rows)(const ons_run_of_rows *run, ons_operation operation) {
    int64_t N = run->N, size = (int64_t)sizeof(T);
    bool converted = run->dtype != OWN;
    bool follow = run->y.across == N * size && (uintptr_t)run->y.data % sizeof(T) == 0;
    bool apart = converted || (follow && (run->past_caches || N % WIDTH != 0));
    if (FN(is_one_a_row)(operation)) apart = converted = false;
    FN(sending) at = {run->y.data, {FN(room_apart)(run, 0), FN(room_apart)(run, 1)}, 0, 0};
    VEC sum = V(set)(0);
    for (int64_t i = 0; i < run->count + (apart ? GROUP : 0); i += GROUP) {
        int64_t left = run->count - i, rows = left < 0 ? 0 : left < GROUP ? left : GROUP;
        int64_t turn = i / GROUP % 2;
        FN(finished) to_y = {ROW(run->y, i), run->y.across / size, false};
        FN(finished) to_room = {at.apart[turn] + at.ahead, N, true};
        if (rows > 0 && apart)
            sum = FN(group_of_columns)(run, operation, i, rows, to_room, sum);
        else if (rows > 0)
            sum = FN(group_of_columns)(run, operation, i, rows, to_y, sum);
        if (converted)
            FN(send_converted)(&at, run, turn, rows);
        else if (apart)
            FN(send_group)(&at, run, turn, rows, i == 0);
    }
    if (run->past_caches) V(settle)();
    return FN(has_nan)(sum);
}
