/* sample_masses.c - the sampler for a row whose filters do not end among its first tokens. softmax
 * gives the probabilities of all tokens. Their masses are added up by the digits of the
 * probabilities, the highest digit first. So the place of each filter's end, and of the drawn
 * token, is found without a sort. */
#include <stdlib.h>
#include <string.h>

#include "../api/rounding.h"
#include "part.h"
#include "sample.h"

/* A key is the bits of a probability. A larger probability has a larger key. */
static uint64_t key_at(const ons_sampling *of, const void *p, int64_t i) {
    uint64_t wide;
    uint32_t single;
    if (of->plan->compute == ONS_FLOAT64) {
        memcpy(&wide, (const double *)p + i, sizeof wide);
        return wide;
    }
    memcpy(&single, (const float *)p + i, sizeof single);
    return (uint64_t)single << 32;
}

static double p_of_key(const ons_sampling *of, uint64_t key) {
    const uint32_t high = (uint32_t)(key >> 32);
    double wide;
    float single;
    memcpy(&wide, &key, sizeof wide);
    memcpy(&single, &high, sizeof single);
    return of->plan->compute == ONS_FLOAT64 ? wide : (double)single;
}

static uint64_t mass_of_key(const ons_sampling *of, uint64_t key) {
    return ons_mass_of(p_of_key(of, key));
}

/* The mass and the number of the tokens with each digit. Digit 0 of a key is its highest digit. */
enum { DIGIT = 11, DIGITS = 1 << DIGIT };
typedef struct {
    uint64_t mass[DIGITS], count[DIGITS];
} tokens_by_digit;

static int digit_of(uint64_t key, int level) {
    const int below = 64 - DIGIT * (level + 1);
    return (int)((below >= 0 ? key >> below : key << -below) & (DIGITS - 1));
}

static void add_token(const ons_sampling *of, tokens_by_digit *to, uint64_t key, int level) {
    const int digit = digit_of(key, level);
    to->mass[digit] += ons_mass_of(p_of_key(of, key));
    to->count[digit]++;
}

/* A place in the order of a row's tokens: the key of its token, and the mass and the number of the
 * tokens with larger keys. */
typedef struct {
    uint64_t key, mass_above, count_above;
} place_in_order;

/* A row's tokens. `first` counts all of them. The arrays have room for N keys and N indices. */
typedef struct {
    const void *p;
    uint64_t *keys;
    int64_t *index;
    tokens_by_digit *first, *next;
} row_tokens;

/* The place at which the first tokens reach the mass `wanted`, or the number `wanted` if by_count.
 * All tokens together must reach it. */
static place_in_order place_of(const ons_sampling *of, const row_tokens *row, bool by_count,
                               uint64_t wanted) {
    const int levels = of->plan->compute == ONS_FLOAT64 ? 6 : 3;
    const tokens_by_digit *from = row->first;
    place_in_order place = {0, 0, 0};
    int64_t count = 0;
    for (int level = 0; level < levels; level++) {
        int digit = DIGITS - 1;
        for (;; digit--) {
            const uint64_t above = by_count ? place.count_above : place.mass_above;
            const uint64_t amount = by_count ? from->count[digit] : from->mass[digit];
            if (above + amount >= wanted || digit == 0) break;
            place.mass_above += from->mass[digit];
            place.count_above += from->count[digit];
        }
        int64_t kept = 0;
        if (level == 0) {
            for (int64_t i = 0; i < of->plan->N; i++) {
                const uint64_t key = key_at(of, row->p, i);
                if (digit_of(key, 0) == digit) row->keys[kept++] = key;
            }
        } else {
            for (int64_t i = 0; i < count; i++)
                if (digit_of(row->keys[i], level) == digit) row->keys[kept++] = row->keys[i];
        }
        count = kept;
        place.key = row->keys[0];
        if (level + 1 == levels) break;
        memset(row->next, 0, sizeof *row->next);
        for (int64_t i = 0; i < count; i++) add_token(of, row->next, row->keys[i], level + 1);
        from = row->next;
    }
    return place;
}

