/* part.c - some rows of a problem as a problem of their own. */
#include "part.h"

int64_t ons_offset_of_row(const ons_problem *problem, ons_role role, int64_t row) {
    int64_t offset = 0;
    for (int dim = problem->dims - problem->reduced_dims - 1; dim >= 0; dim--) {
        offset += row % problem->extent[dim] * problem->operand[role].stride[dim];
        row /= problem->extent[dim];
    }
    return offset;
}

int64_t ons_rows_together(const ons_problem *problem, int64_t row, int64_t end, int64_t most) {
    const int outer = problem->dims - problem->reduced_dims;
    const int64_t side_by_side = outer > 0 ? problem->extent[outer - 1] : 1;
    int64_t rows = side_by_side - row % side_by_side;
    if (rows > most) rows = most;
    return rows > end - row ? end - row : rows;
}

void ons_take_part(const ons_problem *problem, int64_t row, int64_t rows, ons_problem *part) {
    const int outer = problem->dims - problem->reduced_dims, first = outer > 0 ? outer - 1 : 0;
    *part = *problem;
    part->dims -= first; /* drops the dimensions before `first` */
    for (int dim = 0; dim < part->dims; dim++) part->extent[dim] = problem->extent[dim + first];
    if (outer > 0) part->extent[0] = rows;
    for (int role = 0; role < ONS_OPERANDS; role++) {
        ons_operand *operand = &part->operand[role];
        if (operand->data) operand->data += ons_offset_of_row(problem, (ons_role)role, row);
        for (int dim = 0; dim < part->dims; dim++)
            operand->stride[dim] = problem->operand[role].stride[dim + first];
    }
}

void ons_place_rows(ons_problem *part, ons_role role, void *data, ons_dtype dtype, int64_t n) {
    ons_operand *operand = &part->operand[role];
    int64_t stride = ons_dtype_size(dtype);
    operand->data = data;
    operand->dtype = dtype;
    if (part->dims > part->reduced_dims) operand->stride[0] = n * stride;
    for (int dim = part->dims - 1; dim >= part->dims - part->reduced_dims; dim--) {
        operand->stride[dim] = stride;
        stride *= part->extent[dim];
    }
}
