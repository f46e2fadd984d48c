/* invariant_plans.c - compares the plans of `invariant` on GPUs over numbers of rows, layouts and
 * masks. All of them must add up a row in the same order. The program needs no GPU. It
 * prints each difference, and ends with "passed" or "failed". */
#include "../../csrc/cuda/cuda.h"
#include "core_require.h"

#include <string.h>

/* What sets the order of a row's sum. Fields that do not are 0. */
typedef struct {
    int method, form, lanes, elements_a_thread, threads;
    int64_t tile;
} order;

/* The lanes that would share a staged row in fused_warp. They set the order of its sum, as in
 * cuda/gradient_staged.cu. */
static int lanes_of_sum(const ons_plan *plan) {
    static const int shapes[][2] = {
#define ONS_GRADIENT_SHAPE(lanes, chunks) {lanes, chunks},
#include "../../csrc/cuda/kernels.def"
#undef ONS_GRADIENT_SHAPE
    };
    int i = 0;
    while (shapes[i][0] * shapes[i][1] < plan->lanes * plan->elements_a_thread / 4) i++;
    return shapes[i][0];
}

/* The order of a plan's kernel. A sum of float in fixed point (cuda/statistic/over_lanes.cuh) has
 * no order. In `cluster` each warp adds up CLUSTER_CHUNKS chunks a lane, in cluster_few_rows too.
 */
static order order_of(const ons_problem *problem, const ons_plan *plan) {
    order found = {.method = (int)plan->method, .form = plan->form};
    const bool fixed_point = plan->compute == ONS_FLOAT32;
    switch ((ons_family)plan->family) {
    case ONS_FAMILY_fused_warp:
    case ONS_FAMILY_fused_warp_staged:
    case ONS_FAMILY_topk_warp:
    case ONS_FAMILY_topk_sorted:
        if (fixed_point) break;
        found.lanes = plan->lanes;
        found.elements_a_thread = plan->elements_a_thread;
        break;
    case ONS_FAMILY_fused_block:
        if (!fixed_point) found.elements_a_thread = plan->elements_a_thread;
        break;
    case ONS_FAMILY_cluster:
    case ONS_FAMILY_cluster_few_rows: break;
    case ONS_FAMILY_gradients_in_warp: found.lanes = plan->lanes; break;
    case ONS_FAMILY_gradients_in_warp_staged: found.lanes = lanes_of_sum(plan); break;
    case ONS_FAMILY_gradients_in_cluster:
        /* 16-bit rows that are all aligned have another number of chunks */
        found.lanes = plan->all_aligned;
        found.elements_a_thread = plan->elements_a_thread;
        break;
    case ONS_FAMILY_gradients_in_block:
    case ONS_FAMILY_topk_block:
    case ONS_FAMILY_topk_cluster: found.elements_a_thread = plan->elements_a_thread; break;
    case ONS_FAMILY_online:
        /* with one value a row, unaligned 16-bit rows have fewer chunks than the plan says */
        found.lanes = ons_operations[problem->operation].one_a_row && !plan->all_aligned;
        /* fallthrough */
    case ONS_FAMILY_split:
    case ONS_FAMILY_gradients_in_split:
    case ONS_FAMILY_topk_online:
    case ONS_FAMILY_topk_split:
    case ONS_FAMILY_topk_large:
        found.elements_a_thread = plan->elements_a_thread;
        found.threads = plan->threads;
        found.tile = plan->tile;
        break;
    default: found.tile = -1 - plan->family; /* it has no kernel for all rows */
    }
    return found;
}

typedef enum {
    ALIGNED,
    UNALIGNED,
    PITCHED,
    ALONG_THE_FIRST_AXIS,
    EVERY_SECOND,
    IN_THREE_DIMENSIONS,
    MASKED,
    MASKED_ROWS,
    SCALED,
    SCALED_BY_ROWS,
    LAYOUTS
} layout;
static const char *const layout_names[LAYOUTS] = {
    "aligned",         "unaligned", "pitched",     "along axis 0", "every second",
    "in 3 dimensions", "masked",    "masked rows", "scaled",       "scaled by rows"};

typedef struct {
    ons_operation operation;
    ons_dtype x, y;
    int64_t rows, N, k;
    bool sums;
} question;

