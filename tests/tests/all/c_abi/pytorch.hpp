// What stands for libtorch_cuda.so and libc10_cuda.so: with LIBRARY it is that, and else what programs have of it.
#ifndef PYTORCH_HPP
#define PYTORCH_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define VISIBLE __attribute__((visibility("default")))

using Id = std::pair<unsigned long long, unsigned long long>;

namespace c10 {

struct VISIBLE DataPtr {
    struct {
        void *data;
        std::unique_ptr<void, void (*)(void *)> context;
    } ptr;
    struct {
        int8_t type, index;
    } device;
};

namespace cuda {

class VISIBLE CUDAStream {
    int8_t type, index;
    int64_t number;

public:
    explicit CUDAStream(int64_t number) : type(1), index(0), number(number) {}
    int64_t id() const { return type == 1 && index == 0 ? number : -1; }
};

namespace CUDACachingAllocator {

struct VISIBLE AllocatorState {
    virtual ~AllocatorState() = default;
};

struct VISIBLE CheckpointDelta {
    std::vector<void *> ptrs_freed;
    std::vector<DataPtr> dataptrs_allocd;
};

struct VISIBLE ShareableHandle {
    ptrdiff_t offset;
    std::string handle;
};

struct VISIBLE CUDAAllocator {
    virtual ~CUDAAllocator() = default;
    virtual int before() { return 1; }
    virtual double getMemoryFraction(int8_t device) = 0;
    virtual void cacheInfo(int8_t device, size_t *largest) = 0;
    virtual std::shared_ptr<AllocatorState> getCheckpointState(int8_t device, Id id) = 0;
    virtual CheckpointDelta setCheckpointPoolState(int8_t device, std::shared_ptr<AllocatorState> state) = 0;
    virtual ShareableHandle shareIpcHandle(void *ptr) = 0;
    virtual std::shared_ptr<void> getIpcDevPtr(std::string handle) = 0;
    virtual void recordStream(const DataPtr &ptr, CUDAStream stream) = 0;
    virtual int after() { return 2; }
};

extern VISIBLE std::atomic<CUDAAllocator *> allocator;

}
}
}

using c10::DataPtr;
using c10::cuda::CUDAStream;
using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using c10::cuda::CUDACachingAllocator::ShareableHandle;

// What the program asks the library for.
struct CUstream_st;
struct VISIBLE Makers {
    CUDAAllocator *(*pluggable)();
    CUDAAllocator *(*native)();
    bool (*is_pluggable)(CUDAAllocator *);
    void *(*allocate)(CUDAAllocator *, size_t);
    // Whether it knows of a block.
    bool (*knows)(CUDAAllocator *, void *);
    void (*(*deleter)(CUDAAllocator *))(void *);
    // Whether it was made with another function than gpumem_torch_alloc.
    bool *careless;
    // Blocks that other processes had, and how often it was looked whether they still do: they do not.
    std::vector<void *> *limbo;
    int *collections;
    // What was recorded: the numbers of streams.
    std::vector<int64_t> *recorded;
    // Has a filter of its own passed on, as where a graph is captured.
    void (*route)(unsigned long long pool);
};

#ifdef LIBRARY

#include "gpumem_alloc.h"

namespace c10 {
namespace cuda {
namespace CUDACachingAllocator {
std::atomic<CUDAAllocator *> allocator;
}

VISIBLE int8_t current_device()
{
    return 0;
}
}
}

namespace torch {
namespace cuda {
namespace CUDAPluggableAllocator {

struct VISIBLE CUDAPluggableAllocator : CUDAAllocator {
    double getMemoryFraction(int8_t) override;
    void cacheInfo(int8_t, size_t *) override;
    std::shared_ptr<AllocatorState> getCheckpointState(int8_t, Id) override;
    CheckpointDelta setCheckpointPoolState(int8_t, std::shared_ptr<AllocatorState>) override;
    ShareableHandle shareIpcHandle(void *) override;
    std::shared_ptr<void> getIpcDevPtr(std::string) override;
    void recordStream(const DataPtr &, CUDAStream) override;
    void set_begin_allocate_to_pool(std::function<void(int, Id, std::function<bool(CUstream_st *)>)>);
    int after() override { return 3; }
    void *malloc(size_t size, int8_t device, CUstream_st *stream);
    virtual void raw_delete(void *ptr);
    virtual void (*raw_deleter() const)(void *);

