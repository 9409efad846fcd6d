// What PyTorch sees of gpumem_torch_alloc. Compiled twice: with LIBRARY as what stands for libc10.so, and as the program that has it.
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#define VISIBLE __attribute__((visibility("default")))

namespace c10 {

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

// As PyTorch's: made out of line, the rest inline.
class VISIBLE Error : public std::exception {
    std::string text;
    int *alive;

public:
    Error(SourceLocation, std::string);
    Error(const Error &) = delete;
    ~Error() override { --*alive; }
    const char *what() const noexcept override { return text.c_str(); }
};

class VISIBLE OutOfMemoryError : public Error {
    using Error::Error;
};

}

#ifdef LIBRARY

extern "C" {
VISIBLE int errors_alive;
}

namespace c10 {

Error::Error(SourceLocation where, std::string message)
    : text(std::move(message) + " at " + where.function + " in " + where.file + ':' + std::to_string(where.line)), alive(&errors_alive)
{
    ++*alive;
}

// What has the compiler put the type into this library.
VISIBLE void runs_out(const char *message)
{
    throw OutOfMemoryError({"", "", 1}, message);
}

namespace detail {
VISIBLE void torchCheckFail(const char *, const char *, uint32_t, const char *message)
{
    throw std::runtime_error(message);
}
}

}

#else

#include <cstdio>
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

// Whether one that does not fit is caught as PyTorch's own is, in its words.
static bool out_of_memory()
{
    const std::string words = "gpumem_torch_alloc: CUDA out of memory. out of GPU memory: 32.0 TiB requested";
    const std::string place = " at gpumem_torch_alloc in gpumem:0";
    try {
        gpumem_torch_alloc(size_t(1) << 45, 0, nullptr);
    } catch (const std::exception &error) {
        const std::string what = error.what();
        return dynamic_cast<const c10::OutOfMemoryError *>(&error) && what.find(words) == 0 &&
               what.rfind(place) == what.size() - place.size();
    }
    return false;
}

// Another thread's, as those of backward are.
static bool handed_over()
{
    std::exception_ptr caught;
    std::thread([&] {
        try {
            gpumem_torch_alloc(size_t(1) << 45, 0, nullptr);
        } catch (...) {
            caught = std::current_exception();
        }
    }).join();
    try {
        std::rethrow_exception(caught);
    } catch (const c10::OutOfMemoryError &) {
        return true;
    }
}

static void at_exit(void *where)
{
    check(thrown(), static_cast<const char *>(where));
}

int main(int argc, char **argv)
{
    void *pytorch = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : nullptr;
    check(pytorch, "libc10.so");
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

    const int *alive = pytorch ? static_cast<int *>(dlsym(pytorch, "errors_alive")) : nullptr;
    for (int n = 0; n < 100; n++)
        check(out_of_memory(), "it is PyTorch's own");
    check(handed_over(), "it is on another thread");
    check(alive && *alive == 0, "each is destroyed once");
    return failures;
}

#endif
