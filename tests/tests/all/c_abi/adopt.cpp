// What PyTorch's class for pluggable allocators refuses, before and after gpumem_adopt_torch. Compiled twice, as pytorch.hpp says.
#include "pytorch.hpp"

#ifndef LIBRARY

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <typeinfo>
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

// A program may have its own: what is made for PyTorch's code to delete is made by it, too.
static const char MARK[16] = "by the program";

void *operator new(size_t size)
{
    char *at = static_cast<char *>(std::malloc(size + sizeof MARK));
    if (!at)
        throw std::bad_alloc();
    std::memcpy(at, MARK, sizeof MARK);
    return at + sizeof MARK;
}

void operator delete(void *ptr) noexcept
{
    if (!ptr)
        return;
    char *at = static_cast<char *>(ptr) - sizeof MARK;
    if (std::memcmp(at, MARK, sizeof MARK) != 0)
        std::abort();
    std::free(at);
}

void operator delete(void *ptr, size_t) noexcept
{
    operator delete(ptr);
}

static std::vector<void *> held(gpumem_pool_id id)
{
    uint64_t addrs[64];
    const int64_t count = gpumem_pool_held(0, id, addrs, 64);
    std::vector<void *> found;
    for (int64_t at = 0; at < count; ++at)
        found.push_back(reinterpret_cast<void *>(addrs[at]));
    return found;
}

// As PyTorch's trees of CUDA graphs do it.
static void checkpoints(const Makers *makers, CUDAAllocator *it)
{
    const size_t mib = 1 << 20;
    const gpumem_pool_id id = {7, 0};
    const auto in_pool = [&](size_t size) {
        gpumem_begin_allocate_to_pool(0, id, nullptr);
        void *ptr = makers->allocate(it, size);
        gpumem_end_allocate_to_pool(0, id);
        return ptr;
    };
    check(gpumem_pool_uses(0, id) == 0 && gpumem_pool_held(0, id, nullptr, 0) == -1, "there is no such pool");
    std::vector<void *> three = {in_pool(mib), in_pool(3 * mib), in_pool(100)};
    check(gpumem_pool_uses(0, id) == 3 && gpumem_pool_held(0, id, nullptr, 0) == 3, "it was begun three times");
    const std::shared_ptr<AllocatorState> state = it->getCheckpointState(0, {7, 0});
    check(state && state.use_count() == 1 && std::string(typeid(*state).name()).find("gpumem") != std::string::npos, "a state");
    check(dynamic_cast<void *>(state.get()) == state.get(), "it begins where it begins");
    std::weak_ptr<AllocatorState> more;
    {
        const std::shared_ptr<AllocatorState> second = it->getCheckpointState(0, {7, 0});
        more = second;
    }
    check(more.expired(), "a state goes with its last user");

    // The place of one that was given back has others now, and the other two are where they were.
    const auto give = [&](void *ptr) { DataPtr{{ptr, {ptr, makers->deleter(it)}}, {1, 0}}; };
    give(three[1]);
    std::vector<void *> before = {three[0], three[2], in_pool(2 * mib), in_pool(mib / 2)};
    std::sort(before.begin(), before.end());
    check(held(id) == before, "what is held");
    for (int round = 0; round < 2; ++round) {
        CheckpointDelta delta = it->setCheckpointPoolState(0, state);
        std::vector<void *> sorted = three, now;
        std::sort(sorted.begin(), sorted.end());
        for (const DataPtr &data : delta.dataptrs_allocd) {
            check(data.ptr.context.get() == data.ptr.data && data.device.type == 1 && data.device.index == 0, "a block's pointer");
            now.push_back(data.ptr.data);
        }
        check(delta.ptrs_freed == (round == 0 ? before : std::vector<void *>{}), "what was held before");
        check(now == sorted && held(id) == sorted, "what is held as it was");
        for (void *ptr : before)
            check(makers->knows(it, ptr) == (std::count(three.begin(), three.end(), ptr) == 1), "what PyTorch knows");
        // They go by their deleters.
    }
    check(held(id).empty() && !makers->knows(it, three[1]), "all was given back");
    void *again = makers->allocate(it, 3 * mib);
    check(again != three[1] && held(id).empty(), "what comes next is no pool's");
    give(again);

    uint64_t errors = gpumem_error_count();
    const CheckpointDelta none = it->setCheckpointPoolState(0, std::make_shared<AllocatorState>());
    check(none.ptrs_freed.empty() && none.dataptrs_allocd.empty() && gpumem_error_count() == errors + 1, "no state of ours");
    check(std::string(gpumem_last_error()).find("no checkpoint") != std::string::npos, "why");
    it->setCheckpointPoolState(0, nullptr);
    it->setCheckpointPoolState(1, state);
    check(gpumem_error_count() == errors + 3, "no state, and another device's");
    check(!it->getCheckpointState(0, {8, 0}), "no pool of that number");

    // A stream still uses what is to be held: it is waited for, unless a graph is captured.
    void *used = in_pool(3 * mib);
    gpumem_record_stream(used, reinterpret_cast<void *>(128));
    give(used);
    check(held(id).empty(), "it waits");
    it->setCheckpointPoolState(0, state);
    check(held(id).empty() && used == three[1], "and was waited for");
    const std::shared_ptr<AllocatorState> with_it = [&] {
        used = in_pool(3 * mib);
        return it->getCheckpointState(0, {7, 0});
    }();
    gpumem_record_stream(used, reinterpret_cast<void *>(128));
    give(used);
    void *stays = in_pool(mib);
    const gpumem_pool_id other = {9, 0};
    gpumem_begin_allocate_to_pool(0, other, nullptr);
    errors = gpumem_error_count();
    it->setCheckpointPoolState(0, with_it);
    check(gpumem_error_count() == errors + 1 && held(id) == std::vector<void *>{stays}, "where it cannot be waited nothing changes");
    check(makers->knows(it, stays), "and PyTorch knows what it has");
    gpumem_end_allocate_to_pool(0, other);
    gpumem_release_pool(0, other);
    *makers->careless = true;
    it->setCheckpointPoolState(0, with_it);
    *makers->careless = false;
    check(gpumem_error_count() == errors + 2 && held(id).empty() && !makers->knows(it, used), "another function knows no place");
    it->setCheckpointPoolState(0, with_it);
    check(held(id).empty() && !makers->knows(it, stays), "later it is done");
    for (int users = gpumem_pool_uses(0, id); users > 0; --users)
        gpumem_release_pool(0, id);
    errors = gpumem_error_count();
    it->setCheckpointPoolState(0, state);
    check(gpumem_error_count() == errors + 1, "its pool is gone");
}

