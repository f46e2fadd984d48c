/* dlpack_abi.h - the structs of DLPack 1.x, as its specification lays them out in memory
 * (https://dmlc.github.io/dlpack/latest/c_api.html). */
#ifndef ONS_PYTHON_DLPACK_ABI_H
#define ONS_PYTHON_DLPACK_ABI_H

#include <stdint.h>

typedef struct {
    int32_t type, id;
} dlpack_device;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} dlpack_dtype;

typedef struct {
    void *data;
    dlpack_device device;
    int32_t ndim;
    dlpack_dtype dtype;
    int64_t *shape, *strides; /* in elements; strides NULL: C order */
    uint64_t byte_offset;
} dlpack_tensor;

typedef struct dlpack_managed {
    dlpack_tensor tensor;
    void *manager;
    void (*deleter)(struct dlpack_managed *);
} dlpack_managed;

typedef struct dlpack_managed_versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct dlpack_managed_versioned *);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_managed_versioned;

enum { DLPACK_CPU = 1, DLPACK_CUDA = 2, DLPACK_CUDA_HOST = 3, DLPACK_CUDA_MANAGED = 13 };
enum {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_COMPLEX = 5,
    DLPACK_BOOL = 6
};
enum { DLPACK_READ_ONLY = 1, DLPACK_COPIED = 2 };

/* The C exchange API: the capsule "dlpack_exchange_api" is an attribute of the array's type. All
 * functions but the allocator return 0, or -1 with an exception set. */
typedef struct dlpack_exchange {
    uint32_t major, minor;
    const struct dlpack_exchange *previous; /* an older version; only these first three fields are
                                             * the same */
    int (*allocate)(dlpack_tensor *prototype, dlpack_managed_versioned **out, void *context,
                    void (*set_error)(void *context, const char *kind, const char *message));
    int (*managed_from_object)(void *object, dlpack_managed_versioned **out);
    int (*object_from_managed)(dlpack_managed_versioned *managed, void **out);
    int (*tensor_from_object)(void *object, dlpack_tensor *out); /* borrowed; may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
} dlpack_exchange;

/* Names of capsules that nobody has taken yet. */
#define DLPACK_LEGACY "dltensor"
#define DLPACK_VERSIONED "dltensor_versioned"

#endif
