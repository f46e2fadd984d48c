/* machine.c - finds this machine's caches, for plans. The code asks the system once. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "../kernel/primitives.h"

/* Used where the system says nothing. */
static ons_machine here = {.core_cache = 1 << 20, .last_cache = 1 << 24, .last_cache_sharers = 8};

/* A second-level cache belongs to a core if at most two threads share it. */
static void add_cache(int level, int64_t bytes, int sharers) {
    if (level == 2 && sharers <= 2) {
        here.core_cache = bytes;
    } else {
        here.last_cache = bytes;
        here.last_cache_sharers = sharers;
    }
}

#ifdef __linux__
static bool read_line(int index, const char *name, char *text, int size) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "r");
    bool read = file && fgets(text, size, file);
    if (file) fclose(file);
    return read;
}

/* Number of processors in a list such as 0-7,16-23. */
static int count_of(const char *list) {
    int count = 0;
    for (char *end; *list >= '0' && *list <= '9'; list = *end == ',' ? end + 1 : end) {
        long first = strtol(list, &end, 10), last = first;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        count += (int)(last - first) + 1;
    }
    return count;
}

static bool ask_sys(void) {
    char level[16], size[32], sharers[512], *unit;
    bool found = false;
    for (int index = 0; read_line(index, "level", level, sizeof level); index++) {
        if (level[0] < '2' || !read_line(index, "size", size, sizeof size) ||
            !read_line(index, "shared_cpu_list", sharers, sizeof sharers))
            continue;
        int64_t bytes = strtoll(size, &unit, 10);
        bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
        if (bytes <= 0) continue;
        if (!found) here.core_cache = here.last_cache = 0;
        add_cache(level[0] - '0', bytes, count_of(sharers));
        found = true;
    }
    return found;
}
#endif

static void ask(void) {
    int64_t second = 0, third = 0;
#ifdef __linux__
    if (ask_sys()) return;
#endif
#if defined(__APPLE__)
    size_t size = sizeof second;
    if (sysctlbyname("hw.l2cachesize", &second, &size, NULL, 0) != 0) second = 0;
    size = sizeof third;
    if (sysctlbyname("hw.l3cachesize", &third, &size, NULL, 0) != 0) third = 0;
#elif defined(_SC_LEVEL3_CACHE_SIZE)
    second = sysconf(_SC_LEVEL2_CACHE_SIZE);
    third = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    if (second > 0) here.core_cache = second;
    if (third > 0) here.last_cache = third;
}

ons_machine ons_this_machine(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask);
    ons_machine machine = here;
    machine.threads = threads;
    return machine;
}
