/* threads.c - a parallel for over its own pool of threads. The pool starts on first use. A forked
 * child forgets it and starts its own. While one caller holds the pool, other callers run alone.
 * Each thread begins with the same share of every loop, which it then finds in its own cache.
 * Afterwards it helps with the other shares. A caller does not wait for a thread that has not
 * joined: a thread that wakes late finds the loop closed and sleeps again. Waking a thread takes up
 * to a hundred times longer than being seen by a thread that is awake. So a thread without work
 * looks for work for a while before it sleeps. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "../../api/float_mode.h"
#include "../cpu.h"

/* How long a thread looks for another loop, and a caller for the end of the last pieces. */
enum { LOOK_NANOSECONDS = 50000 };

/* The most shares. Further threads begin with other threads' shares. */
enum { MAX_SHARES = 64 };

/* A thread of the pool; it lives as long as the process. Each thread has its own condition. With a
 * shared one, the caller might have to wait for threads that it signalled before. */
typedef struct thread {
    struct thread *next; /* the thread that was started after this one */
    int worker;          /* from 1; the caller is 0 */
    unsigned seen;       /* the last loop that it came to */
    atomic_bool asleep;
    pthread_mutex_t lock; /* for its sleep */
    pthread_cond_t wake;
} thread;

/* The share with which a thread of a loop begins, on a cache line of its own. */
typedef struct {
    _Alignas(64) atomic_llong next;
    int64_t end;
} share;

static struct {
    pthread_mutex_t held; /* by the caller whose loop the pool runs */
    thread *first, **last;
    int started;
    atomic_bool looks; /* whether every thread has a processor */

    atomic_uint loop;  /* number of the loop */
    atomic_int open;   /* the largest worker that may still join the loop; 0 after its end */
    atomic_int inside; /* threads that joined it, or are about to find it closed */

    pthread_mutex_t lock; /* for the caller's sleep until `inside` is 0 */
    pthread_cond_t finished;
    atomic_bool awaited;

    ons_body *body;
    void *context;
    int64_t grain;
    int shares;
    share share[MAX_SHARES];
} pool = {.held = PTHREAD_MUTEX_INITIALIZER,
          .last = &pool.first,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

static void rest(void) {
#if defined(__x86_64__)
    for (int i = 0; i < 4; i++) __builtin_ia32_pause();
#elif defined(__aarch64__)
    for (int i = 0; i < 4; i++) __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* The time until which a thread without work looks for some. */
static int64_t end_of_looking(void) {
    return atomic_load(&pool.looks) ? nanoseconds() + LOOK_NANOSECONDS : 0;
}

static void take_pieces(int worker) {
    for (int i = 0; i < pool.shares; i++) {
        share *from = &pool.share[(worker + i) % pool.shares];
        for (;;) {
            int64_t begin = atomic_fetch_add(&from->next, pool.grain);
            if (begin >= from->end) break;
            int64_t end = from->end - begin < pool.grain ? from->end : begin + pool.grain;
            pool.body(pool.context, worker, begin, end);
        }
    }
}

/* Enter first, then check that the loop is still open. A thread that closes it later will see this
 * one inside. */
static bool join(int worker) {
    if (worker > atomic_load(&pool.open)) return false;
    atomic_fetch_add(&pool.inside, 1);
    bool joins = worker <= atomic_load(&pool.open);
    if (joins) take_pieces(worker);
    if (atomic_fetch_sub(&pool.inside, 1) == 1 && atomic_load(&pool.awaited)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.finished);
        pthread_mutex_unlock(&pool.lock);
    }
    return joins;
}

/* Set `asleep` first, then check for another loop. A thread that begins one later will see this one
 * asleep. */
static void sleep_until_woken(thread *self) {
    pthread_mutex_lock(&self->lock);
    atomic_store(&self->asleep, true);
    while (atomic_load(&self->asleep) && atomic_load(&pool.loop) == self->seen)
        pthread_cond_wait(&self->wake, &self->lock);
    atomic_store(&self->asleep, false);
    pthread_mutex_unlock(&self->lock);
}

static void *work(void *argument) {
    thread *self = argument;
    int64_t until = 0;
    ons_float_mode_enter(); /* the thread that started this one may have had another mode */
    for (;;) {
        while (atomic_load(&pool.loop) == self->seen && nanoseconds() < until) rest();
        if (atomic_load(&pool.loop) == self->seen) sleep_until_woken(self);
        self->seen = atomic_load(&pool.loop);
        if (join(self->worker)) until = end_of_looking();
    }
    return NULL;
}

/* The child of a fork has the pool's memory, but none of its threads. */
static void forget(void) {
    pthread_mutex_init(&pool.held, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.finished, NULL);
    pool.first = NULL;
    pool.last = &pool.first;
    pool.started = 0;
    atomic_store(&pool.open, 0);
    atomic_store(&pool.inside, 0);
    atomic_store(&pool.awaited, false);
}

static void forget_when_forked(void) { pthread_atfork(NULL, NULL, forget); }

static bool start_one(void) {
    thread *one = calloc(1, sizeof *one);
    pthread_t handle;
    if (!one) return false;
    one->worker = pool.started + 1;
    one->seen = atomic_load(&pool.loop);
    pthread_mutex_init(&one->lock, NULL);
    pthread_cond_init(&one->wake, NULL);
    if (pthread_create(&handle, NULL, work, one) != 0) {
        free(one);
        return false;
    }
    pthread_detach(handle);
    *pool.last = one;
    pool.last = &one->next;
    pool.started++;
    return true;
}

/* Grows the pool to `threads` threads, or fewer if the system gives no more. */
static void start(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, forget_when_forked);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the threads of the program */
    while (pool.started < threads && start_one()) continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_store(&pool.looks, pool.started < ons_processors());
}