/* The mass of the tokens that the filters keep. */
static uint64_t kept_mass(const ons_sampling *of, const ons_row_filters *filters,
                          const row_tokens *row, double largest) {
    const int64_t N = of->plan->N;
    uint64_t all = 0;
    for (int digit = 0; digit < DIGITS; digit++) all += row->first->mass[digit];
    uint64_t of_k = all;
    if (filters->top_k < N) {
        const place_in_order last = place_of(of, row, true, (uint64_t)filters->top_k);
        of_k = last.mass_above +
               ((uint64_t)filters->top_k - last.count_above) * mass_of_key(of, last.key);
    }
    uint64_t end = of_k;
    if (filters->top_p < 1) {
        const bool limited = !of->sample->joint && filters->top_k < N;
        const double share =
            ons_share_of_mass(filters->top_p, limited ? (double)of_k : ONS_WHOLE_MASS,
                              of->plan->compute == ONS_FLOAT64);
        const uint64_t wanted = share < 1 ? 1 : share < (double)all ? (uint64_t)share : all;
        const place_in_order last = place_of(of, row, false, wanted);
        const uint64_t one = mass_of_key(of, last.key);
        const uint64_t mass = last.mass_above + (wanted - last.mass_above + one - 1) / one * one;
        if (mass < end) end = mass;
    }
    if (filters->min_p > 0) {
        uint64_t mass = 0;
        for (int64_t i = 0; i < N; i++)
            if (ons_sample_p_at(of, row->p, i) >= filters->min_p * largest)
                mass += mass_of_key(of, key_at(of, row->p, i));
        if (mass < end) end = mass;
    }
    return end;
}

/* x * scale rounded once to float. */
static double product_as_float(float x, double scale) {
    const double high = x * scale;
    const ons_two exact = {high, fma((double)x, scale, -high)};
    return (double)(float)ons_two_to_odd(exact);
}

typedef struct {
    double logit;
    int64_t index;
} ordered_token;

static int by_order(const void *a_, const void *b_) {
    const ordered_token *a = a_, *b = b_;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* The tokens with this key have the same probability, but may have different logits. Returns the
 * token number `order` among them, in the order of tokens, or -1 if there is no memory. */
static int64_t token_of_equal(ons_sampling *of, const row_tokens *row, int64_t number, double scale,
                              uint64_t key, uint64_t order) {
    int64_t count = 0;
    for (int64_t i = 0; i < of->plan->N; i++)
        if (key_at(of, row->p, i) == key) row->index[count++] = i;
    ordered_token *const tokens = malloc((size_t)count * sizeof *tokens);
    if (!tokens) {
        atomic_store(&of->status, ONS_E_MEMORY);
        return -1;
    }
    const ons_problem *problem = of->problem;
    const ons_operand *x = &problem->operand[ONS_X];
    const char *const from = x->data + ons_offset_of_row(problem, ONS_X, number);
    bool differ = false;
    for (int64_t i = 0; i < count; i++) {
        double wide;
        float single;
        const bool in_double = of->plan->compute == ONS_FLOAT64;
        of->kernels->move.load(in_double ? (void *)&wide : (void *)&single,
                               from + row->index[i] * x->stride[problem->dims - 1], 0, x->dtype, 1);
        tokens[i] = (ordered_token){in_double ? wide * scale : product_as_float(single, scale),
                                    row->index[i]};
        differ |= tokens[i].logit != tokens[0].logit;
    }
    if (differ) qsort(tokens, (size_t)count, sizeof *tokens, by_order);
    const int64_t token = tokens[order < (uint64_t)count ? order : (uint64_t)count - 1].index;
    free(tokens);
    return token;
}

ons_drawn_token ons_draw_by_masses(ons_sampling *of, const ons_row_filters *filters, int64_t number,
                                   double scale, const void *p) {
    const int64_t N = of->plan->N;
    const size_t bytes =
        (size_t)N * (sizeof(uint64_t) + sizeof(int64_t)) + 2 * sizeof(tokens_by_digit);
    tokens_by_digit *const first = malloc(bytes);
    if (!first) {
        atomic_store(&of->status, ONS_E_MEMORY);
        return ONS_NOT_VALID;
    }
    uint64_t *const keys = (uint64_t *)(first + 2);
    const row_tokens row = {p, keys, (int64_t *)(keys + N), first, first + 1};
    double largest = 0;
    memset(first, 0, sizeof *first);
    for (int64_t i = 0; i < N; i++) {
        if (ons_sample_p_at(of, p, i) > largest) largest = ons_sample_p_at(of, p, i);
        add_token(of, first, key_at(of, p, i), 0);
    }
    const uint64_t kept = kept_mass(of, filters, &row, largest);
    const uint64_t at = ons_mass_below(ons_random_of_row(of->sample, number), kept);
    const place_in_order place = place_of(of, &row, false, at + 1);
    const double of_token = p_of_key(of, place.key);
    const uint64_t order = (at - place.mass_above) / ons_mass_of(of_token);
    const int64_t token = token_of_equal(of, &row, number, scale, place.key, order);
    free(first);
    return ons_drawn_of(token, of_token, kept);
}
