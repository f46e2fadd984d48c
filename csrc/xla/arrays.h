/* arrays.h - the attributes and the arrays of a call of XLA. */
#ifndef ONS_XLA_ARRAYS_H
#define ONS_XLA_ARRAYS_H

#include "ffi.h"

/* The words of a float64 or an int64. */
enum { XLA_WORDS = sizeof(double) / sizeof(uint32_t) };

bool ons_xla_is(const xla_text *text, const char *name);

/* The value of an attribute. NULL if there is none of this name and type. */
const void *ons_xla_attribute(const xla_frame *frame, const char *name, int type);
const void *ons_xla_scalar(const xla_frame *frame, const char *name, int dtype);

/* Finds the arguments by their letters. Returns NULL, or a text about what is wrong. */
const char *ons_xla_find_arguments(const xla_frame *frame, const xla_text *operands,
                                   const char *letters, const xla_buffer **found);

/* The dimensions of the arrays, and whether each belongs to a row. */
typedef struct {
    int dims;
    int64_t extent[ONS_MAX_DIMS];
    bool reduced[ONS_MAX_DIMS];
} xla_shape;

/* Sets the problem's dimensions: those that tell rows apart, then those of a row. `words`: y has a
 * last dimension of its own. */
bool ons_xla_take_shape(const xla_array *axes, const xla_buffer *x, const xla_buffer *y, bool words,
                        xla_shape *shape, ons_problem *problem);

/* The length of an operand along a row: as x, one value, or k. */
typedef enum { ROW, VALUE, SELECTED } xla_along;

/* `states` is the number of float64 a row, as words; 0 means elements. A result has all rows of the
 * problem. */
bool ons_xla_add_operand(ons_role role, const xla_buffer *buffer, const xla_shape *shape,
                         xla_along along, int states, ons_problem *problem);

/* Whether an array has an entry for each row, or `a_row` entries in a last dimension of their own.
 */
enum { XLA_NO_DIMENSION = -1 };
bool ons_xla_is_of_rows(const xla_buffer *buffer, const xla_shape *shape, int64_t a_row);

/* Puts a scale on the CPU in the CPU's type. Returns NULL, or a text about what is wrong. */
const char *ons_xla_widen_scale(const xla_buffer *buffer, ons_xla_call *call);

/* The text about an array that the others do not fit. */
extern const char ons_xla_misfit[];

/* losses.c, route.c, sample.c: take a loss, a divergence, log-probabilities, a router or a sampler.
 * Return NULL, or a text about what is wrong. */
const char *ons_xla_take_loss(const xla_frame *frame, const xla_text *operands,
                              const xla_array *axes, ons_xla_call *call);
const char *ons_xla_take_divergence(const xla_frame *frame, const xla_text *operands,
                                    const xla_array *axes, ons_xla_call *call);
const char *ons_xla_take_logprob(const xla_frame *frame, const xla_text *operands,
                                 const xla_array *axes, int flags, ons_xla_call *call);
const char *ons_xla_take_route(const xla_frame *frame, const xla_text *operands,
                               const xla_array *axes, ons_xla_call *call);
const char *ons_xla_take_sample(const xla_frame *frame, const xla_text *operands,
                                const xla_array *axes, ons_xla_call *call);

#endif
