/* exponential.h - the constants of e^x that the CPU and CUDA share, in double. n = rint(x *
 * log2(e)), and r = x - n * ln2 with ln2 in two parts. A polynomial gives e^r. ONS_EXP_TERMS has
 * its terms down to r^2, then r and 1 follow. python benchmarks/fit_exp.py finds them. */
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

/* The same for n = rint(16 * x * log2(e)). */
#define ONS_LN2_16_HIGH 0x1.62e42ffp-5
#define ONS_LN2_16_LOW -0x1.718432a1b0e26p-39

#define ONS_EXP_TERMS_16(TERM)  \
    TERM(0x1.6c14bb6c9a7bfp-10) \
    TERM(0x1.111240a85be00p-7)  \
    TERM(0x1.55555559254f8p-5)  \
    TERM(0x1.5555555487835p-3)  \
    TERM(0x1.fffffffffffb4p-2)

/* The bits of 2^(k / 16), with k subtracted at the top of the fraction, so 2^(n / 16) has the bits
 * of entry n % 16 plus n * 2^48. */
#define ONS_SIXTEENTHS                                                                  \
    0x3ff0000000000000, 0x3fefb5586cf9890f, 0x3fef72b83c7d517b, 0x3fef387a6e756238,     \
        0x3fef06fe0a31b715, 0x3feedea64c123422, 0x3feebfdad5362a27, 0x3feeab07dd485429, \
        0x3feea09e667f3bcd, 0x3feea11473eb0187, 0x3feeace5422aa0db, 0x3feec49182a3f090, \
        0x3feee89f995ad3ad, 0x3fef199bdd85529c, 0x3fef5818dcfba487, 0x3fefa4afa2a490da

#endif
