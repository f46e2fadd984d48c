/* exponential.h - the constants of e^x that the CPU and CUDA share, in double. n = rint(x *
 * log2(e)), and r = x - n * ln2 with ln2 in two parts. Then e^r is a polynomial: ONS_EXP_TERMS are
 * its terms, highest first, and + r + 1 follows. python benchmarks/fit_exp.py finds them. */
#ifndef ONS_EXPONENTIAL_H
#define ONS_EXPONENTIAL_H

/* The high part has 38 bits, so n * high is exact even without a fused multiply-add. */
#define ONS_LN2_HIGH 0x1.62e42fefap-1
#define ONS_LN2_LOW 0x1.cf79abc9e3b3ap-40

#define ONS_EXP_TERMS(TERM)     \
    TERM(0x1.ad99cecb0dfc4p-26) \
    TERM(0x1.28b14f404aa34p-22) \
    TERM(0x1.71df1657bc084p-19) \
    TERM(0x1.a01995f39ea67p-16) \
    TERM(0x1.a01a01313bc82p-13) \
    TERM(0x1.6c16c185aa0cbp-10) \
    TERM(0x1.111111112620ep-7)  \
    TERM(0x1.5555555550167p-5)  \
    TERM(0x1.5555555555504p-3)  \
    TERM(0x1.000000000000bp-1)

#endif
