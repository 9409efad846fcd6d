/*
 * gpumem_alloc.h: the caching GPU memory allocator of gpumem for C, C++, PyTorch, CuPy and RMM.
 *
 * Build the library with
 *
 *     cargo build --profile embed -p gpumem-alloc-c        (target/embed/libgpumem_alloc.so)
 *
 * and not with --release: that profile ends the program on a bug of ours instead of returning an error. The library does not
 * link CUDA; it loads libcuda.so at the first allocation. Linux only. The Python package in src/python uses it for PyTorch, CuPy and RMM.
 *
 * Devices. One allocator per device, made at the first allocation on it, or when a history of it or a pool on it is begun, and there
 * until the process ends. Device numbers are those of CUDA in this process (CUDA_VISIBLE_DEVICES renumbers), at most 128 of them. It
 * works in the device's primary context, which the CUDA runtime, PyTorch and CuPy use too, and leaves the calling thread's current
 * context and device as they were. Where CUDA does not put them back that is told as an error is, although the call succeeds.
 * Devices of one process reach each other's memory where the hardware can, so that copies from one to another and kernels work as with
 * cudaMalloc and peer access: new memory takes 27 us a chunk (of up to 64 MiB) longer for each further device. Where it cannot, a line on
 * stderr says so when the second device is opened: CUDA refuses copies there that do not name the devices, as PyTorch's do not, unless
 * GPUMEM_ALLOC_CONF=segments:plain.
 *
 * Threads. Every function may be called from any thread at any time, but not from a signal handler, which may have interrupted one of
 * them. Memory may be freed by another thread than the one that allocated it. A thread that is cancelled (pthread_cancel; deferred, as
 * is usual) leaves these functions first. In a thread's last destructors, those that run after the library's own, failures are counted
 * but have no message, and there are no scopes. In handlers of exit() gpumem_last_error() may be NULL, too: the thread's data is gone. A thread
 * whose first call in here is made in a destructor of pthread_key_create leaves some hundred bytes behind, a thousand with a history, and
 * so it does one of the 4,096 places of threads if that names the per-thread default stream. The first allocation on a device needs
 * 40 KiB of stack beside what CUDA does; 32 KiB are enough for everything else. Names of C++ functions need a MiB: with less left they
 * are as compilers write them.
 *
 * Streams are CUstream or cudaStream_t handles; NULL and 1 are the legacy default stream. 2 is the per-thread default stream of the
 * calling thread, on the device of the call; 4,096 threads at a time have one here, and a thread's is retired when it ends. Other
 * threads learn that it is done from the legacy default stream, which is when all of them are. A program that is compiled for per-thread
 * default streams (CUDA_API_PER_THREAD_DEFAULT_STREAM), where NULL means this one to CUDA, passes cudaStreamPerThread here. Memory
 * belongs to the stream it was allocated for, and is reused on that stream at once when it is freed: what the stream does next is queued
 * behind. Another stream gets it only after the allocator has waited for the device: when memory has run out, before a call fails, when
 * the cache is given back, and when much waits for that. So memory may be freed while another stream still uses it, if the stream it was
 * allocated for waits for that one before more is allocated there; or say so before the free (gpumem_record_stream).
 * GPUMEM_ALLOC_CONF=cross_stream_reuse:on has other streams get it sooner: once all is done that was queued on any stream (CUDA 12.5 or
 * newer). It takes less memory where several streams take turns, and breaks programs that wait after the free, as above; and a look at
 * how far the device is ends the capture of a graph that was not begun by gpumem_begin_allocate_to_pool.
 *
 * Streams may be destroyed without a word, when what they have queued is done. CUDA crashes on the handle of a stream that is gone (seen
 * on an H100 with driver 580): none is used after the call that it was passed to, but those of streams that always live, the default ones
 * and PyTorch's own. That of a gpumem_free is not used in the call, either. A stream that uses memory by gpumem_record_stream is waited
 * for once its handle is passed again, by gpumem_record_stream or an allocation, if CUDA says that it is the same stream (CUDA 12.0 or
 * newer), and else by a wait for the device. 4,096 streams in each pool and outside (60,000 in all pools), and 1,024 pools, are kept
 * apart. Where there is no room for one more the device is waited for, unless a graph is captured, and streams of which nothing is held
 * are forgotten; if there is none, the call fails, a free too.
 *
 * Errors. No function ends the process, unless the host has no memory left, or lets an exception out, except gpumem_torch_alloc, and
 * gpumem_begin_allocate_to_pool where PyTorch's version was not tried, which throw PyTorch's own. A call that failed has changed nothing,
 * but for these: an allocation that there is no memory for may have waited for the device and given the cache back to the driver before it
 * failed, unless it is larger than what the device or the budget has beside what is held; gpumem_empty_cache and gpumem_compact keep what they did before the error, and these, gpumem_record_history and gpumem_stop_history go on
 * with the other devices if they are for all (-1); so does gpumem_retire_stream; and the limit that gpumem_memory_fraction was told holds
 * where the driver does not take the cache back. gpumem_last_error() has the message; the first of each kind is also printed to stderr, but
 * in a forked child and at the exit. gpumem_error_count() tells whether anything went wrong on threads that are not yours.
 *
 * Fork. CUDA does not survive it: in a child of a process that allocated, or tried to, every function that has to do with a device
 * fails, and frees are free of effect. That goes for children of _Fork() and of clone() without CLONE_VM, too (Linux 4.14), but as long
 * as one of these lives the dashboard shows their parent as running.
 *
 * Exit. Memory goes back with the process. Handlers of exit() run in reverse order, those that were there at the first allocation
 * last: once they run gpumem_free does nothing on the thread that runs them, whatever is left of CUDA, and a monitor of GPUMEM_ALLOC_CONF
 * has ended. In those that were added later it frees, and other threads go on as before.
 *
 * Configuration. The environment variable GPUMEM_ALLOC_CONF, read when a device's allocator is made, in the syntax and with the
 * options of PYTORCH_CUDA_ALLOC_CONF and some more; `gpumem-tui replay --conf help` lists them. What is wrong with it is said on
 * stderr once, and the defaults hold; gpumem_conf_error() tells before. What of it has no effect is said there, too, once. What the
 * library writes, there or into files, raises no signal, and a reader of stderr that does not read is waited for no longer than 100 ms.
 *
 * The dashboard (gpumem-tui) shows everything in here while it runs. GPUMEM_JOB names the job there. What it reads takes 9.7 MiB of
 * /dev/shm for each device (less where that is more than a sixteenth of it), also after the program has ended, until another one begins:
 * that leaves the newest 16 of the last day, in at most a quarter of the file system, and takes their room if it finds none. GPUMEM_DIR names a directory in another tmpfs,
 * GPUMEM_ALLOC_CONF=publish:off takes none. A program that closes all its descriptors (daemons do) is shown as ended from then on: let
 * it do so before its first allocation.
 */