    struct Known {
        size_t size;
        int8_t device;
        CUstream_st *stream;
    };
    std::unordered_map<void *, Known> known;
};

double CUDAPluggableAllocator::getMemoryFraction(int8_t)
{
    throw std::runtime_error("getMemoryFraction");
}

void CUDAPluggableAllocator::cacheInfo(int8_t, size_t *)
{
    throw std::runtime_error("cacheInfo");
}

std::shared_ptr<AllocatorState> CUDAPluggableAllocator::getCheckpointState(int8_t, Id)
{
    throw std::runtime_error("getCheckpointState");
}

CheckpointDelta CUDAPluggableAllocator::setCheckpointPoolState(int8_t, std::shared_ptr<AllocatorState>)
{
    throw std::runtime_error("setCheckpointPoolState");
}

ShareableHandle CUDAPluggableAllocator::shareIpcHandle(void *)
{
    throw std::runtime_error("shareIpcHandle");
}

std::shared_ptr<void> CUDAPluggableAllocator::getIpcDevPtr(std::string)
{
    throw std::runtime_error("getIpcDevPtr");
}

void CUDAPluggableAllocator::set_begin_allocate_to_pool(std::function<void(int, Id, std::function<bool(CUstream_st *)>)>) {}

static std::vector<int64_t> recorded;

// Its own streams have odd numbers, and others' numbers are their handles.
void CUDAPluggableAllocator::recordStream(const DataPtr &ptr, CUDAStream stream)
{
    recorded.push_back(stream.id());
    if (!ptr.ptr.data)
        throw std::runtime_error("recordStream");
    gpumem_record_stream(ptr.ptr.data, reinterpret_cast<void *>(stream.id() & 1 ? 512 : stream.id()));
}

static bool careless = false;

void *CUDAPluggableAllocator::malloc(size_t size, int8_t device, CUstream_st *stream)
{
    void *ptr = careless ? gpumem_alloc(size, device, stream) : gpumem_torch_alloc(size, device, stream);
    known.emplace(ptr, Known{size, device, stream});
    return ptr;
}

void CUDAPluggableAllocator::raw_delete(void *ptr)
{
    const Known block = known.at(ptr);
    known.erase(ptr);
    gpumem_torch_free(ptr, block.size, block.device, block.stream);
}

void (*CUDAPluggableAllocator::raw_deleter() const)(void *)
{
    return [](void *ptr) { static_cast<CUDAPluggableAllocator *>(c10::cuda::CUDACachingAllocator::allocator.load())->raw_delete(ptr); };
}

}
}
}

namespace torch {

static std::vector<void *> limbo;
static int collections = 0;

VISIBLE bool CudaIPCCollect()
{
    ++collections;
    const std::vector<void *> blocks = std::move(limbo);
    limbo.clear();
    for (void *block : blocks)
        gpumem_torch_free(block, 0, 0, nullptr);
    // Memory for its own use, which is more than there is in the cache, too.
    if (!blocks.empty())
        gpumem_torch_free(gpumem_torch_alloc(size_t(1) << 30, 0, nullptr), 0, 0, nullptr);
    return !blocks.empty();
}

}

namespace {

struct Native : CUDAAllocator {
    double getMemoryFraction(int8_t) override { return 0.25; }
    void cacheInfo(int8_t, size_t *largest) override { *largest = 7; }
    std::shared_ptr<AllocatorState> getCheckpointState(int8_t, Id) override { return std::make_shared<AllocatorState>(); }
    CheckpointDelta setCheckpointPoolState(int8_t, std::shared_ptr<AllocatorState>) override { return {}; }
    ShareableHandle shareIpcHandle(void *) override { return {}; }
    std::shared_ptr<void> getIpcDevPtr(std::string) override { return {}; }
    void recordStream(const DataPtr &, CUDAStream) override {}
};

using Pluggable = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

}

extern "C" VISIBLE const Makers makers;
const Makers makers = {
    []() -> CUDAAllocator * { return new Pluggable; },
    []() -> CUDAAllocator * { return new Native; },
    [](CUDAAllocator *it) { return dynamic_cast<Pluggable *>(it) != nullptr; },
    [](CUDAAllocator *it, size_t size) { return static_cast<Pluggable *>(it)->malloc(size, 0, reinterpret_cast<CUstream_st *>(64)); },
    [](CUDAAllocator *it, void *ptr) { return static_cast<Pluggable *>(it)->known.count(ptr) == 1; },
    [](CUDAAllocator *it) { return static_cast<Pluggable *>(it)->raw_deleter(); },
    &torch::cuda::CUDAPluggableAllocator::careless,
    &torch::limbo,
    &torch::collections,
    &torch::cuda::CUDAPluggableAllocator::recorded,
    [](unsigned long long pool) {
        std::function<bool(CUstream_st *)> filter = [](CUstream_st *) { return false; };
        gpumem_begin_allocate_to_pool(0, {pool, 0}, &filter);
    },
};

// A number of its version, of which it is a release.
extern "C" VISIBLE uint64_t aoti_torch_abi_version()
{
    const char *minor = std::getenv("FAKE_TORCH_MINOR");
    return uint64_t(2) << 56 | uint64_t(minor ? std::atoi(minor) : 11) << 48;
}

#endif

#endif
