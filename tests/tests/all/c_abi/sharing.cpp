// Memory that PyTorch's processes share. Compiled twice, as pytorch.hpp says; the program runs itself again as the other process.
#include "pytorch.hpp"

#ifndef LIBRARY

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <dlfcn.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

static const size_t mib = 1 << 20;

static void *of_cuda(const char *name)
{
    void *found = dlsym(dlopen("libcuda.so", RTLD_NOW), name);
    if (!found)
        std::abort();
    return found;
}

// As PyTorch has one, on every thread.
static void make_current()
{
    void *context = nullptr;
    int device = 0;
    const bool made = reinterpret_cast<int (*)(unsigned)>(of_cuda("cuInit"))(0) == 0
        && reinterpret_cast<int (*)(int *, int)>(of_cuda("cuDeviceGet"))(&device, 0) == 0
        && reinterpret_cast<int (*)(void **, int)>(of_cuda("cuDevicePrimaryCtxRetain"))(&context, device) == 0
        && reinterpret_cast<int (*)(void *)>(of_cuda("cuCtxSetCurrent"))(context) == 0;
    check(made, "a context");
}

static uint32_t word_at(uint64_t addr)
{
    static const auto copy = reinterpret_cast<int (*)(void *, uint64_t, size_t)>(of_cuda("cuMemcpyDtoH_v2"));
    uint32_t word = 0;
    check(copy(&word, addr, sizeof word) == 0, "a copy from the device");
    return word;
}

static void fill(uint64_t addr, uint32_t word, size_t bytes)
{
    static const auto set = reinterpret_cast<int (*)(uint64_t, unsigned, size_t, void *)>(of_cuda("cuMemsetD32Async"));
    check(set(addr, word, bytes / 4, nullptr) == 0, "the device's memory is filled");
}

static std::string hex(const std::string &bytes)
{
    std::string text;
    for (unsigned char byte : bytes)
        for (int digit : {byte >> 4, byte & 15})
            text += "0123456789abcdef"[digit];
    return text;
}

static std::string bytes_of(const std::string &hex)
{
    std::string bytes;
    for (size_t at = 0; at + 1 < hex.size(); at += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
    return bytes;
}

static bool refused(CUDAAllocator *it, const std::string &handle, const char *why)
{
    const bool none = !it->getIpcDevPtr(handle);
    const char *message = gpumem_last_error();
    const bool said = message && std::strstr(message, why);
    if (!said)
        std::printf("%s, not: %s\n", message ? message : "no error", why);
    return none && said;
}

// How many files of other processes are mapped.
static int mapped()
{
    std::ifstream maps("/proc/self/maps");
    int found = 0;
    for (std::string line; std::getline(maps, line);)
        found += line.find("fake-cuda") != std::string::npos;
    return found;
}

static int connected(const std::string &name)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const socklen_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    check(connect(socket, reinterpret_cast<sockaddr *>(&address), length) == 0, "a connection");
    return socket;
}

// Whether a process that has ended is said to have, whose child has its socket.
static bool left_behind(CUDAAllocator *it, std::string handle)
{
    handle.replace(2, 16, "fedcba9876543210");
    const std::string name = "gpumem-" + hex(handle.substr(2, 16));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const socklen_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    const pid_t parent = fork();
    if (parent == 0) {
        const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(listener, reinterpret_cast<sockaddr *>(&address), length) != 0 || listen(listener, 5) != 0)
            _exit(1);
        close(ends[1]);
        char nothing;
        // Until the pipe has no end to be written to.
        if (fork() == 0)
            _exit(read(ends[0], &nothing, 1) != 0);
        _exit(0);
    }
    int status = 1;
    waitpid(parent, &status, 0);
    const auto began = std::chrono::steady_clock::now();
    const bool said = status == 0 && refused(it, handle, "has ended");
    const bool soon = std::chrono::steady_clock::now() - began < std::chrono::seconds(10);
    close(ends[0]);
    close(ends[1]);
    return said && soon;
}

