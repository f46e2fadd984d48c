/* topk/parts.cuh - the k first entries of the parts of long rows, and their states, in the
 * workspace: cuda/topk/online.cu writes them, cuda/topk/split.cu reads them. */
#ifndef ONS_TOPK_PARTS_CUH
#define ONS_TOPK_PARTS_CUH

#include "launch.cuh"

template <typename Real>
struct part_of_topk {
    entry<Real> *entries; /* k, those without an element none's */
    state<Real> *pair;

    /* Part `which` of `parts`, those of all rows. */
    __device__ part_of_topk(void *workspace, int64_t parts, int k, int64_t which)
        : entries((entry<Real> *)workspace + which * k),
          pair((state<Real> *)((entry<Real> *)workspace + parts * k) + which) {}
};

/* Rows in parts of the plan's tile. */
template <typename Rows>
void cut_rows(const ons_plan *plan, topk_arguments<Rows> *args) {
    args->part_length = plan->tile;
    args->parts = (plan->N + plan->tile - 1) / plan->tile;
}

/* Launches what gives them. */
ons_status topk_of_parts(const launch_request &request);

#endif