#ifndef GPUMEM_ALLOC_H
#define GPUMEM_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory ---- */

/*
 * At least `size` bytes on a device, for use on a stream, aligned to 256. NULL with a message if that fails; NULL without one if
 * size is 0. A negative size is a very large one, and an error. The contents are whatever the memory held before.
 */
void *gpumem_alloc(size_t size, int device, void *stream);

/*
 * Gives memory back. `ptr` is what an allocation here returned, or NULL (nothing happens); `size` is not looked at. `device` is the
 * one it was allocated on. `stream` may have work queued that uses it, and may be gone by now: if it is another one than it was allocated for,
 * the memory is reused after that work. A pointer that is foreign, freed before, or of another device is an error and changes nothing.
 */
void gpumem_free(void *ptr, size_t size, int device, void *stream);

/*
 * Notes that work on another stream uses the memory: once freed it is not reused before that work is done. It may be a stream of another
 * device, but for a default stream, which is taken to be that of the memory's device. A `ptr` of NULL is fine.
 */
void gpumem_record_stream(void *ptr, void *stream);

/*
 * Says that a stream is about to be destroyed, and gives what it has to all others: to be called after the last work was queued on it,
 * before cuStreamDestroy or cudaStreamDestroy. Not needed; it saves memory where streams come and go. No other stream may use what is free
 * on it, or what is in use when that is freed, unless it was recorded. No work is waited for, only a thread that is just asking about the
 * stream. What is free on it is anybody's once its work is done, and so is what is in use when it is freed; a gpumem_free of that may name
 * the stream or another one. From then on its
 * handle means another stream, which CUDA may make; but in a gpumem_free of what was allocated for the stream that ended it means that one
 * until one of that handle was used here (an allocation, gpumem_record_stream): who uses such memory on the new stream says so first.
 * A stream that is not known here is fine. 0; -1 on errors: for a default stream, and then nothing changes, and while a graph is captured
 * on a device. That device goes on with the stream, and the others, where there are some, are done with it: call this again after the
 * capture, and destroy the stream then.
 */
