/* thread_checks.c - three callers run loops of random length, pieces and threads at once, with and
 * without pauses. Each index runs once. No two threads are the same worker at once. The argument is
 * the number of processors for the pool. */
#define _DEFAULT_SOURCE /* usleep */
#include "cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CALLERS = 3, LOOPS = 6000, MAX_COUNT = 1000, THREADS = 8 };

static int processors;
int ons_processors(void) { return processors; }

typedef struct {
    int taken[MAX_COUNT];
    atomic_int at_work[THREADS];
    int threads;
} loop;

static void fail(const char *what) {
    puts(what);
    exit(1);
}

static void body(void *context, int worker, int64_t begin, int64_t end) {
    loop *at = context;
    if (worker < 0 || worker >= at->threads) fail("a worker that there is not");
    if (atomic_fetch_add(&at->at_work[worker], 1) != 0) fail("a worker twice at a time");
    for (int64_t i = begin; i < end; i++) at->taken[i]++;
    atomic_fetch_sub(&at->at_work[worker], 1);
}

static void *call(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < LOOPS; i++) {
        loop at = {.threads = 1 + rand_r(&seed) % THREADS};
        int count = rand_r(&seed) % MAX_COUNT;
        ons_parallel_for(count, 1 + rand_r(&seed) % 50, at.threads, body, &at);
        for (int j = 0; j < MAX_COUNT; j++)
            if (at.taken[j] != (j < count)) fail("an index not once");
        if (rand_r(&seed) % 50 == 0) usleep((unsigned)rand_r(&seed) % 200);
    }
    return NULL;
}

int main(int arguments, char **argument) {
    pthread_t caller[CALLERS];
    processors = arguments > 1 ? atoi(argument[1]) : 1;
    for (uintptr_t i = 0; i < CALLERS; i++) pthread_create(&caller[i], NULL, call, (void *)(i + 1));
    for (int i = 0; i < CALLERS; i++) pthread_join(caller[i], NULL);
    puts("passed");
    return 0;
}
