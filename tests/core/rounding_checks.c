#include "../../csrc/api/rounding.h"
/* op: 0 softmax, 1 log_softmax, 2 logsumexp; type 0 f32 1 f16 2 bf16 */
void two_row(int op, int type, const double *x, long n, double *y) {
    ons_rounding to = type==0?ons_rounding_to_float32():type==1?ons_rounding_to_float16():ons_rounding_to_bfloat16();
    ons_two_row row = ons_two_row_of(-INFINITY);
    for (long i=0;i<n;i++) if (x[i]>row.m) row.m=x[i];
    for (long i=0;i<n;i++) ons_two_row_add(&row,x[i]);
    ons_two_row_end(&row);
    if (op==2) { y[0]=ons_two_logsumexp(&row,to); return; }
    for (long i=0;i<n;i++) y[i]= op==0?ons_two_softmax(&row,x[i],to):ons_two_log_softmax(&row,x[i],to);
}
double round_to(double v,int type){ return ons_rounded(v, type==0?ons_rounding_to_float32():type==1?ons_rounding_to_float16():ons_rounding_to_bfloat16()); }
