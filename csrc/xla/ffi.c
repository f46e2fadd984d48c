/* ffi.c - the handlers: turn a frame into a call, run it on XLA's stream, and return errors in
 * XLA's form. */
#define _GNU_SOURCE
#include "ffi.h"
#include "../api/float_mode.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static xla_error *fail(const xla_frame *frame, int code, const char *what, const char *why) {
    char text[256];
    snprintf(text, sizeof text, "onsoftmax: %s%s", what, why);
    xla_error_made made = {.size = sizeof made, .text = text, .code = code};
    return frame->api->make_error(&made);
}

/* Answers a frame that asks for the version of the handler. It declares no trait: on a GPU a call
 * may need memory, so it cannot be part of a CUDA graph. */
static bool answers(const xla_frame *frame) {
    for (xla_extension *each = frame->extensions; each; each = each->next)
        if (each->type == XLA_METADATA) {
            xla_metadata *asked = (xla_metadata *)each;
            asked->answer->version.major = XLA_MAJOR;
            asked->answer->version.minor = XLA_MINOR;
            asked->answer->traits = 0;
            return true;
        }
    return false;
}

static bool is_empty(const xla_buffer *buffer) {
    bool empty = false;
    for (int64_t i = 0; i < buffer->dims; i++) empty |= buffer->shape[i] == 0;
    return empty;
}

/* It is empty if there is nothing to do. Rows without elements have a loss, but no gradient. */
static const xla_buffer *last_result(const xla_frame *frame) {
    return frame->results.buffers[frame->results.count - 1];
}

/* XLA allocates memory for large results anew in each run of a program. Most of the cost of such a
 * result is that the system provides and clears its pages, so huge pages are better. */
static void want_huge_pages(const xla_buffer *result, int64_t element) {
    enum { LARGE = 1 << 23, HUGE_PAGE = 1 << 21 };
    int64_t bytes = element;
    for (int64_t i = 0; i < result->dims; i++) bytes *= result->shape[i];
#ifdef MADV_HUGEPAGE
    const uintptr_t first = ((uintptr_t)result->data + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE,
                    end = ((uintptr_t)result->data + (uintptr_t)bytes) / HUGE_PAGE * HUGE_PAGE;
    if (bytes >= LARGE)
        madvise((void *)first, end - first, MADV_HUGEPAGE); /* the system may
                                                             * decline */
#else
    (void)bytes;
#endif
}

static xla_error *free_memory(const xla_frame *frame, const xla_memory_asked *given) {
    xla_memory_freed freed = {.size = sizeof freed,
                              .context = frame->context,
                              .bytes = given->bytes,
                              .memory = given->memory};
    return given->memory ? frame->api->free(&freed) : NULL;
}

/* Bytes that kernels access at a time in the scratch. XLA refuses to promise more alignment than
 * its allocators have, and some have little. */
enum { PACK = 16 };

/* On a GPU the scratch is XLA's memory, in the order of its stream. */
static xla_error *run_problem(const xla_frame *frame, const ons_xla_call *call) {
    ons_plan plan;
    ons_loss_parts parts;
    const ons_operation operation = call->problem.operation;
    const bool is_loss =
        ons_operations[operation].loss && !call->problem.logprob && !ons_is_divergence(operation);
    const ons_machine machine = ons_this_machine(call->threads);
    xla_memory_asked scratch = {
        .size = sizeof scratch, .context = frame->context, .alignment = PACK};
    ons_status status;
    if (is_loss) {
        parts.problem = call->problem;
        parts.terms = call->terms;
        parts.mean = false;
        parts.method = ONS_METHOD_AUTO;
        status = ons_plan_loss(&parts, &machine);
    } else {
        status = ons_make_plan(&call->problem, call->method, &machine, &plan);
    }
    if (status == ONS_OK && call->problem.device == ONS_CUDA)
        scratch.bytes = (size_t)(is_loss ? parts.scratch_bytes : plan.workspace_bytes);
    if (scratch.bytes > 0) {
        xla_error *error = frame->api->allocate(&scratch);
        if (error) return error;
    }
    if (status == ONS_OK)
        status = is_loss ? ons_run_loss(&parts, scratch.memory)
                         : ons_run(&call->problem, &plan, scratch.memory);
    xla_error *error = free_memory(frame, &scratch);
    if (error || status == ONS_OK) return error;
    char method[64];
    snprintf(method, sizeof method, "method %s: ", ons_method_name(call->method));
    return fail(frame, status == ONS_E_MEMORY ? XLA_RESOURCE_EXHAUSTED : XLA_INVALID_ARGUMENT,
                method, ons_status_text(status));
}

static xla_error *run_merging(const xla_frame *frame, const ons_xla_call *call) {
    ons_merging merging = call->merging;
    merging.device = call->problem.device;
    merging.gpu = call->problem.gpu;
    merging.stream = call->problem.stream;
    const ons_status status = ons_merge(&merging);
    return status == ONS_OK ? NULL : fail(frame, XLA_INTERNAL, "", ons_status_text(status));
}

/* The stream, and the GPU of the result. */
static xla_error *find_gpu(const xla_frame *frame, ons_problem *problem) {
    xla_stream_asked asked = {.size = sizeof asked, .context = frame->context};
    xla_error *error = frame->api->get_stream(&asked);
    if (error) return error;
    problem->stream = asked.stream;
    const ons_status status = ons_gpu_of(last_result(frame)->data, &problem->gpu);
    if (status != ONS_OK) return fail(frame, XLA_INTERNAL, "", ons_status_text(status));
    return problem->gpu >= 0 ? NULL : fail(frame, XLA_INTERNAL, "the result is on no GPU", "");
}

static xla_error *handle(const xla_frame *frame, ons_device device) {
    if (answers(frame) || frame->stage != XLA_RUN) return NULL;
    /* version 0.1 says that it ends with get_stream, but it goes on like the later versions */
    if (frame->api->version.major != XLA_MAJOR ||
        frame->api->size < offsetof(xla_api, get_stream) + sizeof frame->api->get_stream)
        return fail(frame, XLA_INVALID_ARGUMENT, "this version of XLA's interface is unknown", "");
    ons_xla_call call;
    xla_error *error = NULL;
    const char *wrong = ons_xla_take(frame, device, &call);
    if (wrong) {
        error = fail(frame, XLA_INVALID_ARGUMENT, wrong, "");
    } else if (!is_empty(last_result(frame))) {
        if (device == ONS_CUDA)
            error = find_gpu(frame, &call.problem);
        else if (!call.merges)
            want_huge_pages(frame->results.buffers[0],
                            ons_dtype_size(call.problem.operand[ONS_Y].dtype));
        if (!error) error = call.merges ? run_merging(frame, &call) : run_problem(frame, &call);
    }
    free(call.scale);
    return error;
}

/* XLA's threads treat numbers below the smallest normal one as 0. That would include a scale, which
 * becomes double here. */
xla_error *ons_xla_on_cpu(xla_frame *frame) {
    const ons_float_mode theirs = ons_float_mode_enter();
    xla_error *error = handle(frame, ONS_CPU);
    ons_float_mode_leave(theirs);
    return error;
}

xla_error *ons_xla_on_cuda(xla_frame *frame) { return handle(frame, ONS_CUDA); }
