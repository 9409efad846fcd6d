// Captures of graphs as PyTorch makes them. Compiled twice: with LIBRARY as what stands for libtorch_cuda.so, and as the program that has it.
#include <cstdint>
#include <functional>

#include "gpumem_alloc.h"

using Stream = void *;
using Filter = std::function<bool(Stream)>;

// What the driver does, found by the program.
struct Driver {
    int (*begin)(Stream, int);
    int (*end)(Stream, void **);
    int (*status)(Stream, int *);
    int (*synchronize)(Stream);
};

struct Graph {
    virtual ~Graph() = default;
    // Has what the graph asks for sent to its pool, and begins to capture from the current stream.
    virtual void route(gpumem_pool_id) = 0;
    virtual bool begin() = 0;
    virtual bool end() = 0;
};

#ifdef LIBRARY

static thread_local Stream current;
static thread_local bool external;
static Driver driver;
static int asked_for_nothing;

namespace {

class Captured : public Graph {
    gpumem_pool_id pool{};
    Stream stream = nullptr;
    bool alive = true, active = false, ended = false;

public:
    ~Captured() override
    {
        if (ended)
            gpumem_release_pool(0, pool);
        alive = false;
    }

    void route(gpumem_pool_id id) override
    {
        pool = id;
        stream = current;
        const Filter filter = [this](Stream asked) {
            asked_for_nothing += !alive;
            int status = 0;
            return driver.status(asked, &status) == 0 && status == 1 && active;
        };
        gpumem_begin_allocate_to_pool(0, pool, const_cast<Filter *>(&filter));
    }

    bool begin() override { return active = driver.begin(stream, 0) == 0; }

    bool end() override
    {
        void *graph = nullptr;
        if (driver.end(stream, &graph) != 0)
            return false;
        gpumem_end_allocate_to_pool(0, pool);
        return ended = true;
    }
};

}

namespace c10::cuda {

struct CUDAStream {
    int8_t type, device;
    int64_t id;
};

// Odd numbers are those of PyTorch's own.
CUDAStream getCurrentCUDAStream(signed char device)
{
    return {1, device, external ? reinterpret_cast<int64_t>(current) : 3};
}

}

extern "C" {

uint64_t aoti_torch_abi_version()
{
    return uint64_t(2) << 56 | uint64_t(11) << 48;
}

int aoti_torch_get_current_cuda_stream(int32_t, Stream *stream)
{
    *stream = current;
    return 0;
}

void use_stream(Stream stream)
{
    current = stream;
    external = false;
}

// As `torch.cuda.ExternalStream`, whose owner may destroy it at any time.
void use_external_stream(Stream stream)
{
    current = stream;
    external = true;
}

// Room for graphs is never used again: what looks at one that is gone is seen.
Graph *new_graph(const Driver *with)
{
    static char room[64][sizeof(Captured)] __attribute__((aligned(16)));
    static int made;
    driver = *with;
    return new (room[made++]) Captured;
}

int filters_asked_for_nothing()
{
    return asked_for_nothing;
}

// PyTorch's own, too, and of no capture.
void route_thread(gpumem_pool_id pool, void (*of_this_thread)())
{
    static thread_local char here;
    const Filter filter = [thread = &here, of_this_thread](Stream) { return of_this_thread && thread == &here; };
    gpumem_begin_allocate_to_pool(0, pool, const_cast<Filter *>(&filter));
}
}

#else

#include <cstring>
#include <thread>
#include <dlfcn.h>

#include "check.hpp"

static const size_t SIZE = 30 << 20;

static Driver driver;
static Graph *(*new_graph)(const Driver *);
static void (*use_stream)(Stream);

template <typename F> static void find(F &function, void *library, const char *name)
{
    function = reinterpret_cast<F>(dlsym(library, name));
    check(function, name);
}

static uint64_t reserved()
{
    struct gpumem_device_stats stats;
    std::memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    gpumem_stats(0, &stats);
    return stats.all.reserved_bytes.current;
}

static bool cache_is_empty()
{
    return gpumem_empty_cache(-1) >= 0 && reserved() == 0;
}

