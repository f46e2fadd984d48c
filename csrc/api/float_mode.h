/* float_mode.h - the floating-point mode of a thread: round to nearest, keep subnormal numbers,
 * trap no exception. All arithmetic of csrc/ needs this mode. A caller's thread may have another
 * mode. torch.set_flush_denormal, fesetround, or a library that was linked with -ffast-math can set
 * it. A new thread begins with the mode of the thread that starts it. */
#ifndef ONS_FLOAT_MODE_H
#define ONS_FLOAT_MODE_H

#include <stdint.h>

/* The memory clobber keeps loads and stores, and so the arithmetic between them, on their side. */
#if defined(__x86_64__) || defined(__SSE2__)
typedef uint32_t ons_float_mode; /* MXCSR; its lowest bits are flags of past exceptions */
#define ONS_FLOAT_MODE_NEEDED 0x1f80u
#define ONS_FLOAT_MODE_BITS 0xffc0u
static inline ons_float_mode ons_float_mode_get(void) {
    ons_float_mode mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode) : : "memory");
    return mode;
}
static inline void ons_float_mode_set(ons_float_mode mode) {
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
}
#elif defined(__aarch64__)
typedef uint64_t ons_float_mode; /* FPCR */
#define ONS_FLOAT_MODE_NEEDED 0u
#define ONS_FLOAT_MODE_BITS ~(uint64_t)0
static inline ons_float_mode ons_float_mode_get(void) {
    ons_float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
    return mode;
}
static inline void ons_float_mode_set(ons_float_mode mode) {
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#else /* unknown processor: its mode stays */
typedef int ons_float_mode;
#define ONS_FLOAT_MODE_NEEDED 0
#define ONS_FLOAT_MODE_BITS 0
static inline ons_float_mode ons_float_mode_get(void) { return 0; }
static inline void ons_float_mode_set(ons_float_mode mode) { (void)mode; }
#endif

static inline int ons_float_mode_differs(ons_float_mode mode) {
    return (mode & ONS_FLOAT_MODE_BITS) != ONS_FLOAT_MODE_NEEDED;
}

/* Sets the mode that arithmetic needs. Returns the mode before, which ons_float_mode_leave
 * restores. Reading the mode takes a few cycles, setting it takes tens. */
static inline ons_float_mode ons_float_mode_enter(void) {
    const ons_float_mode theirs = ons_float_mode_get();
    if (ons_float_mode_differs(theirs)) ons_float_mode_set(ONS_FLOAT_MODE_NEEDED);
    return theirs;
}
static inline void ons_float_mode_leave(ons_float_mode theirs) {
    if (ons_float_mode_differs(theirs)) ons_float_mode_set(theirs);
}

#endif
