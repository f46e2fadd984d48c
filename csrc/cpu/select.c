/* select.c - which instruction set runs: the best that this processor has, or the one that was
 * forced. */
#include "cpu.h"

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

static const ons_isa *forced;

static const ons_isa *best(void) {
    for (int i = BUILT - 1; i > 0; i--)
        if (built[i]->runs_here()) return built[i];
    return built[0];
}

static const ons_isa *selected(void) { return forced ? forced : best(); }

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
