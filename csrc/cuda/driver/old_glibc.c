/* old_glibc.c - what libstdc++ asks of glibc 2.32 and 2.35, so that the module of a wheel loads
 * with older ones: `make wheels` links it. The CUDA code takes the guards of static variables from
 * libstdc++ and throws no exception: nothing looks for an object by an address. */

char __libc_single_threaded = 0;

int _dl_find_object(void *address, void *found);
int _dl_find_object(void *address, void *found) {
    (void)address, (void)found;
    return -1; /* not found */
}
