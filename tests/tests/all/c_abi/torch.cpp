// What PyTorch sees of gpumem_torch_alloc and gpumem_torch_free. Compiled twice: with LIBRARY as what stands for libc10.so, and as the program that has it.
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

// Two bytes with a constructor, as PyTorch's.
struct Device {
    int8_t kind, index;
    Device(int8_t kind, int8_t index) : kind(kind), index(index) {}
};

}

// What the profiler was told last, and how often.
struct Told {
    int times;
    void *ptr;
    int64_t bytes;
    size_t allocated, reserved;
    int8_t kind, index;
};

#ifdef LIBRARY

extern "C" {
VISIBLE int errors_alive;
VISIBLE Told told, told_of_oom;
VISIBLE thread_local bool profiling;
VISIBLE void profile(bool on) { profiling = on; }
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

VISIBLE bool memoryProfilingEnabled()
{
    return profiling;
}

VISIBLE void reportMemoryUsageToProfiler(void *ptr, int64_t bytes, size_t allocated, size_t reserved, Device device)
{
    told = {told.times + 1, ptr, bytes, allocated, reserved, device.kind, device.index};
}

VISIBLE void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device device)
{
    told_of_oom = {told_of_oom.times + 1, nullptr, bytes, allocated, reserved, device.kind, device.index};
}

namespace detail {
VISIBLE void torchCheckFail(const char *, const char *, uint32_t, const char *message)
{
    throw std::runtime_error(message);
}
}

}

#else

#include <thread>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

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

// The profiler hears of what a thread that it looks at takes and gives back, and of nothing else.
static void profiled(void *pytorch)
{
    const Told *told = static_cast<Told *>(dlsym(pytorch, "told")), *oom = static_cast<Told *>(dlsym(pytorch, "told_of_oom"));
    auto profile = reinterpret_cast<void (*)(bool)>(dlsym(pytorch, "profile"));
    const auto is = [](const Told *one, int times, void *ptr, int64_t bytes) {
        return one->times == times && one->ptr == ptr && one->bytes == bytes && one->kind == 1 && one->index == 0;
    };
    out_of_memory();
    gpumem_torch_free(gpumem_torch_alloc(1 << 20, 0, nullptr), 1 << 20, 0, nullptr);
    check(told->times == 0 && oom->times == 0, "nobody is told who did not ask");

    profile(true);
    void *first = gpumem_torch_alloc(1 << 20, 0, nullptr);
    check(is(told, 1, first, 1 << 20) && told->allocated == 1 << 20 && told->reserved >= told->allocated, "of an allocation");
    void *second = gpumem_torch_alloc(100, 0, nullptr);
    check(is(told, 2, second, 512) && told->allocated == (1 << 20) + 512, "of one more, by its block");
    std::thread([&] { gpumem_torch_free(first, 1 << 20, 0, nullptr); }).join();
    check(told->times == 2, "not of another thread's");
    gpumem_torch_free(second, 100, 0, nullptr);
    check(is(told, 3, second, -512) && told->allocated == 0 && told->reserved > 0, "of a free");
    gpumem_torch_free(nullptr, 0, 0, nullptr);
    gpumem_torch_alloc(0, 0, nullptr);
    gpumem_torch_free(second, 100, 0, nullptr);
    check(told->times == 3, "of nothing where nothing is");
    out_of_memory();
    check(is(oom, 1, nullptr, int64_t(1) << 45) && oom->allocated == 0 && oom->reserved > 0, "of what there is no memory for");

    if (fork() == 0) {
        gpumem_torch_free(second, 1 << 20, 0, nullptr);
        _exit(told->times != 3);
    }
    int ended = -1;
    check(wait(&ended) > 0 && ended == 0, "of nothing in a forked child");
    profile(false);
}

static void at_exit(void *where)
{
    check(thrown(), static_cast<const char *>(where));
}

int main(int argc, char **argv)
{
    void *pytorch = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : nullptr;
    check(pytorch, "libc10.so");
    check(gpumem_set_torch_version("2.11.0+cu130") == 0, "a version that was tried");
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
    profiled(pytorch);
    check(alive && *alive == 0, "each is destroyed once");
    return failures;
}

#endif
