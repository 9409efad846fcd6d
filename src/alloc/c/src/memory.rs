//! Allocate, free, streams.

use std::ffi::{c_int, c_void};

use gpumem::{Error, Stream};

use crate::boundary::{attempt, enter, enter_quick};
use crate::failure::{Failure, Kind};
use crate::{adopt, devices, exit, profiler, throw, torch};

/// CUDA's handle of every thread's own default stream, the last of those that are no pointers.
const PER_THREAD: usize = 2;

/// A stream by its handle. The legacy default stream has two, and the calling thread's own that of all threads'.
#[inline]
fn stream(handle: *mut c_void) -> Stream {
    const LEGACY: usize = 1;
    match handle.addr() {
        0 | LEGACY => Stream::DEFAULT,
        // What makes a thread's own known to the C library may hang in a child that it does not know of, where all streams are refused.
        PER_THREAD if devices::is_forked() => Stream::DEFAULT,
        PER_THREAD => Stream::per_thread(),
        handle => Stream(handle as u64),
    }
}

#[inline]
fn take(size: usize, device: c_int, handle: *mut c_void) -> Result<*mut c_void, Failure> {
    if size == 0 {
        return Ok(std::ptr::null_mut());
    }
    let place = devices::place(device)?;
    let stream = stream(handle);
    let allocated = place.open(device)?.alloc_raw(size as u64, stream);
    let addr = allocated.map_err(|error| refused(device, error))?;
    Ok(std::ptr::without_provenance_mut(addr as usize))
}

/// Where there are several devices, whoever reads of it wants to know on which.
#[cold]
fn refused(device: c_int, error: Error) -> Failure {
    let mut failure = Failure::from(error);
    let of_device = matches!(failure.kind, Kind::OutOfMemory | Kind::Device);
    if of_device && devices::in_use().nth(1).is_some() {
        failure.text = format!("device {device}: {}", failure.text).into();
    }
    failure
}

#[inline]
fn give_back(ptr: *mut c_void, device: c_int, handle: *mut c_void) -> Result<(), Failure> {
    if ptr.is_null() || exit::is_here() {
        return Ok(());
    }
    let place = devices::place(device)?;
    let unknown = || {
        // What the parent allocated is unknown here, and no news.
        if let Err(forked) = devices::not_forked() {
            return forked;
        }
        let reason = match devices::owner(ptr.addr() as u64) {
            Some((owner, _)) => format!("it is one of device {owner}"),
            None => "foreign, or freed before".to_owned(),
        };
        Failure::misuse(format!("{ptr:p} is not a live allocation on device {device}: {reason}"))
    };
    let allocator = place.allocator().ok_or_else(unknown)?;
    match allocator.free_raw_after(ptr.addr() as u64, device.unsigned_abs(), stream(handle)) {
        Err(Error::UnknownPointer { .. }) => Err(unknown()),
        done => Ok(done?),
    }
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_alloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    enter_quick("gpumem_alloc", std::ptr::null_mut(), || take(size, device, stream))
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_free(ptr: *mut c_void, _size: usize, device: c_int, stream: *mut c_void) {
    enter_quick("gpumem_free", (), || give_back(ptr, device, stream));
}

/// Unwinds when it fails, where the process has PyTorch.
#[unsafe(no_mangle)]
extern "C-unwind" fn gpumem_torch_alloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let call = "gpumem_torch_alloc";
    let work = || {
        let taken = adopt::placed().unwrap_or_else(|| take(size, device, stream));
        taken.map_err(Failure::in_pytorchs_words)
    };
    match attempt(call, work) {
        Ok(ptr) => {
            if !ptr.is_null() {
                profiler::took(ptr, device);
            }
            ptr
        }
        Err(failure) => {
            if failure.kind == Kind::OutOfMemory {
                profiler::ran_out(size, device);
                torch::tell_of_oom(device, size);
            }
            throw::as_pytorch(call, &failure);
            std::ptr::null_mut()
        }
    }
}

/// Unwinds where PyTorch's profiler does.
#[unsafe(no_mangle)]
extern "C-unwind" fn gpumem_torch_free(ptr: *mut c_void, _size: usize, device: c_int, stream: *mut c_void) {
    if !ptr.is_null() {
        profiler::gives(ptr, device);
    }
    enter_quick("gpumem_torch_free", (), || give_back(ptr, device, stream));
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_cupy_malloc(stream: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    enter_quick("gpumem_cupy_malloc", std::ptr::null_mut(), || {
        take(size, device, stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_cupy_free(stream: *mut c_void, ptr: *mut c_void, device: c_int) {
    enter_quick("gpumem_cupy_free", (), || give_back(ptr, device, stream));
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_retire_stream(handle: *mut c_void) -> c_int {
    enter("gpumem_retire_stream", -1, || {
        if handle.addr() <= PER_THREAD {
            return Err(Error::DefaultStream.into());
        }
        devices::not_forked()?;
        let stream = stream(handle);
        // Who does not know it is not concerned. An error on one device does not keep it from the others.
        let retired = devices::in_use().map(|(_, allocator)| allocator.retire_stream(stream));
        match retired.filter_map(Result::err).reduce(|first, _| first) {
            Some(first) => Err(first.into()),
            None => Ok(0),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_record_stream(ptr: *mut c_void, handle: *mut c_void) {
    enter("gpumem_record_stream", (), || {
        if ptr.is_null() {
            return Ok(());
        }
        let (stream, lasts) = (stream(handle), adopt::streams::stream_lasts());
        devices::not_forked()?;
        // Addresses are unique among the devices of a process.
        for (_, allocator) in devices::in_use() {
            match allocator.record_stream_raw_as(ptr.addr() as u64, stream, lasts) {
                Err(Error::UnknownPointer { .. }) => {}
                done => return Ok(done?),
            }
        }
        Err(Failure::misuse(format!("{ptr:p} is not a live allocation")))
    });
}
