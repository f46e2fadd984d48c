/* processors.c - the number of processors that this process may use: those in its affinity mask,
 * limited by its cgroup's quota. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../kernel/primitives.h"

#ifdef __linux__
/* The quota of one cgroup directory in processors, rounded up; 0 means no limit. */
static int quota_of(const char *directory) {
    char path[512], text[64];
    long long quota = -1, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", directory);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fgets(text, sizeof text, file) && sscanf(text, "%lld %lld", &quota, &period) != 2)
            quota = -1;
        fclose(file);
    } else { /* version 1 has two files */
        const char *const names[] = {"cpu.cfs_quota_us", "cpu.cfs_period_us"};
        long long *const values[] = {&quota, &period};
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%s", directory, names[i]);
            if (!(file = fopen(path, "r"))) return 0;
            if (fscanf(file, "%lld", values[i]) != 1) quota = -1;
            fclose(file);
        }
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

/* The smallest quota of this process's cgroup and the cgroups above it. */
static int quota(void) {
    char text[320], directory[400];
    int least = 0;
    FILE *file = fopen("/proc/self/cgroup", "r");
    if (!file) return 0;
    while (fgets(text, sizeof text, file)) {
        char *controllers = strchr(text, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        bool version_2 = controllers[1] == '\0';
        if (!version_2 && !strstr(controllers, "cpu")) continue;
        for (;;) {
            snprintf(directory, sizeof directory, "/sys/fs/cgroup%s%s", version_2 ? "" : "/cpu",
                     group);
            int here = quota_of(directory);
            if (here > 0 && (least == 0 || here < least)) least = here;
            char *slash = strrchr(group, '/');
            if (!slash || group[0] == '\0') break;
            *slash = '\0';
        }
    }
    fclose(file);
    return least;
}
#endif

int ons_processors(void) {
    int count = (int)sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
    int limit = quota();
    if (limit > 0 && limit < count) count = limit;
#endif
    return count > 0 ? count : 1;
}
