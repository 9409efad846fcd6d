// What PyTorch's class for pluggable allocators refuses, before and after gpumem_adopt_torch. Compiled twice: with LIBRARY as what stands for
// libtorch_cuda.so and libc10_cuda.so, and as the program that has it.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#define VISIBLE __attribute__((visibility("default")))

namespace c10 {
namespace cuda {
namespace CUDACachingAllocator {

struct VISIBLE CUDAAllocator {
    virtual ~CUDAAllocator() = default;
    virtual int before() { return 1; }
    virtual double getMemoryFraction(int8_t device) = 0;
    virtual void cacheInfo(int8_t device, size_t *largest) = 0;
    virtual int after() { return 2; }
};

extern VISIBLE std::atomic<CUDAAllocator *> allocator;

}
}
}

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

// What the program asks the library for.
struct VISIBLE Makers {
    CUDAAllocator *(*pluggable)();
    CUDAAllocator *(*native)();
    bool (*is_pluggable)(CUDAAllocator *);
};

#ifdef LIBRARY

namespace c10 {
namespace cuda {
namespace CUDACachingAllocator {
std::atomic<CUDAAllocator *> allocator;
}
}
}

namespace torch {
namespace cuda {
namespace CUDAPluggableAllocator {

struct VISIBLE CUDAPluggableAllocator : CUDAAllocator {
    double getMemoryFraction(int8_t) override;
    void cacheInfo(int8_t, size_t *) override;
    int after() override { return 3; }
};

double CUDAPluggableAllocator::getMemoryFraction(int8_t)
{
    throw std::runtime_error("getMemoryFraction");
}

void CUDAPluggableAllocator::cacheInfo(int8_t, size_t *)
{
    throw std::runtime_error("cacheInfo");
}

}
}
}

namespace {

struct Native : CUDAAllocator {
    double getMemoryFraction(int8_t) override { return 0.25; }
    void cacheInfo(int8_t, size_t *largest) override { *largest = 7; }
};

using Pluggable = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

}

extern "C" VISIBLE const Makers makers;
const Makers makers = {
    []() -> CUDAAllocator * { return new Pluggable; },
    []() -> CUDAAllocator * { return new Native; },
    [](CUDAAllocator *it) { return dynamic_cast<Pluggable *>(it) != nullptr; },
};

#else

#include <string>
#include <dlfcn.h>

#include "check.hpp"

// What an allocator says of a block's most bytes, where the caller guesses; -1 where it throws.
static long largest(CUDAAllocator *it, size_t guess, int8_t device = 0)
{
    try {
        it->cacheInfo(device, &guess);
        return static_cast<long>(guess);
    } catch (const std::runtime_error &) {
        return -1;
    }
}

static double fraction(CUDAAllocator *it)
{
    try {
        return it->getMemoryFraction(0);
    } catch (const std::runtime_error &) {
        return -1;
    }
}

static bool refused(const char *why)
{
    return gpumem_adopt_torch() == -1 && std::string(gpumem_last_error()).find(why) != std::string::npos;
}

int main(int argc, char **argv)
{
    const size_t mib = 1 << 20;
    check(refused("no PyTorch"), "without PyTorch there is nothing to adopt");
    void *pytorch = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : nullptr;
    const Makers *makers = static_cast<const Makers *>(dlsym(pytorch, "makers"));
    auto *current = static_cast<std::atomic<CUDAAllocator *> *>(dlsym(pytorch, "_ZN3c104cuda20CUDACachingAllocator9allocatorE"));
    if (!makers || !current)
        return 1;
    check(refused("no PyTorch"), "nothing is current yet");
    CUDAAllocator *native = makers->native(), *other = makers->pluggable(), *ours = makers->pluggable();
    *current = native;
    check(refused("not a pluggable one"), "PyTorch's own stays as it is");
    check(largest(native, 0) == 7 && fraction(native) == 0.25, "it answers itself");

    *current = ours;
    check(largest(ours, 0) == -1 && fraction(ours) == -1, "a pluggable one refuses");
    check(gpumem_adopt_torch() == 0 && gpumem_adopt_torch() == 0, "it is adopted, and is then");
    check(makers->is_pluggable(ours) && ours->before() == 1 && ours->after() == 3, "it is what it was");
    check(largest(other, 0) == -1 && fraction(other) == -1, "another one is not touched");
    check(fraction(ours) == 1, "nothing limits it");
    gpumem_memory_fraction(0.5, 0);
    check(fraction(ours) == 0.5, "it is limited");

    const long room = largest(ours, 0);
    check(room > 64 * long(mib), "what the driver has");
    check(largest(ours, 5) == 5, "there is no cache to be larger than a guess");
    void *held = gpumem_torch_alloc(4 * mib, 0, nullptr), *freed = gpumem_torch_alloc(40 * mib, 0, nullptr);
    gpumem_torch_free(freed, 40 * mib, 0, nullptr);
    check(largest(ours, 5) == long(40 * mib), "the largest block of the cache");
    check(largest(ours, 100 * mib) == long(100 * mib), "a guess that is larger");
    check(largest(ours, 0) > long(40 * mib) && largest(ours, 0) <= room - long(44 * mib), "what the limit leaves of the driver's");
    check(fraction(ours) == 0.5, "it is limited");
    gpumem_torch_free(held, 4 * mib, 0, nullptr);

    const uint64_t errors = gpumem_error_count();
    check(largest(ours, 0, 100) == 0 && gpumem_error_count() == errors + 1, "a device that is not there has nothing");

    *current = other;
    check(gpumem_adopt_torch() == 0 && largest(other, 5) == long(44 * mib), "another one in its place");
    delete ours;
    delete other;
    delete native;
    return failures;
}

#endif
