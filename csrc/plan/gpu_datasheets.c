/* plan/gpu_datasheets.c - GPUs for which a plan can be made without having one, from their makers'
 * data sheets. The L2 of an H200 is from its driver. No sheet says how many clusters run at once.
 * The driver of an H200 says 15 clusters of 8 blocks and 7 clusters of 16 blocks. An H100 is the
 * same chip. A B200 has 8 graphics processing clusters. The planner asks only whether clusters can
 * run at all. */
#include "../api/onsoftmax.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

const ons_gpu ons_known_gpus[] = {
    {"H100", 90, 132, 2048, 50 * MIB, 3.35e12, 17e12, 16, 16, true, 227 * KIB, 15, 7,
     true}, /* SXM */
    {"H200", 90, 132, 2048, 60 * MIB, 4.8e12, 17e12, 16, 16, true, 227 * KIB, 15, 7, true},
    {"B200", 100, 148, 2048, 126 * MIB, 8e12, 18.5e12, 16, 16, true, 227 * KIB, 16, 8,
     true}, /* in an HGX */
    {"A100", 80, 108, 2048, 40 * MIB, 2.039e12, 4.85e12, 0, 0, true, 163 * KIB, 0, 0,
     false}, /* SXM, 80 GB */
    {"L4", 89, 58, 1536, 48 * MIB, 3e11, 2.37e11, 0, 0, true, 99 * KIB, 0, 0, false},
    {"RTX 4090", 89, 128, 1536, 72 * MIB, 1.008e12, 6.45e11, 0, 0, true, 99 * KIB, 0, 0, false},
    {.name = ""},
};

/* The next character of a name that is not a space, as a small letter. */
static int next_of(const char **name) {
    while (**name == ' ') ++*name;
    int c = (unsigned char)**name;
    if (c) ++*name;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static bool same_name(const char *a, const char *b) {
    for (;;) {
        int c = next_of(&a);
        if (c != next_of(&b)) return false;
        if (c == 0) return true;
    }
}

const ons_gpu *ons_gpu_named(const char *name) {
    for (const ons_gpu *gpu = ons_known_gpus; *gpu->name; gpu++)
        if (same_name(gpu->name, name)) return gpu;
    return NULL;
}
