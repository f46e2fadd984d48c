/* online.h - the running (m, d) over part of a row, which `online` takes of all of it and `split`
 * of each block. */
#ifndef ONS_CPU_ONLINE_H
#define ONS_CPU_ONLINE_H

#include "strip/strip.h"

/* Takes elements begin to end of the strip's rows into their states, tile by tile. */
void ons_online_statistics(ons_strip *strip, int64_t begin, int64_t end);

/* y of elements begin to end, from the final states; or, with element 0, the value of each row. */
void ons_online_finish(ons_strip *strip, int64_t begin, int64_t end);

/* The statistics and the results of whole rows. */
void ons_online(ons_strip *strip);

#endif
