/* old_glibc.c - symbols of glibc 2.32 and 2.35 that libstdc++ needs. `make wheels` links this file,
 * so that the module loads with an older glibc. The CUDA code uses only libstdc++'s guards of
 * static variables and throws no exception, so nothing looks up an object by address. */

char __libc_single_threaded = 0;

int _dl_find_object(void *address, void *found);
int _dl_find_object(void *address, void *found) {
    (void)address, (void)found;
    return -1; /* not found */
}
