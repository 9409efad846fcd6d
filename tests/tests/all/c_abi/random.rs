//! Random programs of several threads with all functions at once, on several devices, beside a naive list of what they hold.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gpumem_tests::Random;

use super::abi::{Abi, PoolId, Ptr, stream};
use super::{driver, driver_stream, library, passes, use_device};

const DEVICES: u64 = 3;
const THREADS: u64 = 4;
const STEPS: u64 = 300;

/// Memory that the program holds. All of it was written with `stamp`.
struct Held {
    addr: usize,
    bytes: usize,
    device: c_int,
    stream: usize,
    stamp: u8,
}

/// What the threads share.
struct World {
    abi: Abi,
    held: Mutex<Vec<Held>>,
    /// Calls that failed: each left a message.
    failed: AtomicU64,
}

#[test]
fn random_calls_on_threads_never_share_memory() {
    let modes = ["stitched", "virtual", "plain,history:on"];
    for (mode, late) in modes.into_iter().zip(["0", "3", "1"]) {
        let told = [
            ("FAKE_CUDA_DEVICES", "3"),
            ("FAKE_CUDA_TOTAL", "100663296"),
            ("FAKE_CUDA_EVENT_QUERIES", late),
            ("GPUMEM_ALLOC_CONF", &format!("segments:{mode}")),
        ];
        let stderr = passes("random::inner_does_all_at_once", &told);
        assert!(!stderr.contains("a bug in gpumem"), "{stderr}");
    }
}

#[test]
fn inner_does_all_at_once() {
    let Some(abi) = library() else { return };
    for device in 0..DEVICES as c_int {
        abi.free(abi.alloc(1, device, null_mut()), 1, device, null_mut());
    }
    let world = World {
        abi,
        held: Mutex::default(),
        failed: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let world = &world;
            let streams = [(); 2].map(|()| driver_stream().addr());
            scope.spawn(move || run(world, thread, streams));
        }
    });
    for held in world.held.lock().unwrap().drain(..) {
        give(&world, &held, held.stream);
    }
    assert!(world.abi.empty_cache(-1) >= 0, "{:?}", world.abi.error());
    for device in 0..DEVICES as c_int {
        let figures = world.abi.figures(device);
        for (name, left) in figures.iter().filter(|(name, _)| name.ends_with(".current")) {
            assert_eq!(*left, 0, "{name}");
            let [taken, freed] = ["allocated", "freed"].map(|part| figures[&name.replace("current", part)]);
            assert_eq!(taken, freed, "{name}");
        }
    }
    assert_eq!(world.abi.error_count(), world.failed.load(Ordering::Relaxed));
}

/// Calls what may fail: if it does it says so, and else nothing.
#[track_caller]
fn may_fail(world: &World, call: impl FnOnce(&Abi) -> bool) -> bool {
    let done = call(&world.abi);
    let error = world.abi.error();
    assert_eq!(error.is_none(), done, "{error:?}");
    world.failed.fetch_add(u64::from(!done), Ordering::Relaxed);
    done
}

fn run(world: &World, thread: u64, streams: [usize; 2]) {
    let random = &mut Random::new(thread + 1);
    let (own, mut depth, mut begun) = (PoolId(thread + 1, 9), 0, None);
    let mut text = [7; 400];
    for _ in 0..STEPS {
        let device = random.below(DEVICES) as c_int;
        let all = [device, -1][random.below(2) as usize];
        let handle = [0, 1, 2, streams[0], streams[1]][random.below(5) as usize];
        match random.below(40) {
            0..16 => take(world, random, device, handle),
            16..28 => {
                let mut list = world.held.lock().unwrap();
                if !list.is_empty() {
                    let at = random.below(list.len() as u64) as usize;
                    let held = list.swap_remove(at);
                    drop(list);
                    if random.below(4) == 0 {
                        world.abi.record_stream(stream(held.addr), stream(handle));
                    }
                    give(world, &held, [held.stream, handle][random.below(2) as usize]);
                }
            }
            28 => drop(may_fail(world, |abi| abi.empty_cache(all) >= 0)),
            29 => drop(may_fail(world, |abi| abi.compact(all) >= 0)),
            30 => world.abi.memory_fraction(0.5 + random.below(51) as f64 / 100.0, device),
            31 => {
                let (stacks, events) = (random.below(3) as c_int, random.below(500));
                assert_eq!(world.abi.record_history(all, stacks, events), 0);
            }
            32 => {
                let done = (
                    world.abi.stop_history(all),
                    world.abi.step(),
                    world.abi.reset_peaks(all),
                );
                assert_eq!(done, (0, 0, 0));
            }
            33 => {
                text.fill(7);
                let room = random.below(text.len() as u64) as usize;
                let mut length = -1;
                may_fail(world, |abi| {
                    length = match random.below(2) {
                        0 => abi.peak_report(device, text.as_mut_ptr(), room),
                        _ => abi.leak_report(device, random.below(4), text.as_mut_ptr(), room),
                    };
                    length >= 0
                });
                assert!(text[room..].iter().all(|byte| *byte == 7), "beyond the room");
                let end = text[..room].iter().position(|byte| *byte == 0);
                assert!(length < 0 || room == 0 || end.is_some_and(|end| end as i64 <= length));
            }
            34 if depth > 0 => {
                assert_eq!(world.abi.scope_pop(), 0);
                depth -= 1;
            }
            34 | 35 => {
                let name: Vec<u8> = (0..random.below(300)).map(|_| 1 + random.below(255) as u8).collect();
                let name = CString::new(name).unwrap();
                assert_eq!(
                    (world.abi.scope_push(name.as_ptr()), world.abi.mark(name.as_ptr())),
                    (0, 0)
                );
                depth += 1;
            }
            36 => match begun.take() {
                None => {
                    world.abi.begin_allocate_to_pool(device, own, null_mut());
                    begun = Some(device);
                }
                Some(device) => {
                    world.abi.end_allocate_to_pool(device, own);
                    world.abi.release_pool(device, own);
                }
            },
            37 => misuse(world, random, device, handle),
            38 => forks(world),
            _ => {
                let mut words = [77; 40];
                let room = 8 + random.below(300);
                words[0] = room;
                assert_eq!(world.abi.stats(device, words.as_mut_ptr()), 0);
                assert_eq!(words[0], room);
                assert!(words[room.div_ceil(8) as usize..].iter().all(|word| *word == 77));
            }
        }
        assert_eq!(world.abi.error(), None);
    }
    (0..depth).for_each(|_| assert_eq!(world.abi.scope_pop(), 0));
    if let Some(device) = begun {
        world.abi.end_allocate_to_pool(device, own);
        world.abi.release_pool(device, own);
    }
}

