/* without_avx512.c - a processor without AVX-512, for programs that ask CPUID what there is: every
 * one of a benchmark's contestants then takes what it would take there. Linux on x86-64, where the
 * processor can make CPUID fault (`cpuid_fault` in /proc/cpuinfo).
 *
 *     cc -shared -fPIC -O2 -o /tmp/without_avx512.so benchmarks/without_avx512.c
 *     LD_PRELOAD=/tmp/without_avx512.so python benchmarks/bench_cpu.py
 *
 * The C library asked before, and its copies may still use AVX-512. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static int set_cpuid(int there) { return (int)syscall(SYS_arch_prctl, ARCH_SET_CPUID, there); }

/* Of leaf 7 what needs the 512-bit registers or their masks; subleaf 1 has AVX512_BF16 too. */
static void take_away(unsigned leaf, unsigned subleaf, unsigned *a, unsigned *b, unsigned *c,
                      unsigned *d) {
    if (leaf != 7) return;
    if (subleaf == 1) *a &= ~(1u << 5);
    if (subleaf != 0) return;
    *b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
    *c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
    *d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)info;
    if (memcmp((const void *)at[REG_RIP], "\x0f\xa2", 2) != 0) { /* some other fault: a real one */
        signal(number, SIG_DFL);
        return;
    }
    unsigned leaf = (unsigned)at[REG_RAX], subleaf = (unsigned)at[REG_RCX], a, b, c, d;
    set_cpuid(1);
    __cpuid_count(leaf, subleaf, a, b, c, d);
    set_cpuid(0);
    take_away(leaf, subleaf, &a, &b, &c, &d);
    at[REG_RAX] = a;
    at[REG_RBX] = b;
    at[REG_RCX] = c;
    at[REG_RDX] = d;
    at[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSEGV, &action, NULL) != 0 || set_cpuid(0) != 0) {
        fputs("without_avx512: this processor cannot make CPUID fault\n", stderr);
        exit(1);
    }
}
