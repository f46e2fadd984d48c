/* planner.c - the planner for the picker page: csrc/plan/*.c compiled to WebAssembly, for C-ordered
 * arrays of `rows` rows of `N` elements. Numbers are doubles, as in JavaScript, and far below 2^53.
 * */
#include "../../csrc/api/plan_facts.h"

#define EXPORT(name) __attribute__((export_name(#name))) name

static ons_plan plan;
static double reads, measured_seconds, measured_copy_seconds, launch_seconds, least_bytes;

/* Makes the plan that the functions below describe. `method` is a line of methods.def, or -1 for
 * auto. Returns an ons_status. */
int EXPORT(make_plan)(ons_device device, ons_dtype dtype, double rows, double N, int method,
                      int threads) {
    static char somewhere[64];
    ons_problem problem = {.device = device, .dims = 2, .reduced_dims = 1, .scale_by = 1.0};
    int64_t size = ons_dtype_size(dtype);
    problem.extent[0] = (int64_t)rows;
    problem.extent[1] = (int64_t)N;
    problem.operand[ONS_X] = (ons_operand){somewhere, dtype, {size * (int64_t)N, size}};
    problem.operand[ONS_Y] = problem.operand[ONS_X];
    ons_coalesce(&problem);
    const ons_machine machine = {threads, 1 << 20, 1 << 25, 8, NULL}; /* typical CPU caches */
    const ons_status status = ons_make_plan(&problem, method, &machine, &plan);
    const bool made = status == ONS_OK;
    reads = made ? ons_plan_reads(&problem, &plan) : 0;
    measured_seconds = made ? ons_measured_seconds(&problem, &machine, &plan) : 0;
    measured_copy_seconds = made ? ons_measured_copy_seconds(&problem, &machine, &plan) : 0;
    launch_seconds = made ? ons_launch_seconds(&problem, &plan) : 0;
    least_bytes = made ? (double)ons_least_bytes(&problem, &machine, &plan) : 0;
    return status;
}

int EXPORT(planned_method)(void) { return plan.method; }
const char *EXPORT(planned_reason)(void) { return plan.reason; }
const char *EXPORT(planned_measured)(void) { return plan.measured ? plan.measured : ""; }
const char *EXPORT(planned_compute)(void) { return ons_dtype_name(plan.compute); }

/* The numbers of the plan by their names in ons_plan, its reads and its times. `place` counts them
 * from 0. */
typedef struct {
    const char *name;
    double value;
} named_number;
#define NUMBER(name) {#name, (double)plan.name}
enum { NUMBERS = 17 };

static named_number planned(int place) {
    const named_number numbers[NUMBERS] = {
        NUMBER(rows),
        NUMBER(N),
        NUMBER(width),
        NUMBER(tile),
        NUMBER(bytes_moved),
        NUMBER(on_chip_bytes),
        NUMBER(threads),
        NUMBER(workspace_bytes),
        NUMBER(blocks_a_row),
        NUMBER(elements_a_thread),
        NUMBER(longest_row),
        NUMBER(copy_speed),
        {"reads", reads},
        {"measured_seconds", measured_seconds},
        {"measured_copy_seconds", measured_copy_seconds},
        {"launch_seconds", launch_seconds},
        {"least_bytes", least_bytes},
    };
    return numbers[place];
}

int EXPORT(planned_count)(void) { return NUMBERS; }
const char *EXPORT(planned_name)(int place) { return planned(place).name; }
double EXPORT(planned_number)(int place) { return planned(place).value; }

const char *EXPORT(dtype_name)(ons_dtype dtype) { return ons_dtype_name(dtype); }

int EXPORT(method_count)(void) { return ONS_METHOD_COUNT; }
const char *EXPORT(method_name)(int method) { return ons_methods[method].name; }
const char *EXPORT(method_summary)(int method) { return ons_methods[method].summary; }
int EXPORT(method_reads)(int method) { return ons_methods[method].reads; }
int EXPORT(method_writes)(int method) { return ons_methods[method].writes; }
int EXPORT(method_keeps)(int method) { return ons_methods[method].on_chip; }
int EXPORT(method_on)(int method, ons_device device) {
    return device == ONS_CPU ? ons_methods[method].on_cpu : ons_methods[method].on_cuda;
}