fn take(world: &World, random: &mut Random, device: c_int, handle: usize) {
    let most = [600, 20_000, 1 << 20, 6 << 20][random.below(4) as usize];
    let (bytes, stamp) = (1 + random.below(most) as usize, 1 + random.below(255) as u8);
    let mut addr = 0;
    let got = may_fail(world, |abi| {
        addr = match random.below(3) {
            0 => abi.alloc(bytes, device, stream(handle)),
            1 => abi.torch_alloc(bytes, device, stream(handle)),
            _ => abi.cupy_malloc(stream(handle), bytes, device),
        }
        .addr();
        addr != 0
    });
    if !got {
        return;
    }
    assert!(addr.is_multiple_of(512));
    let write = |write: unsafe extern "C" fn(u64, u8, usize, Ptr) -> c_int| {
        // SAFETY: fills memory that is held.
        unsafe { write(addr as u64, stamp, bytes, null_mut()) }
    };
    use_device(device);
    assert_eq!(driver(c"cuMemsetD8Async", write), 0);
    let mut list = world.held.lock().unwrap();
    let apart = |held: &Held| addr + bytes <= held.addr || held.addr + held.bytes <= addr;
    assert!(list.iter().all(apart), "{addr:#x} is held by two");
    list.push(Held {
        addr,
        bytes,
        device,
        stream: handle,
        stamp,
    });
}

fn give(world: &World, held: &Held, handle: usize) {
    let mut bytes = vec![0u8; held.bytes];
    let read = |read: unsafe extern "C" fn(*mut u8, u64, usize) -> c_int| {
        // SAFETY: reads as many bytes as there is room for, of memory that is held.
        unsafe { read(bytes.as_mut_ptr(), held.addr as u64, held.bytes) }
    };
    use_device(held.device);
    assert_eq!(driver(c"cuMemcpyDtoH_v2", read), 0);
    // At once: a look at each byte takes long in a debug build.
    assert!(bytes == vec![held.stamp; held.bytes], "somebody wrote there");
    // Neither looks at the size.
    let (ptr, handle) = (stream(held.addr), stream(handle));
    match held.stamp % 2 {
        0 => world.abi.free(ptr, 7, held.device, handle),
        _ => world.abi.torch_free(ptr, 7, held.device, handle),
    }
    assert_eq!(world.abi.error(), None);
}

/// What is refused changes nothing, whatever others do meanwhile.
fn misuse(world: &World, random: &mut Random, device: c_int, handle: usize) {
    let (odd, handle) = (stream(random.any() as usize | 1), stream(handle));
    let list = world.held.lock().unwrap();
    may_fail(world, |abi| {
        !abi.alloc(random.any() as usize | 1 << 63, device, handle).is_null()
    });
    may_fail(world, |abi| !abi.alloc(1, DEVICES as c_int + device, handle).is_null());
    may_fail(world, |abi| !abi.alloc(1, i32::MIN, stream(2)).is_null());
    may_fail(world, |abi| !abi.base_alloc(odd, null_mut()).is_null());
    may_fail(world, |abi| abi.retire_stream(stream(1)) == 0);
    may_fail(world, |abi| {
        abi.free(odd, 1, device, handle);
        false
    });
    if let Some(held) = list.last() {
        may_fail(world, |abi| {
            abi.free(
                stream(held.addr),
                held.bytes,
                (held.device + 1) % DEVICES as c_int,
                handle,
            );
            false
        });
    }
    assert!(world.abi.alloc(0, -1, stream(2)).is_null());
}

/// A child has nothing, and hangs nowhere.
fn forks(world: &World) {
    // SAFETY: the child calls nothing but the library, alarm and _exit; the alarm ends it if it hangs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: takes a number of seconds.
        unsafe { libc::alarm(10) };
        let abi = &world.abi;
        let given = [abi.empty_cache(-1), abi.compact(0), abi.step().into()];
        let refused = given == [-1; 3] && abi.alloc(1, 0, null_mut()).is_null();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` is valid for writes.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "a child that hung, crashed or was served");
}
