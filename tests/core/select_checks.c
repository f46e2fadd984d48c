/* select_checks.c - which instruction set select.c takes, with stand-ins for processors. Each
 * argument names a stand-in and says what it does on the processor: avx2=suits avx512=runs */
#include "cpu.h"

#include <stdio.h>
#include <string.h>

static int count;
static char **said;

static bool is_said(const char *name, const char *what) {
    char text[32];
    snprintf(text, sizeof text, "%s=%s", name, what);
    for (int i = 1; i < count; i++)
        if (strcmp(said[i], text) == 0) return true;
    return false;
}

#define STAND_IN(name)                                                                 \
    static bool name##_suits(void) { return is_said(#name, "suits"); }                 \
    static bool name##_runs(void) { return name##_suits() || is_said(#name, "runs"); } \
    const ons_isa ons_isa_##name = {#name, name##_runs, name##_suits, NULL, NULL};

STAND_IN(scalar)
STAND_IN(avx2)
STAND_IN(avx512)

int main(int arguments, char **argument) {
    count = arguments;
    said = argument;
    printf("taken %s, ", ons_isa_selected());
    printf("forced %s\n", ons_isa_select("avx512") ? ons_isa_selected() : "none");
    return 0;
}
