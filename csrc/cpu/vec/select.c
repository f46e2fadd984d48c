/* select.c - selects the instruction set: the best for this processor, or the one that was
 * forced. */
#include "../kernel/primitives.h"

#include <pthread.h>
#include <string.h>

/* worst first */
static const ons_isa *const built[] = {
    &ons_isa_scalar,
#if defined(__x86_64__)
    &ons_isa_avx2,
    &ons_isa_avx512,
#elif defined(__aarch64__)
    &ons_isa_neon,
#endif
};
enum { BUILT = sizeof built / sizeof *built };

static const ons_isa *forced, *best;

static void find_best(void) {
    int i = BUILT - 1;
    while (i > 0 && !built[i]->suits_here()) i--;
    best = built[i];
}

/* Asks the processor only once: on virtual machines cpuid traps, which takes microseconds. */
static const ons_isa *selected(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (forced) return forced;
    pthread_once(&once, find_best);
    return best;
}

const char *const *ons_isa_available(void) {
    static const char *names[BUILT + 1];
    int count = 0;
    for (int i = 0; i < BUILT; i++)
        if (built[i]->runs_here()) names[count++] = built[i]->name;
    names[count] = NULL;
    return names;
}

const char *ons_isa_selected(void) { return selected()->name; }

bool ons_isa_select(const char *name) {
    for (int i = 0; i < BUILT; i++)
        if (strcmp(built[i]->name, name) == 0 && built[i]->runs_here()) {
            forced = built[i];
            return true;
        }
    return false;
}

const ons_kernels *ons_kernels_for(ons_dtype compute) {
    return compute == ONS_FLOAT32 ? selected()->f32 : selected()->f64;
}
