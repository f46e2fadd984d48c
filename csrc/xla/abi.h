/* abi.h - the structs of XLA's foreign function interface, as xla/ffi/api/c_api.h lays them out in
 * memory: version 0.1, and later versions that only add to it. Each struct begins with its size and
 * a list of extensions. The struct of a later version is longer. */
#ifndef ONS_XLA_ABI_H
#define ONS_XLA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The version that the handlers are written for. */
enum { XLA_MAJOR = 0, XLA_MINOR = 1 };

typedef struct xla_extension {
    size_t size;
    int type;
    struct xla_extension *next;
} xla_extension;

typedef struct {
    size_t size;
    xla_extension *extensions;
    int major, minor;
} xla_version;

/* An extension of a frame that asks a handler about itself, and runs nothing. */
enum { XLA_METADATA = 1 };

typedef struct {
    xla_extension extension;
    struct {
        size_t size;
        xla_version version; /* the version for which the handler is written */
        uint32_t traits;
    } *answer;
} xla_metadata;

/* Types of elements. */
enum {
    XLA_BOOL = 1,
    XLA_INT32 = 4,
    XLA_INT64 = 5,
    XLA_UINT32 = 8,
    XLA_FLOAT16 = 10,
    XLA_FLOAT32 = 11,
    XLA_FLOAT64 = 12,
    XLA_BFLOAT16 = 16
};

/* An array in C order. */
typedef struct {
    size_t size;
    xla_extension *extensions;
    int dtype;
    void *data;
    int64_t dims;
    const int64_t *shape;
} xla_buffer;

/* Arguments or results. So far all are buffers, whose type is 1. */
enum { XLA_IS_BUFFER = 1 };

typedef struct {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    const int *types;
    xla_buffer *const *buffers;
} xla_buffers;

typedef struct {
    const char *text; /* not terminated by a zero */
    size_t length;
} xla_text;

enum { XLA_IS_ARRAY = 1, XLA_IS_SCALAR = 3, XLA_IS_TEXT = 4 };

typedef struct {
    int dtype;
    const void *value;
} xla_scalar;

typedef struct {
    int dtype;
    size_t length;
    const void *values;
} xla_array;

/* Attributes, known when a program is compiled: each is a text, a scalar or an array, by its
 * type. */
typedef struct {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    const int *types;
    xla_text *const *names;
    const void *const *values;
} xla_attributes;

typedef struct xla_error xla_error;
typedef struct xla_context xla_context;

enum { XLA_INVALID_ARGUMENT = 3, XLA_RESOURCE_EXHAUSTED = 8, XLA_INTERNAL = 13 };

typedef struct {
    size_t size;
    xla_extension *extensions;
    const char *text;
    int code;
} xla_error_made;

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_error *error;
} xla_error_dropped;

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_context *context;
    void *stream; /* out */
} xla_stream_asked;

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_context *context;
    size_t bytes, alignment;
    void *memory; /* out */
} xla_memory_asked;

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_context *context;
    size_t bytes;
    void *memory;
} xla_memory_freed;

typedef void xla_unused(void);

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_version version;
    const void *internal;
    xla_error *(*make_error)(xla_error_made *);
    xla_unused *error_text;
    void (*drop_error)(xla_error_dropped *);
    xla_unused *register_handler;
    xla_error *(*get_stream)(xla_stream_asked *);
    xla_unused *register_type, *get_context, *set_state, *get_state;
    /* memory of the GPU on which the call runs, in the order of its stream */
    xla_error *(*allocate)(xla_memory_asked *);
    xla_error *(*free)(xla_memory_freed *);
} xla_api;

enum { XLA_RUN = 3 };

/* A call of a handler. The handler returns NULL, or an error, which XLA then owns. */
typedef struct {
    size_t size;
    xla_extension *extensions;
    const xla_api *api;
    xla_context *context;
    int stage;
    xla_buffers arguments, results;
    xla_attributes attributes;
} xla_frame;

#endif
