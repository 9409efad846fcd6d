//! The threads on which sources sample, and what passes between them and the main loop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Slot, Source};
use crate::clock;
use crate::model::{Nanos, Request, Sampled, Setup, Taken};

/// Samplers need little stack; the default of 8 MiB would only look bad in a memory map.
const STACK: usize = 512 << 10;

/// The newest sample of each source that was not taken yet.
pub type Samples = Slot<Vec<Sampled>>;

/// Starts every source that is wanted, each on a thread of its own.
///
/// # Errors
/// When the system allows no more threads.
pub fn start(setup: &Setup, samples: &Arc<Samples>, requests: &Arc<Requests>) -> std::io::Result<()> {
    let interval = Duration::from_nanos(setup.interval);
    for mut source in super::all() {
        if source.is_wanted(setup) {
            let (samples, requests) = (samples.clone(), requests.clone());
            spawn(source.name(), move || {
                let pace = source.pace(interval);
                loop {
                    let sample = source.sample(&requests.newest());
                    let taken = Taken::new(clock::now(), pace);
                    let sampled = Sampled { taken, sample };
                    samples.put(vec![sampled], |waiting, new| join(waiting, new, &*source));
                    if !source.rest(pace, &requests) {
                        return;
                    }
                }
            })?;
        }
    }
    Ok(())
}

/// A sample for a report.
pub fn take_once(source: &mut dyn Source, setup: &Setup, request: &Request) -> Sampled {
    let pace = source.pace(Duration::from_nanos(setup.interval));
    let sample = source.sample_once(request);
    let taken = Taken::new(clock::now(), pace);
    Sampled { taken, sample }
}

/// The samples that wait and those of one source that come: of each source one, in the order in which they came.
fn join(mut waiting: Vec<Sampled>, new: Vec<Sampled>, source: &dyn Source) -> Vec<Sampled> {
    for mut new in new {
        let its = |old: &Sampled| old.sample.source() == new.sample.source();
        if let Some(place) = waiting.iter().position(its) {
            new.sample = source.merge(waiting.remove(place).sample, new.sample);
        }
        waiting.push(new);
    }
    waiting
}

/// What the main loop asks the sources for.
#[derive(Debug, Default)]
pub struct Requests {
    newest: Mutex<Request>,
    changed: Condvar,
}

impl Requests {
    /// Asks for this from now on.
    pub fn set(&self, request: Request) {
        let mut newest = self.lock();
        if *newest != request {
            *newest = request;
            drop(newest);
            self.changed.notify_all();
        }
    }

    fn newest(&self) -> Request {
        self.lock().clone()
    }

    /// Sleeps until the next multiple of `pace`, or until something is asked for that is `new`.
    pub(super) fn sleep_unless(&self, pace: Duration, new: impl Fn(&Request) -> bool) {
        let rest = until_beat(pace);
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), rest, |request| !new(request));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, Request> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread.
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

/// The next multiple of `interval` on the monotonic clock: samplers that keep this rhythm sample at the same moments, so
/// that their figures fit together.
pub(super) fn beat_after(interval: Duration) -> Nanos {
    let interval = (interval.as_nanos() as u64).max(1_000_000);
    let now = clock::now();
    now - now % interval + interval
}

/// How long it is until that moment.
fn until_beat(interval: Duration) -> Duration {
    Duration::from_nanos(beat_after(interval).saturating_sub(clock::now()))
}

/// Sleeps until that moment.
pub(super) fn sleep_to_beat(interval: Duration) {
    std::thread::sleep(until_beat(interval));
}

#[cfg(test)]
mod tests {
    use gpumem_probe::{NvmlSample, Process};

    use super::*;
    use crate::model::{ChannelSample, Mark, MarkKind, Nanos, Sample};
    use crate::source::{Channels, Driver, ProcessTable};

    fn sampled(at: Nanos, sample: Sample) -> Vec<Sampled> {
        let taken = Taken::new(at, Duration::from_secs(1));
        vec![Sampled { taken, sample }]
    }

    fn channels(at: Nanos) -> Vec<Sampled> {
        let mark = Mark {
            at,
            kind: MarkKind::Phase,
            process: crate::model::ProcessId {
                device: crate::model::DeviceKey::NvmlIndex(0),
                owner: crate::model::Owner::Pid(1, 1),
            },
            bytes: 0,
            text: "forward".into(),
        };
        let marks = vec![mark];
        let sample = ChannelSample {
            marks,
            ..ChannelSample::default()
        };
        sampled(at, Sample::Channels(sample))
    }

    /// A main loop that is held up finds one sample of each source, and no event of a channel is lost.
    #[test]
    fn of_each_source_the_newest_sample_waits() {
        let nvml = |at| sampled(at, Sample::Nvml(NvmlSample::default()));
        let processes = |at| sampled(at, Sample::Processes(Vec::<Process>::new()));
        let waiting = join(channels(1), nvml(2), &Driver::default());
        let waiting = join(waiting, channels(3), &Channels::default());
        let waiting = join(waiting, processes(4), &ProcessTable::default());
        let waiting = join(waiting, nvml(5), &Driver::default());
        let times: Vec<Nanos> = waiting.iter().map(|s| s.taken.at).collect();
        assert_eq!(times, [3, 4, 5]);
        let Sample::Channels(sample) = &waiting[0].sample else {
            unreachable!("the channels came first")
        };
        assert_eq!(sample.marks.iter().map(|m| m.at).collect::<Vec<_>>(), [1, 3]);
    }

    /// Otherwise a process that is new would have no name for a second.
    #[test]
    fn who_waits_for_a_request_is_woken_by_it_and_by_no_other() {
        let requests = Arc::new(Requests::default());
        let asker = requests.clone();
        let thread = std::thread::spawn(move || {
            for pids in [vec![], vec![7]] {
                std::thread::sleep(Duration::from_millis(20));
                let publishers = Vec::new();
                asker.set(Request {
                    blocks_of: Some(crate::model::ChannelKey(1, 1)),
                    listed: pids,
                    publishers,
                });
            }
        });
        // Longer than a test may take: only the request ends it.
        requests.sleep_unless(Duration::from_secs(100_000), |request| !request.pids().is_empty());
        assert_eq!(requests.newest().pids(), [7]);
        assert!(thread.join().is_ok());
    }
}
