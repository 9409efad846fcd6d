//! What the public types promise by what they are: a program relies on it in its own types, and a compiler says so only there.

use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::panic::{RefUnwindSafe, UnwindSafe};

use gpumem_alloc::conf::ConfError;
use gpumem_alloc::device::{Call, Device, DeviceInfo, Live, MemoryInfo, Pause, Sim, SimConfig, Timeline};
use gpumem_alloc::{
    Action, Alert, Allocator, Base, Buffer, CompactReport, Config, DeviceError, DeviceStats, Divisions, Done, Error,
    ExportError, FreeBlocks, Help, History, HistoryFigures, JoinReport, Leak, LeakReport, Listener, ManagedBuffer,
    Measure, MempoolId, Monitor, MonitorConfig, OomReport, Overflow, Owner, PeakReport, Pool, PoolConfig, PoolFigures,
    PoolShortage, Publish, Route, Scope, SegmentMode, Serving, Snapshot, Stack, StackFrame, Stacks, Stream,
};

fn can_be_shared<T: Send + Sync + Debug>() {}

/// A program may go on with them after it caught a panic of its own.
fn survives_panics<T: UnwindSafe + RefUnwindSafe>() {}

fn is_error<T: StdError + Display + Send + Sync + 'static>() {}

macro_rules! each {
    ($what:ident: $($of:ty),* $(,)?) => {
        $($what::<$of>();)*
    };
}

#[test]
fn handles_go_to_any_thread_and_into_what_catches_panics() {
    each!(can_be_shared: Allocator, Buffer<f32>, ManagedBuffer<f32>, Device, Monitor, Pool, Serving, Sim, Pause<'static>, Route, Listener);
    each!(survives_panics: Allocator, Buffer<f32>, Device, Monitor, Pool, Serving, Sim, Pause<'static>, Scope);
}

#[test]
fn what_is_told_and_what_is_reported_are_plain_values() {
    each!(can_be_shared: Config, MonitorConfig, PoolConfig, SimConfig, Publish, History, Stacks, SegmentMode, Divisions, Overflow);
    each!(can_be_shared: Action, Measure, Timeline, Call, Stream, MempoolId, Stack, StackFrame, Base, DeviceStats, PoolFigures);
    each!(can_be_shared: FreeBlocks, OomReport, PoolShortage, Help, JoinReport, CompactReport, Alert, Done, HistoryFigures);
    each!(can_be_shared: LeakReport, Leak, Owner, PeakReport, Snapshot, DeviceInfo, MemoryInfo, Live);
    each!(survives_panics: PoolConfig, SimConfig, Publish, History, SegmentMode, Stream, OomReport, Alert, LeakReport, PeakReport, Snapshot);
}

#[test]
fn errors_go_wherever_errors_go() {
    each!(is_error: Error, DeviceError, ConfError, ExportError);
    each!(survives_panics: Error, DeviceError, ConfError);
}

/// It is the thread that has the name.
#[test]
fn a_scope_stays_on_its_thread() {
    trait Sendable<A> {
        fn is_ambiguous() {}
    }
    impl<T: ?Sized> Sendable<()> for T {}
    impl<T: ?Sized + Send> Sendable<u8> for T {}
    // Does not compile where there are two of it.
    <Scope as Sendable<_>>::is_ambiguous();
}

/// One kind of error does for a program that reads its configuration and opens a device.
#[test]
fn a_program_begins_with_question_marks() {
    fn begin() -> Result<Allocator, Error> {
        let device = gpumem_alloc::device::sim(SimConfig::default());
        Allocator::new(device, Config::parse("segments:sideways")?)
    }
    let error = begin().map(drop).err();
    assert!(
        matches!(&error, Some(Error::Conf(why)) if why.option == Some("segments")),
        "{error:?}"
    );
    let said = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(said.starts_with("column 10: segments"), "{said}");
}
