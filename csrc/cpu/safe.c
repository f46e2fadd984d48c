/* safe.c - three passes: the maximum; the sum of e^(x - m); divide. Each reads the row from memory.
 * Milakov and Gimelshein, arXiv 1805.02867, algorithm 2. Any row length. */
#include "near_zero.h"
#include "online.h"

static void safe(ons_strip *strip) {
    const ons_primitives *primitives = strip->primitives;
    int64_t N = strip->plan->N;
    do {
        ONS_FOR_EACH_TILE(strip, 0, N, j, n)
        primitives->max(&strip->rows, ONS_NO_TILE, ons_strip_load(strip, j, n), n);
    } while (ons_strip_anchor(strip));
    ons_strip_rescale(strip, true);

    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        primitives->sum_exp(&strip->rows, ons_strip_load(strip, j, n), n);
        ons_strip_end_tile(strip, j + n, N, false);
    }
    ons_near_zero_keep_digits(strip);
    ons_online_finish(strip, 0, N);
}

void ons_cpu_safe(const ons_job *job) { ons_for_each_strip(job, safe); }
