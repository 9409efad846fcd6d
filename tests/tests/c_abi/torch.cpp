// What PyTorch sees of gpumem_torch_alloc. Compiled twice: with LIBRARY as what stands for libc10.so, and as the program that has it.
#include <cstdint>
#include <stdexcept>

#ifdef LIBRARY

namespace c10 { namespace detail {
__attribute__((visibility("default"))) void torchCheckFail(const char *, const char *, uint32_t, const char *message)
{
    throw std::runtime_error(message);
}
} }

#else

#include <cstdio>
#include <string>
#include <thread>
#include <dlfcn.h>
#include <pthread.h>

#include "gpumem_alloc.h"

static int failures = 0;

static void check(bool holds, const char *what)
{
    if (!holds) {
        std::printf("%s\n", what);
        failures++;
    }
}

// Whether a request that no device could hold is thrown, in its own words.
static bool thrown()
{
    try {
        gpumem_torch_alloc(SIZE_MAX / 4, 0, nullptr);
    } catch (const std::runtime_error &error) {
        return std::string(error.what()).find("gpumem_torch_alloc: a request of ") == 0;
    }
    return false;
}

static void at_exit(void *where)
{
    check(thrown(), static_cast<const char *>(where));
}

int main(int argc, char **argv)
{
    check(argc == 2 && dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL), "libc10.so");
    for (int n = 0; n < 100; n++)
        check(thrown(), "it throws");
    const char *message = gpumem_last_error();
    check(message && std::string(message).find("gpumem_torch_alloc: ") == 0, "the last error stays");
    check(gpumem_torch_alloc(0, 0, nullptr) == nullptr, "nothing is no error");

    pthread_key_t key;
    check(pthread_key_create(&key, at_exit) == 0, "pthread_key_create");
    char known[] = "a thread that had messages", fresh[] = "a thread that had none";
    std::thread([&] {
        pthread_setspecific(key, known);
        thrown();
    }).join();
    std::thread([&] { pthread_setspecific(key, fresh); }).join();
    check(gpumem_error_count() == 103, "all are counted");
    return failures;
}

#endif
