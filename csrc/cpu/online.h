/* online.h - the running (m, d) over a part of a row. `online` runs it over whole rows, and `split`
 * runs it over each block. */
#ifndef ONS_CPU_ONLINE_H
#define ONS_CPU_ONLINE_H

#include "strip/strip.h"

/* Adds elements begin to end of the strip's rows to the rows' states, tile by tile. */
void ons_online_statistics(ons_strip *strip, int64_t begin, int64_t end);

/* Stores y for elements begin to end, from the final states. For operations with one value a row it
 * stores the value if begin is 0. */
void ons_online_finish(ons_strip *strip, int64_t begin, int64_t end);

/* Both of them for whole rows. */
void ons_online(ons_strip *strip);

#endif
