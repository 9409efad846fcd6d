// What is done by the layouts of PyTorch's classes where they are not known: by the version, or by what there is. Its first argument stands for
// libtorch_cuda.so, as pytorch.hpp says, the second for libc10.so, as torch.cpp says; the third is how they are odd.
#include "pytorch.hpp"

#include <cstring>
#include <typeinfo>
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.hpp"

#define CLASS "5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

static const char TABLE[] = "_ZTVN" CLASS "E";
static const char CACHE_INFO[] = "_ZN" CLASS "9cacheInfoEaPm";
static const char RECORD[] = "_ZN" CLASS "12recordStreamERKN3c107DataPtrENS3_4cuda10CUDAStreamE";
static const char GET[] = "_ZN" CLASS "18getCheckpointStateEaSt4pairIyyE";
static const char SET[] = "_ZN" CLASS
                          "22setCheckpointPoolStateEaSt10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE";
static const char SHARE[] = "_ZN" CLASS "14shareIpcHandleEPv";
static const char PASSES_FILTERS[] = "_ZN" CLASS "26set_begin_allocate_to_poolESt8functionIFviSt4pairIyyES3_IFbP11CUstream_stEEEE";
static const char OUT_OF_MEMORY_TABLE[] = "_ZTVN3c1016OutOfMemoryErrorE";

// The entry of a symbol of a library that is loaded, to be changed.
static ElfW(Sym) *symbol(void *library, const char *name)
{
    Dl_info found;
    ElfW(Sym) *entry = nullptr;
    void *at = dlsym(library, name);
    check(at && dladdr1(at, &found, reinterpret_cast<void **>(&entry), RTLD_DL_SYMENT) && entry, name);
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(entry) & ~(page - 1);
    check(mprotect(reinterpret_cast<void *>(begin), 2 * page, PROT_READ | PROT_WRITE) == 0, "mprotect");
    return entry;
}

// Nobody finds it any more.
static void hide(void *library, const char *name)
{
    symbol(library, name)->st_value = 0;
    check(!dlsym(library, name), "it is hidden");
}

// How often a function is in the table of an object, of so many words.
static int times(CUDAAllocator *it, const void *function, size_t words)
{
    const void *const *table = *reinterpret_cast<const void *const **>(it);
    int found = 0;
    for (size_t at = 0; at < words; ++at)
        found += table[at] == function;
    return found;
}

// What is thrown where there is no memory: its type's name.
static std::string thrown()
{
    try {
        gpumem_torch_alloc(size_t(1) << 45, 0, nullptr);
    } catch (const std::exception &error) {
        check(std::strstr(error.what(), "CUDA out of memory. "), "its words are the same");
        return typeid(error).name();
    }
    return "";
}

