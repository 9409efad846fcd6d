// What the C++ programs beside this file are counted by.
#include <cstdio>

#include "gpumem_alloc.h"

static int failures = 0;

static void check(bool holds, const char *what)
{
    if (!holds) {
        const char *message = gpumem_last_error();
        std::printf("%s (%s)\n", what, message ? message : "no error");
        failures++;
    }
}
