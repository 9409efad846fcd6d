//! The threads that sources sample on, and what they exchange with the main loop.

use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use super::{Slot, Source};
use crate::clock;
use crate::model::{Nanos, Request, Sample, Sampled, Setup, Taken};

/// Bytes of stack of a sampler thread. Samplers need little; the default of 8 MiB would only look bad in a memory map.
const STACK: usize = 512 << 10;

/// The newest sample of each source that was not taken yet.
#[derive(Default)]
pub(crate) struct Samples(Vec<Arc<Slot<Sampled>>>);

impl Samples {
    /// Returns the number of sources that were started.
    pub(crate) fn sources(&self) -> usize {
        self.0.len()
    }

    /// Waits for a sample and takes it. Cancelling the future loses nothing.
    pub(crate) async fn next(&self) -> Sampled {
        let mut all: Vec<_> = self.0.iter().map(|slot| Box::pin(slot.take())).collect();
        poll_fn(|context| {
            let mut polled = all.iter_mut().map(|take| take.as_mut().poll(context));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }
}

/// Starts every wanted source, each on its own thread.
///
/// # Errors
/// When the system allows no more threads.
pub(crate) fn start(setup: &Setup, requests: &Arc<Requests>) -> std::io::Result<Samples> {
    let interval = Duration::from_nanos(setup.interval);
    let mut samples = Samples::default();
    for source in super::all() {
        if source.is_wanted(setup) {
            let (slot, requests) = (Arc::new(Slot::default()), requests.clone());
            samples.0.push(slot.clone());
            spawn(source.name(), move || run(source, interval, &slot, &requests))?;
        }
    }
    Ok(samples)
}

fn run(mut source: Box<dyn Source>, interval: Duration, slot: &Slot<Sampled>, requests: &Requests) {
    let pace = source.pace(interval);
    loop {
        let sample = source.sample(&requests.newest());
        put(slot, Taken::new(clock::now(), pace), sample, &*source);
        if !source.wait(pace, requests) {
            return;
        }
    }
}

/// Hands a sample over. The source merges it with one that was not taken yet.
fn put(slot: &Slot<Sampled>, taken: Taken, sample: Sample, source: &dyn Source) {
    slot.put(Sampled { taken, sample }, |old, new| Sampled {
        taken: new.taken,
        sample: source.merge(old.sample, new.sample),
    });
}

/// Takes a sample for a report.
pub(crate) fn take_once(source: &mut dyn Source, setup: &Setup, request: &Request) -> Sampled {
    let pace = source.pace(Duration::from_nanos(setup.interval));
    let sample = source.sample_once(request);
    let taken = Taken::new(clock::now(), pace);
    Sampled { taken, sample }
}

/// What the main loop currently asks of the sources.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    newest: Mutex<Request>,
    changed: Condvar,
}

impl Requests {
    /// Replaces the current request, and wakes sources that wait for a change.
    pub(crate) fn set(&self, request: Request) {
        let mut newest = self.lock();
        if *newest != request {
            *newest = request;
            drop(newest);
            self.changed.notify_all();
        }
    }

    pub(super) fn newest(&self) -> Request {
        self.lock().clone()
    }

    /// Sleeps until the next multiple of `pace`, or until a request satisfies `new`.
    pub(super) fn sleep_unless(&self, pace: Duration, new: impl Fn(&Request) -> bool) {
        let rest = until_tick(pace);
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), rest, |request| !new(request));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, Request> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a sampler thread.
///
/// # Errors
/// When the system allows no more threads.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK)
        .spawn(body)
        .map(drop)
}

/// Returns the next multiple of `interval` on the monotonic clock. Samplers that sleep until such a tick sample at the same
/// moments, so that their figures fit together.
pub(crate) fn tick_after(interval: Duration) -> Nanos {
    let interval = (interval.as_nanos() as u64).max(1_000_000);
    let now = clock::now();
    now - now % interval + interval
}

/// Returns the time until the next tick.
fn until_tick(interval: Duration) -> Duration {
    Duration::from_nanos(tick_after(interval).saturating_sub(clock::now()))
}

/// Sleeps until the next tick.
pub(super) fn sleep_until_tick(interval: Duration) {
    std::thread::sleep(until_tick(interval));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use gpumem_probe::NvmlSample;

    use super::*;
    use crate::model::{ChannelKey, ChannelSample, DeviceKey, Mark, MarkKind, Owner, ProcessId};
    use crate::source::{Channels, Driver};

    fn channels(at: Nanos) -> Sample {
        let mark = Mark {
            at,
            kind: MarkKind::Phase,
            process: ProcessId {
                device: DeviceKey::NvmlIndex(0),
                owner: Owner::Pid(1, 1),
            },
            bytes: 0,
            number: 0,
            text: "forward".into(),
        };
        Sample::Channels(ChannelSample {
            marks: vec![mark],
            ..ChannelSample::default()
        })
    }

    /// A delayed main loop finds one sample of each source, and no channel event is lost.
    #[test]
    fn newest_sample_of_each_source_waits() {
        let samples = Samples(vec![Arc::default(), Arc::default()]);
        let put = |place: usize, at, sample, source: &dyn Source| {
            put(
                &samples.0[place],
                Taken::new(at, Duration::from_secs(1)),
                sample,
                source,
            );
        };
        let (nvml, source) = (|| Sample::Nvml(NvmlSample::default()), Channels::default());
        put(1, 1, channels(1), &source);
        put(0, 2, nvml(), &Driver::default());
        put(1, 3, channels(3), &source);
        put(0, 4, nvml(), &Driver::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let [first, second] = [0, 1].map(|_| runtime.block_on(samples.next()));
        assert_eq!([first.taken.at, second.taken.at], [4, 3]);
        let Sample::Channels(sample) = second.sample else {
            unreachable!("the other was NVML's")
        };
        assert_eq!(sample.marks.iter().map(|m| m.at).collect::<Vec<_>>(), [1, 3]);
    }

    /// Otherwise a new process would have no name for a second.
    #[test]
    fn only_the_awaited_request_wakes_a_source() {
        let requests = Arc::new(Requests::default());
        let asker = requests.clone();
        let thread = std::thread::spawn(move || {
            for listed in [vec![], vec![7]] {
                std::thread::sleep(Duration::from_millis(20));
                asker.set(Request {
                    blocks_of: Some(ChannelKey(1, 1)),
                    listed,
                    ..Request::default()
                });
            }
        });
        // Longer than a test may take, so only the request can end it.
        requests.sleep_unless(Duration::from_secs(100_000), |request| !request.pids().is_empty());
        assert_eq!(requests.newest().pids(), [7]);
        assert!(thread.join().is_ok());
    }
}