static void put(ons_problem *problem, ons_role role, ons_dtype dtype, const question *asked,
                layout how, int64_t along) {
    ons_operand *operand = &problem->operand[role];
    const int64_t size = ons_dtype_size(dtype), outer = asked->rows;
    const int64_t pitch = how == UNALIGNED ? along + 5 : how == PITCHED ? along + 64 : along;
    operand->data = (char *)(intptr_t)(4096 + (how == UNALIGNED ? size : 0));
    operand->dtype = dtype;
    operand->stride[0] = how == EVERY_SECOND ? 2 * along * size : pitch * size;
    operand->stride[1] = how == EVERY_SECOND ? 2 * size : size;
    if (how == ALONG_THE_FIRST_AXIS) {
        operand->stride[0] = size;
        operand->stride[1] = outer * size;
    } else if (how == IN_THREE_DIMENSIONS) {
        operand->stride[2] = size;
        operand->stride[1] = (along + 1) * size;
        operand->stride[0] = 3 * operand->stride[1] + size;
    }
}

/* Whether the rows can be laid out so. */
static bool make_problem(const question *asked, layout how, ons_problem *problem) {
    const ons_operation_info *info = &ons_operations[asked->operation];
    memset(problem, 0, sizeof *problem);
    problem->operation = asked->operation;
    problem->device = ONS_CUDA;
    problem->dims = 2;
    problem->extent[0] = asked->rows;
    problem->extent[1] = asked->N;
    if (how == IN_THREE_DIMENSIONS) {
        if (asked->rows % 3) return false;
        problem->dims = 3;
        problem->extent[0] = asked->rows / 3;
        problem->extent[1] = 3;
        problem->extent[2] = asked->N;
    }
    problem->reduced_dims = 1;
    problem->scale_by = how == SCALED ? 0.5 : 1;
    problem->compute = ONS_FLOAT16;
    problem->k = asked->k;
    problem->sums = asked->sums;
    problem->sorted = true;
    put(problem, ONS_X, asked->x, asked, how, asked->N);
    if (info->gradient) put(problem, ONS_GRADIENT, asked->x, asked, how, asked->N);
    put(problem, ONS_Y, asked->y, asked, how, info->selects ? asked->k : asked->N);
    if (info->selects) put(problem, ONS_INDICES, ONS_INT64, asked, how, asked->k);
    if (info->one_a_row || asked->sums) problem->operand[ONS_Y].stride[problem->dims - 1] = 0;
    if (how == MASKED || how == MASKED_ROWS) {
        put(problem, ONS_WHERE, ONS_BOOL, asked, how, asked->N);
        if (how == MASKED_ROWS) problem->operand[ONS_WHERE].stride[1] = 0;
    }
    if (how == SCALED_BY_ROWS) {
        put(problem, ONS_SCALE, ONS_FLOAT64, asked, how, 1);
        problem->operand[ONS_SCALE].stride[1] = 0;
    }
    ons_coalesce(problem);
    return true;
}

static int64_t plans, differences[2];

/* Compares the plans of one method for all numbers of rows and layouts. Prints what differs in
 * `invariant`. */
static void compare(ons_method method, question asked, const ons_gpu *gpu) {
    static const int64_t rows[] = {1, 3, 64, 8192, 1000000};
    ons_machine machine = {.threads = 1, .gpu = gpu};
    const bool invariant = method == ONS_METHOD_INVARIANT;
    order expected = {0};
    for (int i = 0; i < 5 * LAYOUTS; i++) {
        const layout how = (layout)(i % LAYOUTS);
        ons_problem problem;
        ons_plan plan;
        asked.rows = rows[i / LAYOUTS];
        if (!make_problem(&asked, how, &problem)) continue;
        REQUIRE(ons_make_plan(&problem, method, &machine, &plan) == ONS_OK, "no plan");
        const order found = order_of(&problem, &plan);
        if (i == 0) expected = found;
        plans++;
        if (memcmp(&found, &expected, sizeof found) == 0) continue;
        if (differences[invariant]++ < 20 && invariant)
            printf("%s: %s %s -> %s%s, %lld x %lld, k = %lld, %s: %s, not %s\n", gpu->name,
                   ons_operations[asked.operation].name, ons_dtype_name(asked.x),
                   ons_dtype_name(asked.y), asked.sums ? " sums" : "", (long long)asked.rows,
                   (long long)asked.N, (long long)asked.k, layout_names[how],
                   ons_method_name(plan.method), ons_method_name((ons_method)expected.method));
    }
}

