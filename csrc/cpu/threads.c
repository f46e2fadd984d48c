/* threads.c - a parallel for over an own pool of threads: started on first use, forgotten by a
 * forked child (which starts its own), left alone while another caller holds it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu.h"

static struct {
    pthread_mutex_t held; /* by the caller whose loop the pool runs */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake, finished;
    int started; /* threads of the pool */
    int wanted,
        running;   /* of this loop: threads that are to join, and that have not finished yet */
    uint64_t loop; /* counts loops, so that each thread joins each once */
    ons_body *body;
    void *context;
    int64_t count, grain;
    atomic_llong next;
} pool = {.held = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

static void take_pieces(int worker) {
    for (;;) {
        int64_t begin = atomic_fetch_add(&pool.next, pool.grain);
        if (begin >= pool.count) return;
        int64_t end = pool.count - begin < pool.grain ? pool.count : begin + pool.grain;
        pool.body(pool.context, worker, begin, end);
    }
}

static void *work(void *argument) {
    int worker = (int)(intptr_t)argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.loop == seen || worker > pool.wanted) {
            seen = pool.loop;
            pthread_cond_wait(&pool.wake, &pool.lock);
        }
        seen = pool.loop;
        pthread_mutex_unlock(&pool.lock);
        take_pieces(worker);
        pthread_mutex_lock(&pool.lock);
        if (--pool.running == 0) pthread_cond_signal(&pool.finished);
    }
    return NULL;
}

/* A child of fork has the pool's memory and none of its threads. */
static void forget(void) {
    pthread_mutex_init(&pool.held, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.finished, NULL);
    pool.started = pool.wanted = pool.running = 0;
    pool.loop = 0;
}

static void forget_when_forked(void) { pthread_atfork(NULL, NULL, forget); }

/* Has up to `threads` threads in the pool, fewer where the system gives no more. Needs the lock. */
static void start(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, forget_when_forked);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the threads of the program */
    while (pool.started < threads) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(intptr_t)(pool.started + 1)) != 0) break;
        pthread_detach(thread);
        pool.started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ons_parallel_for(int64_t count, int64_t grain, int threads, ons_body *body, void *context) {
    int64_t pieces = (count + grain - 1) / grain;
    int helpers = (int)(pieces < threads ? pieces : threads) - 1;
    if (helpers < 1 || pthread_mutex_trylock(&pool.held) != 0) {
        if (count > 0) body(context, 0, 0, count);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    start(helpers);
    pool.body = body;
    pool.context = context;
    pool.count = count;
    pool.grain = grain;
    atomic_store(&pool.next, 0);
    pool.wanted = pool.running = helpers < pool.started ? helpers : pool.started;
    pool.loop++;
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);

    take_pieces(0);

    pthread_mutex_lock(&pool.lock);
    while (pool.running > 0) pthread_cond_wait(&pool.finished, &pool.lock);
    pool.wanted = 0;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.held);
}

#ifdef __linux__
/* The processors that the quota of one cgroup directory allows: rounded up, 0 for no limit. */
static int quota_of(const char *directory) {
    char path[512], text[64];
    long long quota = -1, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", directory);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fgets(text, sizeof text, file) && sscanf(text, "%lld %lld", &quota, &period) != 2)
            quota = -1;
        fclose(file);
    } else { /* version 1 has a file for each */
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

/* The smallest quota of this process's cgroup and those above it. */
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
