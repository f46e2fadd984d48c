/* numpy_memory.c - memory for large results. It is in huge pages, and is kept for a while for the
 * next result of the same size. If a result lies in fresh memory, most of its time goes into the
 * work of the system, which provides the pages and clears them (time without out= in
 * benchmarks/results/cpu-*.json). The array owns its memory, as every NumPy array does. It has a
 * memory handler of its own (NEP 49). Kept memory is marked as free (MADV_FREE): the system may
 * take it when it needs memory, and its pages are zeros if they are used after that. */
#define _GNU_SOURCE
#include "views.h"

#ifdef __linux__

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

/* LARGE is the smallest size of such results. From 32 MiB on, where M_MMAP_THRESHOLD stops, malloc
 * asks the system for each block and gives it back. Its heap is not aligned for huge pages. KEPT is
 * the number of kept blocks. */
enum { LARGE = 1 << 23, HUGE_PAGE = 1 << 21, KEPT = 2 };
static const size_t LARGEST_KEPT = (size_t)1 << 28;

/* A header before the elements, which are aligned to a cache line. */
typedef struct {
    _Alignas(64) size_t bytes; /* of the mapping */
} block;

static struct {
    pthread_mutex_t lock;
    block *blocks[KEPT];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t mapping_of(size_t size) {
    return (size + sizeof(block) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

static block *take_kept(size_t bytes) {
    block *found = NULL;
    pthread_mutex_lock(&kept.lock);
    for (int i = 0; i < KEPT && !found; i++)
        if (kept.blocks[i] && kept.blocks[i]->bytes == bytes) {
            found = kept.blocks[i];
            kept.blocks[i] = NULL;
        }
    pthread_mutex_unlock(&kept.lock);
    return found;
}

/* A mapping that begins at a huge page. */
static block *map_new(size_t bytes) {
    char *all =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return NULL;
    size_t before = -(uintptr_t)all % HUGE_PAGE;
    if (before > 0) munmap(all, before);
    munmap(all + before + bytes, HUGE_PAGE - before);
    madvise(all + before, bytes,
            MADV_HUGEPAGE); /* if the system has no huge pages, it uses normal ones */
    block *made = (block *)(void *)(all + before);
    made->bytes = bytes;
    return made;
}

static void *allocate(void *Py_UNUSED(context), size_t size) {
    size_t bytes = mapping_of(size);
    if (bytes < size) return NULL;
    block *found = take_kept(bytes);
    if (!found) found = map_new(bytes);
    return found ? found + 1 : NULL;
}

static void *allocate_zeros(void *context, size_t count, size_t size) {
    if (size > 0 && count > SIZE_MAX / size) return NULL;
    void *memory = allocate(context, count * size);
    return memory ? memset(memory, 0, count * size) : NULL;
}

static void release(void *Py_UNUSED(context), void *memory, size_t Py_UNUSED(size)) {
    if (!memory) return;
    block *freed = (block *)memory - 1;
    if (freed->bytes <= LARGEST_KEPT) {
        /* all but the page with the length */
        madvise((char *)freed + HUGE_PAGE, freed->bytes - HUGE_PAGE, MADV_FREE);
        pthread_mutex_lock(&kept.lock);
        block *last = kept.blocks[KEPT - 1];
        memmove(kept.blocks + 1, kept.blocks, (KEPT - 1) * sizeof *kept.blocks);
        kept.blocks[0] = freed;
        pthread_mutex_unlock(&kept.lock);
        freed = last;
    }
    if (freed) munmap(freed, freed->bytes);
}

static void *reallocate(void *context, void *memory, size_t size) {
    void *moved = allocate(context, size);
    if (!moved || !memory) return moved;
    size_t had = ((block *)memory - 1)->bytes - sizeof(block);
    memcpy(moved, memory, had < size ? had : size);
    release(context, memory, had);
    return moved;
}

static PyDataMem_Handler handler = {
    "onsoftmax", 1, {NULL, allocate, allocate_zeros, reallocate, release}};

int ons_use_large_memory(int64_t bytes, PyObject **before) {
    *before = NULL;
    if (bytes < LARGE) return 0;
    PyObject *capsule = PyCapsule_New(&handler, "mem_handler", NULL);
    if (capsule) *before = PyDataMem_SetHandler(capsule);
    Py_XDECREF(capsule);
    return *before ? 0 : -1;
}

void ons_use_memory_as_before(PyObject *before) {
    if (!before) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* an exception of the allocation between the two
                                             * calls */
    PyObject *capsule = PyDataMem_SetHandler(before);
    if (!capsule) PyErr_WriteUnraisable(NULL);
    Py_XDECREF(capsule);
    Py_DECREF(before);
    PyErr_Restore(type, value, traceback);
}

#else

int ons_use_large_memory(int64_t Py_UNUSED(bytes), PyObject **before) {
    *before = NULL;
    return 0;
}

void ons_use_memory_as_before(PyObject *Py_UNUSED(before)) {}

#endif