int gpumem_retire_stream(void *stream);

/* Gives unused memory of a device, or of all (-1), back to the driver, after waiting for the device. The bytes; -1 on errors. */
int64_t gpumem_empty_cache(int device);

/*
 * Makes the cache of a device, or of all (-1), compact: what is free becomes few large blocks. Segments of which nothing is used go back
 * to the driver; free chunks of virtual segments (segments:virtual) are mapped side by side and stay, those of stitched ones go back.
 * What is in use keeps its address and contents. The device is waited for only if queued work may use free memory. The bytes that went
 * back; -1 on errors.
 */
int64_t gpumem_compact(int device);

/* ---- PyTorch: torch.cuda.memory.CUDAPluggableAllocator (src/python/gpumem/_torch_pluggable.py) ---- */

/*
 * Says which version of PyTorch this is, by torch.__version__: to be called before anything else here. What is said first counts. How
 * PyTorch's C++ classes lie in memory is known of releases of 2.6 and of 2.11 to 2.15. Others are not entered by it: neither development
 * versions, nor those whose libraries say another number (from 2.8 on they say one), nor where neither says any. It is said once on stderr
 * that then gpumem_adopt_torch fails, gpumem_begin_allocate_to_pool throws a RuntimeError if it is called with a filter (CUDA graphs,
 * torch.cuda.use_mem_pool), torch.OutOfMemoryError is a RuntimeError, too, and the profiler is told of nothing. What needs no layout goes
 * on: memory, streams, figures, pools of the calling thread. The environment variable GPUMEM_TRUST_TORCH=1 has any version taken for one
 * that was tried. 0; -1 for NULL.
 */
int gpumem_set_torch_version(const char *version);

/*
 * gpumem_alloc for PyTorch, which does not look for NULL. What fails here is a RuntimeError in Python, and what fails for want of memory
 * the torch.OutOfMemoryError that PyTorch's own allocator throws (but in builds of up to 2.6 that have the strings of before GCC 5):
 * "CUDA out of memory. ..." with what would have helped, which gpumem_last_error() has, too. Only if the process has no PyTorch it returns
 * NULL. PyTorch's profiler is told of it where it asks for memory (torch.profiler.profile(profile_memory=True)). To be freed with
 * gpumem_torch_free, or with gpumem_free, of which the profiler hears nothing.
 */
void *gpumem_torch_alloc(size_t size, int device, void *stream);

/* gpumem_free for PyTorch, whose profiler is told. */
void gpumem_torch_free(void *ptr, size_t size, int device, void *stream);

/*
 * For torch._C._cuda_attach_out_of_memory_observer: has gpumem_torch_alloc call this when it finds too little memory for `size` bytes,
 * before it throws, on the thread that asked for them. It may call anything here, but not throw, and is called again by what it asks for
 * in vain. NULL ends that. Waits until no other thread is in the one before, which is never called after that: not to be called with a lock
 * that it takes, such as an interpreter's. Who is in one itself does not wait.
 */
void gpumem_set_oom_fn(void (*function)(int device, size_t size));

/*
 * After torch.cuda.memory.change_current_allocator(), before the GPU is used: has PyTorch's object for pluggable allocators do in C++ what
 * it refuses, and which nothing can be set for: say how large a block may be, without which cuDNN's search for the fastest convolution
 * fails (torch.backends.cudnn.benchmark = True), and get_per_process_memory_fraction(); on x86-64 take checkpoints of private pools and
 * restore them, as trees of CUDA graphs have it do (torch.compile with mode="reduce-overhead"), and share memory with other processes, as
 * torch.multiprocessing does. What is in chunks these have from a thread that begins when such memory is first shared, and that hands
 * them out by a socket of a random name in the abstract namespace of Unix sockets, to processes of its user. Where a graph is captured
 * when the last one lets go of another process's memory, that goes back with the next release. Before more memory is taken, PyTorch is
 * asked for what it kept for processes that are done with it, as its own allocator asks it. Where PyTorch records that a stream uses a
 * block, its own streams are told from those of others, which may be destroyed. The object's functions are replaced, found by name
 * (PyTorch 2.4 to 2.15 have them under these, and what shares memory from 2.8 on); one that is not found once stays. Where others may
 * have memory yet when the process ends, PyTorch needs the object so late that somebody has to hold it for ever, as the Python package does. 0;
 * -1 where there is no such object, none is found, or the version was not tried (gpumem_set_torch_version): then nothing is changed.
 */