static void *request(Stream stream)
{
    void *memory = gpumem_torch_alloc(SIZE, 0, stream);
    check(memory, "memory");
    return memory;
}

static void give_back(void *memory, Stream stream)
{
    gpumem_free(memory, SIZE, 0, stream);
}

static Graph *begin(Stream stream, gpumem_pool_id pool)
{
    use_stream(stream);
    Graph *graph = new_graph(&driver);
    graph->route(pool);
    check(graph->begin(), "a capture begins");
    return graph;
}

// Waits for the stream that it captures, which must not be.
static void fail(Graph *graph, Stream stream)
{
    check(driver.synchronize(stream) != 0, "the capture fails");
    check(!graph->end(), "its end fails");
    graph->~Graph();
}

static void succeed(Graph *graph)
{
    check(graph->end(), "the capture succeeds");
}

static void fails_after_requests(Stream stream)
{
    Graph *graph = begin(stream, {1, 0});
    void *inside = request(stream);
    fail(graph, stream);
    void *outside = request(stream);
    check(outside != inside, "memory is not shared");
    give_back(outside, stream);
    check(gpumem_empty_cache(-1) == int64_t(SIZE), "the cache goes back");
    check(reserved() == SIZE, "what is in use stays");
    give_back(inside, stream);
    check(cache_is_empty(), "the failed capture's pool is gone");
}

static void fails_at_once(Stream stream)
{
    give_back(request(stream), stream);
    for (uint64_t pool = 2; pool < 5; pool++) {
        fail(begin(stream, {pool, 0}), stream);
        check(cache_is_empty(), "the cache goes back at once");
    }
    Graph *graph = begin(stream, {5, 0});
    give_back(request(stream), stream);
    fail(graph, stream);
    check(cache_is_empty(), "what the failed capture gave back goes, too");
    check(gpumem_compact(0) == 0 && gpumem_retire_stream(stream) == 0, "all is as if nothing had been captured");
}

static void fails_before_it_begins(Stream stream)
{
    use_stream(stream);
    Graph *graph = new_graph(&driver);
    graph->route({6, 0});
    graph->~Graph();
    check(cache_is_empty(), "a capture that never began is over");
}

static void is_made_again(Stream stream)
{
    const gpumem_pool_id pool = {0, 7};
    fail(begin(stream, pool), stream);
    Graph *graph = begin(stream, pool);
    void *inside = request(stream);
    give_back(inside, stream);
    succeed(graph);
    Graph *failed = begin(stream, pool);
    void *again = request(stream);
    check(again == inside, "the pool's memory serves the next capture");
    give_back(again, stream);
    fail(failed, stream);
    void *outside = request(stream);
    check(outside != inside, "and nobody else");
    give_back(outside, stream);
    check(gpumem_empty_cache(-1) == int64_t(SIZE) && reserved() == SIZE, "the graph keeps its memory");
    graph->~Graph();
    check(cache_is_empty(), "until it is gone");
}

static void fails_on_another_thread(Stream stream)
{
    std::thread([&] {
        Graph *graph = begin(stream, {8, 0});
        give_back(request(stream), stream);
        fail(graph, stream);
    }).join();
    give_back(request(stream), stream);
    check(gpumem_empty_cache(-1) == int64_t(SIZE), "the cache goes back whoever asks");
}

static void others_do_not_end_it(Stream stream, Stream other)
{
    const uint64_t errors = gpumem_error_count();
    void *before = request(other);
    use_stream(stream);
    Graph *graph = new_graph(&driver);
    graph->route({9, 0});
    const auto others = [&] {
        give_back(request(other), other);
        check(gpumem_empty_cache(-1) < 0, "nothing goes back while a graph is captured");
    };
    std::thread(others).join();
    check(graph->begin(), "the capture begins");
    std::thread(others).join();
    void *inside = request(stream);
    std::thread(others).join();
    others();
    give_back(inside, stream);
    succeed(graph);
    check(gpumem_error_count() == errors + 4, "nothing else was refused");
    void *outside = request(stream);
    check(outside != inside, "the capture's memory is its pool's");
    give_back(outside, stream);
    give_back(before, other);
    graph->~Graph();
}

