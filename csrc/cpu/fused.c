/* fused.c - the row is read from memory once and stays in the caches. The method finds the maximum,
 * then computes one exponential an element and adds them up, then finishes what it kept. Rows that
 * outgrow the caches give the same results, but slower. */
#include "online.h"

static void fused(ons_strip *strip) {
    const ons_primitives *primitives = strip->primitives;
    bool exponentials = ons_operations[strip->problem->operation].keeps == ONS_KEEP_EXPONENTIALS;
    int64_t N = strip->plan->N;
    do {
        ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
            ons_tile x = ons_strip_load_to_keep(strip, j, n);
            primitives->max(&strip->rows, ons_strip_kept(strip, j), x, n);
        }
    } while (ons_strip_anchor(strip));
    ons_strip_rescale(strip, true);

    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        ons_tile kept = ons_strip_kept(strip, j);
        strip->rows.next = ons_strip_next_strip(strip, j); /* fetch it while the core is busy */
        if (exponentials)
            primitives->exp_store_sum(&strip->rows, kept, kept, n);
        else
            primitives->sum_exp(&strip->rows, kept, n);
        ons_strip_end_tile(strip, j + n, N, false);
    }
    if (!strip->epilogue->finish) {
        ons_strip_store_values(strip);
        return;
    }
    strip->epilogue->end_rows(&strip->rows);
    ONS_FOR_EACH_TILE(strip, 0, N, j, n) {
        ons_tile kept = ons_strip_kept(strip, j);
        strip->epilogue->finish_kept(&strip->rows, ons_strip_result(strip, j), kept, n);
        ons_strip_store(strip, j, n);
    }
    if (strip->rows.past_caches) primitives->fence();
}

/* Batches pay from this number of rows on. With fewer rows, most of a batch is empty. */
enum { BATCHED_ROWS = 6 };

static void whole_rows(ons_strip *strip) {
    ons_run_of_rows run = ons_strip_as_run(strip);
    const ons_pipelines *pipelines = strip->pipelines;
    ons_dtype dtype = strip->problem->operand[ONS_Y].dtype;
    bool batched = run.N <= strip->kernels->longest_batched &&
                   (run.count >= BATCHED_ROWS || !pipelines->rows[dtype]);
    ons_run_rows_fn *run_rows = ons_has_short_rows(strip->plan) ? pipelines->short_rows
                                : batched                       ? pipelines->batches[dtype]
                                                                : pipelines->rows[dtype];
    if (run_rows(&run) && strip->epilogue->finish) ons_strip_exclude_from_nan(strip);
}

static void whole_columns(ons_strip *strip, int64_t begin, int64_t end) {
    ons_run_of_columns run = ons_strip_columns(strip, begin, end);
    const ons_pipelines *pipelines = strip->pipelines;
    bool nan =
        (ons_has_short_rows(strip->plan) ? pipelines->short_columns : pipelines->columns)(&run);
    for (int64_t i = begin; i < end && nan; i++) {
        ons_strip_at(strip, i);
        ons_strip_exclude_from_columns(strip);
    }
}

void ons_cpu_fused(const ons_job *job) {
    if (ons_operations[job->problem->operation].gradient)
        ons_for_each_strip(job, ons_online); /* the caches serve its second read */
    else if (job->plan->whole_columns)
        ons_for_each_range(job, whole_columns);
    else
        ons_for_each_strip(job, job->plan->whole_rows ? whole_rows : fused);
}