int gpumem_adopt_torch(void);

/* For set_init_fn: how many devices there are. Nothing is made yet. */
void gpumem_init(int device_count);

/* For set_reset_fn: torch.cuda.empty_cache(). The same as gpumem_empty_cache(-1). */
void gpumem_reset(void);

/*
 * For set_memory_fraction_fn: the allocator may take this part (at least a millionth, at most 1) of the device's memory, from now on.
 * If it has more, its cache goes back first, unless a graph is captured; what the program holds stays, and nothing new is taken until
 * there is room again. Set before the first allocation on the device, a smaller limit in GPUMEM_ALLOC_CONF holds too.
 */
void gpumem_memory_fraction(double fraction, int device);

/*
 * For set_base_alloc_fn: the driver's allocation that a live one lies in, and its bytes in *size, if that is not NULL: what is shared
 * with other processes (IPC). NULL and an error, and 0 bytes, where memory is mapped in chunks (segments:virtual, segments:stitched).
 */
void *gpumem_base_alloc(void *ptr, size_t *size);

/* c10::cuda::MempoolId_t */
struct gpumem_pool_id {
    uint64_t first;
    uint64_t second;
};

/*
 * For set_begin_allocate_to_pool, set_end_allocate_to_pool_fn and set_release_pool: private pools, which CUDA graphs and
 * torch.cuda.MemPool use. From begin to end what `filter` says yes to is allocated in the pool of that id, which is any but (0, 0):
 * PyTorch's filter, a pointer to a std::function<bool(cudaStream_t)> of libstdc++, which is copied; NULL is everything of the calling
 * thread. End ends what the calling thread began last for that id, or if it began nothing, what any thread did. Any thread that
 * allocates on the device may call the copy, until gpumem_end_allocate_to_pool or gpumem_release_pool returns: what it looks at must
 * live as long. It must not throw (an exception out of it ends the process), not allocate here, and not begin or end what goes to pools.
 * In between a graph is taken to be captured: nothing on the device is waited for and nothing goes back to the driver (but what a
 * request took that fails on the way), and gpumem_empty_cache and gpumem_compact fail. While a pool lives no address that it handed out
 * is handed to anybody else or goes back, for graphs go on using them. A pool goes when it was released as often as it was begun; its
 * memory goes back when nothing uses it any more, at the latest before more is taken from the driver. PyTorch ends and releases nothing
 * where a capture fails: what was begun with a filter of its CUDAGraph ends, and is released, when that capture is over, with the next call
 * that allocates, begins or gives the cache back, on the thread that captured. In snapshots the id is the
 * segment_pool_id of its segments, and by it the pool is named wherever names are shown: "pool (7, 1)".
 */
void gpumem_begin_allocate_to_pool(int device, struct gpumem_pool_id id, void *filter);
void gpumem_end_allocate_to_pool(int device, struct gpumem_pool_id id);
void gpumem_release_pool(int device, struct gpumem_pool_id id);

/*
 * The addresses that the program holds in a pool, in order: the first `room` of them go to `addrs`, which may be NULL with a `room` of 0.
 * How many there are; -1 on errors. For torch._C._cuda_checkPoolLiveAllocations.
 */
int64_t gpumem_pool_held(int device, struct gpumem_pool_id id, uint64_t *addrs, size_t room);

/* How often a pool was begun and not released: 0 where there is none. -1 on errors. */
int64_t gpumem_pool_uses(int device, struct gpumem_pool_id id);

/* ---- CuPy: cupy.cuda.memory.CFunctionAllocator (src/python/gpumem/_cupy.py) ---- */

