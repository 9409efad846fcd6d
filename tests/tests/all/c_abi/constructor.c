/* Compiled twice: with LIBRARY as a library whose constructor allocates, and as the program that loads it. */
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "gpumem_alloc.h"

#ifdef LIBRARY

__attribute__((constructor)) static void constructed(void)
{
    /* The other thread is at its first allocation by now. This one has the dynamic loader. */
    usleep(500000);
    gpumem_free(gpumem_alloc(1 << 20, 0, NULL), 1 << 20, 0, NULL);
}

#else

static void *first(void *nothing)
{
    usleep(200000);
    gpumem_free(gpumem_alloc(1 << 20, 0, NULL), 1 << 20, 0, NULL);
    return nothing;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc != 2 || pthread_create(&thread, NULL, first, NULL) != 0)
        return 1;
    /* Ends the program if they wait for each other. */
    alarm(20);
    if (dlopen(argv[1], RTLD_NOW) == NULL)
        return 2;
    pthread_join(thread, NULL);
    return gpumem_error_count() != 0;
}

#endif