// As tensors are recorded: our function passes on what it was called with, and what is thrown.
static void records(const Makers *makers, CUDAAllocator *it)
{
    for (int64_t id : {int64_t(0x43), int64_t(0), int64_t(0x1230)}) {
        const DataPtr block{{makers->allocate(it, 1 << 20), {nullptr, makers->deleter(it)}}, {1, 0}};
        makers->recorded->clear();
        it->recordStream(block, CUDAStream(id));
        check(*makers->recorded == std::vector<int64_t>{id}, "it is recorded once");
        makers->deleter(it)(block.ptr.data);
    }
    bool thrown = false;
    try {
        it->recordStream(DataPtr{{nullptr, {nullptr, makers->deleter(it)}}, {1, 0}}, CUDAStream(0x43));
    } catch (const std::runtime_error &) {
        thrown = true;
    }
    check(thrown, "what is thrown passes");
}

struct Sums {
    uint64_t reserved, ooms;
};

static Sums sums()
{
    gpumem_device_stats found{};
    found.size = sizeof found;
    check(gpumem_stats(0, &found) == 0, "figures");
    return {found.all.reserved_bytes.current, found.num_ooms};
}

// What PyTorch keeps for other processes goes back before more memory is taken, and before a request is refused.
static void given_back_in_time(const Makers *makers)
{
    gpumem_empty_cache(0);
    const auto take = [](size_t bytes) { return gpumem_torch_alloc(bytes, 0, nullptr); };
    *makers->collections = 0;
    void *block = take(size_t(3) << 30);
    const auto before = sums();
    const int collections = *makers->collections;
    check(collections == 1, "it is looked once for a request");
    makers->limbo->push_back(block);
    block = take(size_t(2) << 30);
    check(block && *makers->collections == collections + 1 && sums().reserved == before.reserved, "no more memory is taken");
    gpumem_torch_free(block, 0, 0, nullptr);
    block = take(1 << 20);
    gpumem_torch_free(block, 0, 0, nullptr);
    block = take(1 << 20);
    check(*makers->collections <= collections + 2, "what is in the cache is handed out without");
    // Half of the device is the limit, and most of that is kept.
    makers->limbo->push_back(take(size_t(3) << 30));
    void *next = take(size_t(3) << 30);
    check(next && sums().ooms == before.ooms, "nothing is refused that fits then");
    gpumem_torch_free(next, 0, 0, nullptr);
    gpumem_torch_free(block, 0, 0, nullptr);
    gpumem_empty_cache(0);
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
    bool refuses = false;
    try {
        other->getCheckpointState(0, {1, 0});
    } catch (const std::runtime_error &) {
        refuses = true;
    }
    check(refuses, "a pluggable one refuses");

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

#ifdef __x86_64__
    checkpoints(makers, ours);
#endif

    const uint64_t errors = gpumem_error_count();
    check(largest(ours, 0, 100) == 0 && gpumem_error_count() == errors + 1, "a device that is not there has nothing");

    *current = other;
    check(gpumem_adopt_torch() == 0 && largest(other, 5) == long(44 * mib), "another one in its place");
    given_back_in_time(makers);
    records(makers, other);
    delete ours;
    delete other;
    delete native;
    return failures;
}

#endif