static void wake(int helpers) {
    for (thread *one = pool.first; one && one->worker <= helpers; one = one->next) {
        if (!atomic_load(&one->asleep)) continue;
        pthread_mutex_lock(&one->lock);
        pthread_cond_signal(&one->wake);
        pthread_mutex_unlock(&one->lock);
    }
}

static void wait_for_those_inside(void) {
    int64_t until = end_of_looking();
    while (atomic_load(&pool.inside) > 0 && nanoseconds() < until) rest();
    if (atomic_load(&pool.inside) == 0) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.awaited, true);
    while (atomic_load(&pool.inside) > 0) pthread_cond_wait(&pool.finished, &pool.lock);
    atomic_store(&pool.awaited, false);
    pthread_mutex_unlock(&pool.lock);
}

/* Cuts the loop into shares of whole pieces, as equal as possible. */
static void share_out(int64_t count, int64_t pieces, int threads) {
    pool.shares = threads < MAX_SHARES ? threads : MAX_SHARES;
    for (int i = 0; i < pool.shares; i++) {
        int64_t end = pieces * (i + 1) / pool.shares * pool.grain;
        atomic_store(&pool.share[i].next, pieces * i / pool.shares * pool.grain);
        pool.share[i].end = end < count ? end : count;
    }
}

void ons_parallel_for(int64_t count, int64_t grain, int threads, ons_body *body, void *context) {
    int64_t pieces = (count + grain - 1) / grain;
    int helpers = (int)(pieces < threads ? pieces : threads) - 1;
    if (helpers < 1 || pthread_mutex_trylock(&pool.held) != 0) {
        if (count > 0) body(context, 0, 0, count);
        return;
    }
    if (pool.started < helpers) start(helpers);
    if (helpers > pool.started) helpers = pool.started;
    pool.body = body;
    pool.context = context;
    pool.grain = grain;
    share_out(count, pieces, helpers + 1);
    atomic_store(&pool.open, helpers);
    atomic_fetch_add(&pool.loop, 1);
    wake(helpers);
    take_pieces(0);
    atomic_store(&pool.open, 0);
    wait_for_those_inside();
    pthread_mutex_unlock(&pool.held);
}
