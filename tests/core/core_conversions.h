/* core_conversions.h - checks the 16-bit conversions of the selected instruction set, number by
 * number. Part of core_checks.c. */
#ifndef CORE_CONVERSIONS_H
#define CORE_CONVERSIONS_H

#include "core_support.h"

#include "../../csrc/cpu/cpu.h"

enum { BATCH = 32, EACH = 6 };
static room room_of_values, room_of_stored;
static int each = 1; /* --each */

/* Takes the batches where normal numbers begin or end, and every `each`-th batch. */
static bool is_taken(uint32_t first, ons_dtype narrow) {
    long double least = ldexpl(1, formats[narrow].least);
    long double begin = fabsl(value_of((uint16_t)first, narrow));
    long double end = fabsl(value_of((uint16_t)(first + BATCH - 1), narrow));
    bool at_edge = isfinite(begin) != isfinite(end) || (begin < least) != (end < least);
    return at_edge || first / (BATCH - 1) % (uint32_t)each == 0;
}

static void check_loaded(const ons_movers *move, ons_dtype narrow, ons_dtype compute,
                         uint32_t first, int64_t step) {
    char bits[6 * BATCH];
    for (uint32_t k = 0; k < BATCH; k++)
        memcpy(bits + k * step, &(uint16_t){(uint16_t)(first + k)}, 2);
    array loaded = place(room_of_values, compute, ROWS, 1, BATCH - 1, 0);
    move->load(loaded.data, bits, step, narrow, BATCH - 1);
    for (uint32_t k = 0; k < BATCH - 1; k++) {
        long double value = value_of((uint16_t)(first + k), narrow);
        REQUIRE(same(get_bits(loaded, 0, k), rounded_bits(value, compute), compute),
                "%s %#x as %s: %La", ons_dtype_name(narrow), first + k, ons_dtype_name(compute),
                get(loaded, 0, k));
    }
}

static void check_stored(const ons_movers *move, ons_dtype narrow, array values, int64_t n,
                         int64_t step) {
    array stored = place(room_of_stored, narrow, ROWS, 1, 3 * n, 0);
    stored.along = step;
    move->store(stored.data, step, narrow, values.data, n);
    for (int64_t j = 0; j < n; j++)
        REQUIRE(same(get_bits(stored, 0, j), rounded_bits(get(values, 0, j), narrow), narrow),
                "%La as %s: %#llx", get(values, 0, j), ons_dtype_name(narrow),
                (unsigned long long)get_bits(stored, 0, j));
}

/* Loads every 16-bit number of the batches. Stores each number, the middle between it and the next
 * one outward, and the neighbours of both. */
static void check_conversions(ons_dtype narrow, ons_dtype compute) {
    const ons_movers *move = &ons_kernels_for(compute)->move;
    for (uint32_t first = 0; first < 1u << 16; first += BATCH - 1) {
        if (!is_taken(first, narrow)) continue;
        check_loaded(move, narrow, compute, first, 2);
        check_loaded(move, narrow, compute, first, 6);
        array values = place(room_of_values, compute, ROWS, 1, EACH * BATCH, 0);
        for (uint32_t k = 0; k < EACH * BATCH; k += 3) {
            long double here = value_of((uint16_t)(first + k / EACH), narrow);
            long double half = isfinite(here) ? copysignl(ulp(here, narrow) / 2, here) : 0;
            put(values, 0, k, k % EACH == 0 ? here : here + half);
            uint64_t at = get_bits(values, 0, k);
            put_bits(values, 0, k + 1, at + 1);
            put_bits(values, 0, k + 2, at - 1);
        }
        check_stored(move, narrow, values, EACH * BATCH - 1, 2);
        check_stored(move, narrow, values, EACH * BATCH - 1, 6);
    }
}

static void conversions(void) {
    if (!room_of_values.begin) {
        room_of_values = make_room(8 * EACH * BATCH);
        room_of_stored = make_room(6 * EACH * BATCH);
    }
    for (ons_dtype narrow = ONS_FLOAT16; narrow <= ONS_BFLOAT16; narrow++)
        for (ons_dtype compute = ONS_FLOAT32; compute <= ONS_FLOAT64; compute++)
            check_conversions(narrow, compute);
}

#endif
