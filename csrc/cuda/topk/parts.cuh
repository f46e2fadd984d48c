/* topk/parts.cuh - the workspace of long rows: for each part of a row, its first k entries and its
 * state. topk/online.cu writes them, topk/split.cu reads them. */
#ifndef ONS_TOPK_PARTS_CUH
#define ONS_TOPK_PARTS_CUH

#include "launch.cuh"

template <typename Real>
struct part_of_topk {
    entry<Real> *entries; /* k entries; a short part's last entries are zero */
    state<Real> *pair;

    /* Part number `which` of all `parts` parts. */
    __device__ part_of_topk(void *workspace, int64_t parts, int k, int64_t which)
        : entries((entry<Real> *)workspace + which * k),
          pair((state<Real> *)((entry<Real> *)workspace + parts * k) + which) {}
};

/* Cuts rows into parts of plan->tile elements. */
template <typename Rows>
void cut_rows(const ons_plan *plan, topk_arguments<Rows> *args) {
    args->part_length = plan->tile;
    args->parts = (plan->N + plan->tile - 1) / plan->tile;
}

/* Launches the kernel that fills the parts. */
ons_status topk_of_parts(const launch_request &request);

#endif