static void compare_types(question asked, const ons_gpu *gpu) {
    static const ons_dtype types[][2] = {
        {ONS_FLOAT32, ONS_FLOAT32},  {ONS_FLOAT16, ONS_FLOAT16},  {ONS_BFLOAT16, ONS_BFLOAT16},
        {ONS_FLOAT64, ONS_FLOAT64},  {ONS_BFLOAT16, ONS_FLOAT32}, {ONS_FLOAT32, ONS_FLOAT64},
        {ONS_FLOAT32, ONS_BFLOAT16},
    };
    for (int i = 0; i < 7; i++) {
        asked.x = types[i][0];
        asked.y = types[i][1];
        compare(ONS_METHOD_INVARIANT, asked, gpu);
        if (asked.N == 16384) compare(ONS_METHOD_AUTO, asked, gpu); /* to see what would differ */
    }
}

static void compare_operations(int64_t N, const ons_gpu *gpu) {
    static const int64_t ks[] = {1, 50, 500, 1024, 2000};
    for (int operation = 0; operation < ONS_OPERATION_COUNT; operation++) {
        const bool gradient = ons_operations[operation].gradient;
        question asked = {.operation = (ons_operation)operation, .N = N};
        if (operation <= ONS_LAST_ROW_OPERATION || gradient) compare_types(asked, gpu);
        if (gradient) {
            asked.sums = true;
            compare_types(asked, gpu);
        }
        if (operation == ONS_OPERATION_route) continue; /* its sums have no order */
        for (int i = 0; i < 5 && ons_operations[operation].selects && ks[i] <= N; i++) {
            asked.k = ks[i];
            compare_types(asked, gpu);
        }
    }
}

/* Whether ONS_METHOD_AUTO has the plan of `invariant` while the setting asks for it. */
static void check_setting(void) {
    const ons_machine machine = {.threads = 1, .gpu = ons_known_gpus};
    const question asked = {ONS_OPERATION_softmax, ONS_FLOAT32, ONS_FLOAT32, 1, 16384, 0, false};
    ons_problem problem;
    ons_plan by_name, by_setting, other;
    make_problem(&asked, ALIGNED, &problem);
    REQUIRE(!ons_batch_invariant() && !ons_set_batch_invariant(true) && ons_batch_invariant(),
            "the setting is not as it was set");
    REQUIRE(ons_make_plan(&problem, ONS_METHOD_AUTO, &machine, &by_setting) == ONS_OK, "no plan");
    REQUIRE(ons_set_batch_invariant(false), "the setting is not as it was set");
    REQUIRE(ons_make_plan(&problem, ONS_METHOD_INVARIANT, &machine, &by_name) == ONS_OK, "no plan");
    REQUIRE(ons_make_plan(&problem, ONS_METHOD_AUTO, &machine, &other) == ONS_OK, "no plan");
    REQUIRE(by_setting.method == by_name.method && other.method != by_name.method,
            "the setting does not count");
}

int main(void) {
    static const int64_t around[] = {8,      32,     64,     128,    256,    512,
                                     1024,   1536,   2048,   4096,   8192,   12288,
                                     16384,  32768,  50257,  65536,  128256, 131072,
                                     151936, 262144, 393216, 524288, 700000, 1 << 20};
    check_setting();
    for (const ons_gpu *known = ons_known_gpus; *known->name; known++)
        for (int fewer = 0; fewer < 2; fewer++) {
            ons_gpu gpu = *known; /* as a driver may describe it */
            if (fewer) gpu.cluster_blocks_any /= 2;
            for (size_t i = 0; i < sizeof around / sizeof *around; i++)
                for (int64_t N = around[i] - 1; N <= around[i] + 1; N++)
                    compare_operations(N, &gpu);
        }
    printf("%lld plans; %lld differ in auto\n", (long long)plans, (long long)differences[0]);
    REQUIRE(differences[0] > 0, "auto has one order too: nothing was compared");
    puts(differences[1] == 0 ? "passed" : "failed");
    return differences[1] != 0;
}