// What is sent to a pool while no graph is captured goes on until it is ended.
static void is_no_capture(Stream stream, Stream other, void (*route_thread)(gpumem_pool_id, void (*)()))
{
    use_stream(stream);
    for (int which = 0; which < 3; which++) {
        const gpumem_pool_id pool = {0, 20 + uint64_t(which)};
        const Filter of_other = [other](Stream asked) { return asked == other; };
        if (which == 0)
            gpumem_begin_allocate_to_pool(0, pool, nullptr);
        if (which == 1)
            gpumem_begin_allocate_to_pool(0, pool, const_cast<Filter *>(&of_other));
        if (which == 2)
            route_thread(pool, [] {});
        void *inside = request(other);
        give_back(inside, other);
        std::thread([&] { give_back(request(stream), stream); }).join();
        check(gpumem_empty_cache(-1) < 0, "a graph is taken to be captured");
        check(request(other) == inside, "it goes on");
        give_back(inside, other);
        const uint64_t errors = gpumem_error_count();
        gpumem_end_allocate_to_pool(0, pool);
        gpumem_release_pool(0, pool);
        check(gpumem_error_count() == errors, "it ends once");
    }
}

// A stream that is not PyTorch's may be destroyed after its capture failed. Nothing is asked of it then: the driver would end the process.
static void loses_its_stream(Stream ends, Stream other, int (*destroy)(Stream), void (*use_external_stream)(Stream))
{
    use_external_stream(ends);
    Graph *graph = new_graph(&driver);
    graph->route({30, 0});
    check(graph->begin(), "a capture begins");
    void *inside = request(ends);
    fail(graph, ends);
    give_back(inside, ends);
    check(destroy(ends) == 0, "its stream is destroyed");
    for (int i = 0; i < 3; i++) {
        give_back(request(other), other);
        gpumem_empty_cache(-1);
    }
}

int main(int argc, char **argv)
{
    void *pytorch = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
    check(pytorch, "libtorch_cuda.so");
    find(new_graph, pytorch, "new_graph");
    find(use_stream, pytorch, "use_stream");
    void (*route_thread)(gpumem_pool_id, void (*)());
    find(route_thread, pytorch, "route_thread");
    int (*filters_asked_for_nothing)();
    find(filters_asked_for_nothing, pytorch, "filters_asked_for_nothing");
    give_back(request(nullptr), nullptr);
    check(cache_is_empty(), "the cache is empty");

    void *cuda = dlopen("libcuda.so", RTLD_NOW);
    int (*create)(Stream *, unsigned);
    find(create, cuda, "cuStreamCreate");
    find(driver.begin, cuda, "cuStreamBeginCapture_v2");
    find(driver.end, cuda, "cuStreamEndCapture");
    find(driver.status, cuda, "cuStreamIsCapturing");
    find(driver.synchronize, cuda, "cuStreamSynchronize");
    Stream stream = nullptr, other = nullptr;
    Stream ends = nullptr;
    check(create(&stream, 1) == 0 && create(&other, 1) == 0 && create(&ends, 1) == 0, "streams");

    fails_after_requests(stream);
    fails_at_once(stream);
    fails_before_it_begins(stream);
    is_made_again(stream);
    check(gpumem_error_count() == 0, "nothing is refused");
    others_do_not_end_it(stream, other);
    check(cache_is_empty(), "the last graph has gone");
    is_no_capture(stream, other, route_thread);
    check(cache_is_empty(), "the last pool has gone");
    fails_on_another_thread(stream);
    check(filters_asked_for_nothing() == 0, "nobody looks at a graph that is gone");
    int (*destroy)(Stream);
    find(destroy, cuda, "cuStreamDestroy_v2");
    void (*use_external_stream)(Stream);
    find(use_external_stream, pytorch, "use_external_stream");
    loses_its_stream(ends, other, destroy, use_external_stream);
    return failures;
}

#endif