// What is thrown where a graph is to be captured.
static std::string route(const Makers *makers)
{
    try {
        makers->route(5);
    } catch (const std::exception &error) {
        return error.what();
    }
    gpumem_end_allocate_to_pool(0, {5, 0});
    gpumem_release_pool(0, {5, 0});
    return "";
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 1;
    void *pytorch = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL), *c10 = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    const Makers *makers = static_cast<const Makers *>(dlsym(pytorch, "makers"));
    auto *current = static_cast<std::atomic<CUDAAllocator *> *>(dlsym(pytorch, "_ZN3c104cuda20CUDACachingAllocator9allocatorE"));
    const int *told = static_cast<int *>(dlsym(c10, "told"));
    auto profile = reinterpret_cast<void (*)(bool)>(dlsym(c10, "profile"));
    if (!makers || !current || !told || !profile)
        return 1;
    const auto is = [&](const char *name) { return std::strcmp(argv[3], name) == 0; };
    const size_t words = symbol(pytorch, TABLE)->st_size / sizeof(void *) - 2;
    const void *const cache_info = dlsym(pytorch, CACHE_INFO), *const record = dlsym(pytorch, RECORD), *const get = dlsym(pytorch, GET),
                     *const share = dlsym(pytorch, SHARE);
    // Which of all that is left out: all of it, or all that is in the table, or one thing.
    bool unknown = is("untried"), no_table = false, no_record = false, no_checkpoints = false, no_filters = false, no_error = false;
    if (is("told")) {
        unknown = true;
        check(gpumem_set_torch_version("2.16.0.dev20261101+cu130") == 0, "it is noted");
        check(gpumem_set_torch_version("2.11.0") == 0, "the first one counts");
    }
    if (is("other")) {
        unknown = true;
        check(gpumem_set_torch_version("2.14.0") == 0, "the libraries' is another one");
    }
    if (is("odd size") || is("longer")) {
        no_table = true;
        symbol(pytorch, TABLE)->st_size += is("longer") ? sizeof(void *) : 1;
    }
    if (is("shorter")) {
        no_table = true;
        size_t at = 0;
        for (CUDAAllocator *it = makers->pluggable(); times(it, record, at + 1) == 0;)
            ++at;
        // The table has two words before its functions.
        symbol(pytorch, TABLE)->st_size = (2 + at) * sizeof(void *);
    }
    if (is("without recordStream")) {
        no_record = true;
        hide(pytorch, RECORD);
    }
    if (is("without checkpoints")) {
        no_checkpoints = true;
        hide(pytorch, SET);
    }
    if (is("other filters")) {
        no_filters = true;
        hide(pytorch, PASSES_FILTERS);
    }
    if (is("other error")) {
        no_error = true;
        symbol(c10, OUT_OF_MEMORY_TABLE)->st_size += sizeof(void *);
    }

    CUDAAllocator *it = makers->pluggable();
    *current = it;
    no_table |= unknown;
    check(gpumem_adopt_torch() == (no_table ? -1 : 0), "whether it is adopted");
    const auto refused = [] {
        const char *message = gpumem_last_error();
        return message && std::strstr(message, "GPUMEM_TRUST_TORCH=1");
    };
    if (unknown) {
        check(refused() && gpumem_error_count() == 1, "it is said why");
        check(gpumem_adopt_torch() == -1 && refused(), "each time");
    }
    check(times(it, cache_info, words) == no_table, "cacheInfo");
    check(times(it, record, words) == (no_table || no_record), "recordStream");
#ifdef __x86_64__
    check(times(it, get, words) == (no_table || no_checkpoints), "getCheckpointState");
    check(times(it, share, words) == no_table, "shareIpcHandle");
#endif

    const std::string routed = route(makers), words_of_refusal = no_filters ? "other filters" : "GPUMEM_TRUST_TORCH=1";
    check(routed.empty() == !(unknown || no_filters), "whether a graph is captured");
    check(routed.empty() || routed.find(words_of_refusal) != std::string::npos, "why not");
    const char *as_pytorch = "N3c1016OutOfMemoryErrorE", *plain = "St13runtime_error";
    check(thrown() == (unknown || no_error ? plain : as_pytorch), "what is thrown");

    // What takes no layout goes on.
    gpumem_begin_allocate_to_pool(0, {6, 0}, nullptr);
    gpumem_end_allocate_to_pool(0, {6, 0});
    check(gpumem_pool_uses(0, {6, 0}) == 1, "a pool of the thread");
    gpumem_release_pool(0, {6, 0});
    profile(true);
    const DataPtr block{{makers->allocate(it, 1 << 20), {nullptr, makers->deleter(it)}}, {1, 0}};
    check(*told == (unknown ? 0 : 1), "whether the profiler is told");
    profile(false);
    const uint64_t errors = gpumem_error_count();
    it->recordStream(block, CUDAStream(0x1230));
    makers->deleter(it)(block.ptr.data);
    gpumem_device_stats figures{};
    figures.size = sizeof figures;
    check(gpumem_stats(0, &figures) == 0 && figures.all.allocation.current == 0, "figures");
    check(figures.all.active.current == 1 && gpumem_error_count() == errors, "a stream is recorded");
    return failures;
}
