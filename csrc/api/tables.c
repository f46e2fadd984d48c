/* tables.c - the tables of methods, operations and types. */
#include <math.h>

#include "onsoftmax.h"

#define DEVICES_EVERYWHERE true, true
#define DEVICES_ALIAS_ON_CUDA true, true
#define DEVICES_CPU_ONLY true, false
#define DEVICES_CUDA_ONLY false, true
const ons_method_info ons_methods[ONS_METHOD_COUNT] = {
#define ONS_METHOD(name, devices, reads, writes, on_chip, summary) \
    {#name, DEVICES_##devices, reads, writes, ONS_##on_chip##_ON_CHIP, summary},
#include "methods.def"
#undef ONS_METHOD
};

#define RESULT_ROW false, false, false, false, false
#define RESULT_VALUE true, false, false, false, false
#define RESULT_PAIR true, true, false, false, false
#define RESULT_GRADIENT false, false, true, false, false
#define RESULT_TOPK false, false, false, true, false
#define RESULT_LOSS true, false, false, false, true
#define RESULT_LOSS_GRADIENT false, false, false, false, true
#define RESULT_DIVERGENCE false, false, true, false, true
#define RESULT_ROUTE RESULT_TOPK
const ons_operation_info ons_operations[ONS_OPERATION_COUNT] = {
#define ONS_OPERATION(name, result, keeps, excluded, summary) \
    {#name, RESULT_##result, ONS_KEEP_##keeps, excluded, summary},
#include "../op/operations.def"
#undef ONS_OPERATION
};

const char *ons_method_name(ons_method method) {
    return method == ONS_METHOD_AUTO        ? "auto"
           : method == ONS_METHOD_INVARIANT ? "invariant"
                                            : ons_methods[method].name;
}

const char *ons_dtype_name(ons_dtype dtype) {
    static const char *const names[] = {"float16", "bfloat16", "float32", "float64",
                                        "bool",    "int32",    "int64"};
    return names[dtype];
}

int64_t ons_dtype_size(ons_dtype dtype) {
    static const int64_t sizes[] = {2, 2, 4, 8, 1, 4, 8};
    return sizes[dtype];
}