/*
 * CuPy passes no stream: `stream` is the `param` that the CFunctionAllocator was made with. Make one allocator for each stream, with
 * its handle. CuPy does not look for NULL: look at the pointer yourself, as the Python package does.
 */
void *gpumem_cupy_malloc(void *stream, size_t size, int device);
void gpumem_cupy_free(void *stream, void *ptr, int device);

/* ---- Figures, under PyTorch's names (torch.cuda.memory_stats) ---- */

struct gpumem_stat {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated; /* sum of all increases */
    uint64_t freed;     /* sum of all decreases */
};

struct gpumem_pool_stats {
    struct gpumem_stat allocation;           /* blocks that the program holds */
    struct gpumem_stat segment;              /* segments taken from the driver */
    struct gpumem_stat active;               /* blocks that the program holds, or that queued work uses */
    struct gpumem_stat inactive_split;       /* free blocks that live neighbours pin */
    struct gpumem_stat requested_bytes;      /* asked for */
    struct gpumem_stat allocated_bytes;      /* the same after rounding */
    struct gpumem_stat reserved_bytes;       /* physical memory taken from the driver */
    struct gpumem_stat active_bytes;
    struct gpumem_stat inactive_split_bytes;
};

struct gpumem_device_stats {
    uint64_t size; /* in: sizeof(struct gpumem_device_stats); out: how much of it was filled. Later versions add fields at the end. */
    struct gpumem_pool_stats all;
    struct gpumem_pool_stats small_pool;
    struct gpumem_pool_stats large_pool;
    uint64_t num_alloc_retries;    /* requests that succeeded only after room was made */
    uint64_t num_ooms;             /* requests that failed for want of memory */
    uint64_t num_sync_all_streams; /* times the device was waited for */
    uint64_t num_device_alloc;     /* calls that took memory from the driver */
    uint64_t num_device_free;      /* calls that gave memory back */
    uint64_t free_bytes;           /* free in the cache, not counting what queued work uses */
    uint64_t largest_free_bytes;   /* the largest free block */
    uint64_t free_blocks;          /* how many there are */
};

/*
 * The figures of a device; all 0 if nothing was allocated there yet. What was freed and is still used by queued work is requested and
 * active, not allocated: while there is some, requested_bytes may be above allocated_bytes. 0, or -1 on errors.
 */
int gpumem_stats(int device, struct gpumem_device_stats *stats);

/*
 * Has the peaks of a device, or of all in use (-1), begin anew at what there is now, those of gpumem_peak_report too: what
 * torch.cuda.reset_peak_memory_stats does for PyTorch's allocator. 0, or -1 on errors.
 */
int gpumem_reset_peaks(int device);

/* ---- Names, as the dashboard shows them ---- */

/*
 * A mark on the timeline of every device in use: "forward", "step 12". After 768 different names each further one is there without a name.
 * 0, or -1 on errors.
 */
int gpumem_mark(const char *name);

/*
 * Names what the calling thread allocates, from a push to its pop; scopes nest, up to 256 of a thread, the innermost counts. Names are
 * meant to be few ("optimizer", not "step 17"): after 4,095 different ones in a process each further one counts as "(other tags)". UTF-8;
 * cut after 256 bytes, of which the dashboard shows about 120. 0, or -1 on errors.
 */
int gpumem_scope_push(const char *name);
int gpumem_scope_pop(void);

/*
 * The same until it is called again on the thread, with another name, or NULL or "" for none: beside scopes that nest, in whatever order
 * those and this one begin and end. What began last counts.
 */
int gpumem_scope_set(const char *name);

/* ---- History: who holds the memory ---- */

/* What call stacks are taken for. */
enum gpumem_stacks {
    GPUMEM_STACKS_NONE = 0,  /* nothing: who holds memory is told apart by scope only */
    GPUMEM_STACKS_ALLOC = 1, /* allocations, and what is done to memory from the driver */
    GPUMEM_STACKS_ALL = 2    /* frees too */
};