// What a process is told that asks one which answers so.
static bool lied_to(CUDAAllocator *it, const std::string &handle, const std::vector<uint64_t> &words, const char *why)
{
    std::string lie = handle;
    lie.replace(2, 16, "0123456789abcdef");
    const std::string name = "gpumem-" + hex(lie.substr(2, 16));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const socklen_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), length) != 0 || listen(listener, 5) != 0)
        return false;
    std::thread liar([&] {
        const int asking = accept(listener, nullptr, nullptr);
        char question[36];
        if (recv(asking, question, sizeof question, MSG_WAITALL) == sizeof question && !words.empty()) {
            std::string answer(1, 0);
            const uint32_t count = words[0];
            answer.append(reinterpret_cast<const char *>(&count), 4);
            answer.append(reinterpret_cast<const char *>(words.data() + 1), 8 * (words.size() - 1));
            send(asking, answer.data(), answer.size(), MSG_NOSIGNAL);
            // No descriptor comes with it.
            send(asking, "\0", 1, MSG_NOSIGNAL);
        }
        close(asking);
    });
    const bool refuses = refused(it, lie, why);
    liar.join();
    close(listener);
    return refuses;
}

// The other process: it reads the first and the last word of `bytes` from an offset on, writes others, and lets go of all.
static int other(CUDAAllocator *it, char **argv)
{
    const std::string handle = bytes_of(argv[2]);
    const uint64_t offset = std::stoull(argv[3]), bytes = std::stoull(argv[4]);
    const uint32_t word = std::stoul(argv[5]);
    if (word == 0)
        return refused(it, handle, argv[6]) ? 0 : 1;
    std::weak_ptr<void> gone;
    for (int round = 0; round < 2; ++round) {
        const std::shared_ptr<void> base = it->getIpcDevPtr(handle);
        if (!base) {
            std::printf("%s\n", gpumem_last_error());
            return 1;
        }
        gone = base;
        const std::shared_ptr<void> second = base;
        check(base.use_count() == 2, "it is counted");
        const uint64_t addr = reinterpret_cast<uint64_t>(base.get()) + offset;
        for (uint64_t at = 2 * mib; at < bytes; at += mib)
            check(word_at(addr + at - 4) == word + at / mib, "what is in the midst");
        for (uint64_t at : {addr, addr + bytes - 4}) {
            check(word_at(at) == word + round, "what is there");
            fill(at, word + round + 1, 4);
        }
    }
    check(gone.expired() && gpumem_error_count() == 0 && mapped() == 0, "it goes with the last user");
    // While a graph is captured nothing is waited for, and what is let go of stays until then.
    gpumem_begin_allocate_to_pool(0, {5, 0}, nullptr);
    it->getIpcDevPtr(handle);
    const bool chunks = handle[1] == 'g';
    check((mapped() > 0) == chunks, "it stays");
    gpumem_end_allocate_to_pool(0, {5, 0});
    check(gpumem_empty_cache(0) >= 0 && mapped() == 0, "and goes with the next release");
    gpumem_release_pool(0, {5, 0});
    return failures;
}

static int run(char **argv, const std::string &handle, uint64_t offset, uint64_t bytes, uint32_t word, const char *why = "")
{
    const pid_t child = vfork();
    const std::string text = hex(handle), at = std::to_string(offset), size = std::to_string(bytes), value = std::to_string(word);
    if (child == 0) {
        execl("/proc/self/exe", argv[0], argv[1], text.c_str(), at.c_str(), size.c_str(), value.c_str(), why, nullptr);
        _exit(9);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

// The same in a namespace of process numbers of its own, as a container has one: who shares has none there. True where none can be made.
static bool runs_apart(char **argv, const std::string &handle, uint64_t offset, uint64_t bytes, uint32_t word)
{
    const int forbidden = 77;
    const pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWPID) != 0)
            _exit(forbidden);
        _exit(run(argv, handle, offset, bytes, word) != 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == forbidden);
}