/*
 * Begins a history on a device, or on all in use (-1), anew if there is one: the newest `max_events` events with time, thread and call
 * stack (200000 are usual and take 17 MB at most, and those of stitched blocks 120 bytes or so more for a block and 16 for each of its
 * pieces; 67108864 are the most; 0 keeps none, and the reports below need none), and who holds what. `stacks` is one of enum gpumem_stacks.
 * Stacks are of native functions, of which each thread remembers up to 205 KB, or an interpreter's: see gpumem_python_stacks and
 * gpumem_set_stack_fn. GPUMEM_ALLOC_CONF=history:on does it from the first allocation on. 0, or -1 on errors.
 */
int gpumem_record_history(int device, int stacks, uint64_t max_events);

/* Whether there is one on a device, or on any in use (-1): 1 or 0; -1 on errors. */
int gpumem_has_history(int device);

/* Ends it on a device, or on all in use (-1), and forgets it. 0, or -1 on errors. */
int gpumem_stop_history(int device);

/*
 * Call stacks of Python (CPython from 3.9 on) instead of native functions, for threads that run the interpreter that the calling thread
 * runs, until it is called with NULL, which waits as gpumem_set_oom_fn does, and has to be done before the interpreter ends. `python` is a
 * handle of dlopen's that its functions are found by: in Python ctypes.pythonapi._handle. Where a thread runs no Python, its stack is of
 * native functions if `native` is not 0, and else it has none. Whoever allocates waits for the interpreter's lock, and may hold nothing
 * that who has that waits for. Once there are subinterpreters that may be so where Python runs, too. 0, or -1 on errors.
 */
int gpumem_python_stacks(void *python, int native);

/*
 * Call stacks of another interpreter. From gpumem_set_stack_fn on a history asks this function where the calling thread is, instead of
 * taking a call stack of native functions: it writes the numbers of the frames, the innermost first, `most` of them at most, and returns
 * how many; 0 has native functions taken, -1 nothing. It is called on each thread that allocates, and where stacks are taken for frees,
 * that frees, and may call anything here, but is called again by what it allocates itself. NULL ends that, and waits as
 * gpumem_set_oom_fn does. gpumem_name_frame makes the number of a place: of a function, its file (may be NULL) and line (0: none); UTF-8.
 * The same place has the same number as long as the process lives; beyond 16 MiB of them all further places share one. 0 is an error.
 */
uint64_t gpumem_name_frame(const char *function, const char *file, int line);
void gpumem_set_stack_fn(int (*function)(uint64_t *frames, int most));

/* Ends a step of the program's (a batch, a request) on every device in use, for gpumem_leak_report. 0, or -1 on errors. */
int gpumem_step(void);

/*
 * Who held the memory when the program held most, since the history of the device began or gpumem_reset_peaks: lines of text in UTF-8,
 * for people. At most `room` bytes go to `text`, the last of them 0. What comes back is the length of the whole report, without that 0:
 * if it is `room` or more the text was cut. With a `room` of 0 `text` may be NULL. -1 on errors, and where there is no history.
 */
int64_t gpumem_peak_report(int device, char *text, size_t room);

/* The same of the memory that outlived at least `min_steps` steps, by the place that allocated it, and whether it grows. */
int64_t gpumem_leak_report(int device, uint64_t min_steps, char *text, size_t room);

/*
 * Writes the state of a device, and its history if there is one, into a file in the format of torch.cuda.memory._snapshot(), which
 * PyTorch's viewers read (https://pytorch.org/memory_viz): JSON if the path ends in ".json", else a pickle. A file of that name is
 * replaced when the new one is whole; a device, a pipe or a symbolic link is not, which is an error. 0, or -1 on errors.
 * GPUMEM_SNAPSHOT_ON_OOM=path writes one when memory first runs out (not in set-uid programs).
 */
int gpumem_snapshot(int device, const char *path);

/* ---- Errors ---- */

/*
 * What went wrong last on the calling thread, or NULL if nothing did since this was last called. The text is valid until the
 * thread calls this again.
 */
const char *gpumem_last_error(void);

/*
 * What is wrong with GPUMEM_ALLOC_CONF, in a line of text, for a program that would rather not begin than have the defaults. `text`, `room`
 * and what comes back are as in gpumem_peak_report: 0 where nothing is wrong. No device is looked at. -1 on errors.
 */
int64_t gpumem_conf_error(char *text, size_t room);

/* How many calls failed so far, on all threads, or succeeded but left a thread with another current context. */
uint64_t gpumem_error_count(void);

#ifdef __cplusplus
}
#endif

#endif