int main(int argc, char **argv)
{
    // More chunks than go in one message.
    setenv("GPUMEM_ALLOC_CONF", "max_chunk_mb:2", 1);
    void *pytorch = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    const Makers *makers = static_cast<const Makers *>(dlsym(pytorch, "makers"));
    auto *current = static_cast<std::atomic<CUDAAllocator *> *>(dlsym(pytorch, "_ZN3c104cuda20CUDACachingAllocator9allocatorE"));
    if (!makers || !current)
        return 1;
    CUDAAllocator *it = makers->pluggable();
    *current = it;
    check(gpumem_adopt_torch() == 0, "it is adopted");
    make_current();
    if (argc > 2)
        return other(it, argv);

    // One after another, so that what is asked for later is stitched from what lies between, and lies in the midst of chunks.
    std::vector<void *> small, held;
    for (int n = 0; n < 30; ++n)
        held.push_back(makers->allocate(it, (2 + n % 5) * mib + n * 4096));
    const auto give = [&](void *ptr) { DataPtr{{ptr, {ptr, makers->deleter(it)}}, {1, 0}}; };
    for (size_t n = 0; n < held.size(); n += 2) {
        give(held[n]);
        held[n] = nullptr;
    }
    std::vector<std::pair<void *, size_t>> blocks;
    for (size_t n = 1; n < held.size(); n += 8)
        blocks.push_back({held[n], (2 + n % 5) * mib});
    for (size_t size : {24 * mib, 300 * mib, 9 * mib, 300000 * 8 * size_t(1), size_t(1000)})
        blocks.push_back({makers->allocate(it, size), size});
    const gpumem_pool_id id = {3, 0};
    gpumem_begin_allocate_to_pool(0, id, nullptr);
    blocks.push_back({makers->allocate(it, 512), 512});
    blocks.push_back({makers->allocate(it, 3 * mib), 3 * mib});
    gpumem_end_allocate_to_pool(0, id);

    // Who says nothing keeps others waiting for a moment only.
    const std::string name = "gpumem-" + hex(it->shareIpcHandle(blocks[0].first).handle.substr(2, 16));
    std::vector<int> silent;
    for (int n = 0; n < 5; ++n)
        silent.push_back(connected(name));
    uint32_t word = 1000;
    int whole = 0, within = 0;
    for (const auto &[ptr, bytes] : blocks) {
        const uint64_t addr = reinterpret_cast<uint64_t>(ptr), words = bytes / 4 * 4;
        fill(addr, word, words);
        for (size_t at = 2 * mib; at < words; at += mib)
            fill(addr + at - 4, word + at / mib, 4);
        const ShareableHandle shared = it->shareIpcHandle(ptr);
        check(shared.handle.size() > 30 && shared.offset >= 0, "a handle");
        check(it->shareIpcHandle(ptr).handle == shared.handle, "it is the same again");
        check(run(argv, shared.handle, shared.offset, words, word) == 0, "another process has it");
        check(word_at(addr) == word + 2 && word_at(addr + words - 4) == word + 2, "what that wrote is here");
        if (ptr == blocks[0].first) {
            fill(addr, word, 4);
            fill(addr + words - 4, word, 4);
            check(runs_apart(argv, shared.handle, shared.offset, words, word), "a process with numbers of its own has it");
            check(word_at(addr) == word || word_at(addr) == word + 2, "and writes there");
        }
        check(words < 64 || word_at(addr + 32) == word, "and the rest is as it was");
        word += 1000;
        whole += shared.handle[1] == 'c';
        within += shared.handle[1] == 'g' && shared.offset > 0;
    }
    check(whole == 2 && within > 2, "pools are in one piece, and others begin within a chunk");

    for (int socket : silent)
        close(socket);
    const void *last = blocks[4].first;
    const std::string handle = it->shareIpcHandle(blocks[4].first).handle;
    give(blocks[4].first);
    check(run(argv, handle, 0, 4, 0, "given back before") == 0, "what was given back is not there any more");
    uint64_t errors = gpumem_error_count();
    check(it->shareIpcHandle(const_cast<void *>(last)).handle.empty() && gpumem_error_count() == errors + 1, "nor is it shared");
    std::string away = handle;
    away[5] ^= 1;
    check(refused(it, away, "has ended"), "a process that is not there");
    check(left_behind(it, handle), "a process that is gone, with a child that has its socket");
    check(refused(it, handle.substr(0, 20), "another version's"), "a handle that is cut");
    const int before = mapped();
    const uint64_t much = uint64_t(1) << 47;
    check(lied_to(it, handle, {}, "ended the connection"), "nothing is answered");
    check(lied_to(it, handle, {0, 0}, "no sense"), "there are no chunks");
    check(lied_to(it, handle, {1, 0, 1000}, "no sense"), "a chunk of an odd size");
    check(lied_to(it, handle, {2, 0, ~uint64_t(0) - 2 * mib + 1, 4 * mib}, "no sense"), "too much for a number");
    check(lied_to(it, handle, {3, 0, much, much, much}, "no sense"), "more than there can be");
    check(lied_to(it, handle, {1, 64 * mib, 2 * mib}, "no sense"), "it begins behind its chunks");
    check(lied_to(it, handle, {2, 0, 64 * mib, 64 * mib}, "open files"), "no chunk comes");
    check(mapped() == before, "nothing is left of it");
    check(refused(it, "", "expandable segments"), "none at all");
    check(refused(it, std::string("\2c1234"), "is none"), "one piece with too little of a name");
    check(refused(it, std::string("\2c") + std::string(64, 'x'), "cuIpcOpenMemHandle"), "one that the driver does not know");
    return failures;
}

#endif
