//! `--json --watch`: a JSON document a sample, each on one line, until a signal ends it or nobody reads it any more.
//!
//! The sources run as in the dashboard, each on its own thread, so they keep their state, and a driver that hangs delays no other
//! source. A slow reader delays lines, but no signal: lines are written on a thread of their own.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::clock;
use crate::demo::{DemoOptions, Demos};
use crate::event::{DemoEvent, Event};
use crate::model::{Alert, Demo, Model, Only};
use crate::notify::Notifier;
use crate::report;
use crate::source::{self, Requests, Samples};
use crate::update::update;

/// How long a line waits for the samples of its tick. Sources sample at the same moment, and NVML takes 20 ms to answer.
const GATHER: Duration = Duration::from_millis(100);
/// How long the first line waits for a source that has not answered yet. The driver may take seconds for each GPU.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often to check whether anybody still reads.
const READER: Duration = Duration::from_secs(1);
/// How long a signal waits for the line that is being written.
const LAST_LINE: Duration = Duration::from_millis(200);

/// Why the lines ended.
type Exit = u8;

/// Prints documents until a signal or a closed stdout ends that. Returns the exit code. `alerts` are judged with each sample. `complain`
/// writes a line to stderr.
///
/// # Errors
/// When the system refuses a resource, stdout cannot be written to, or the simulated device has failed.
pub(crate) fn run(model: Model, alerts: Vec<Alert>, complain: &dyn Fn(&str)) -> io::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let ends = Ends::new()?;
        let mut watch = Watch::new(model, alerts, ends)?;
        let result = watch.run(complain).await;
        watch.demos.end().await;
        result
    });
    // Samplers may hang in the driver, and a line may wait for its reader: neither is joined.
    runtime.shutdown_background();
    result
}

/// The signals that end it.
struct Ends(mpsc::Receiver<u8>);

impl Ends {
    fn new() -> io::Result<Ends> {
        let (sender, receiver) = mpsc::channel(1);
        let wanted = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        for number in gpumem_demo::heeded(wanted.map(|kind| kind.as_raw_value())) {
            let stream = signal(SignalKind::from_raw(number))?;
            tokio::spawn(forward(stream, number as u8, sender.clone()));
        }
        Ok(Ends(receiver))
    }

    /// Waits for a signal and returns its number. Cancelling the future loses nothing.
    async fn next(&mut self) -> u8 {
        match self.0.recv().await {
            Some(number) => number,
            // Every signal is ignored.
            None => std::future::pending().await,
        }
    }
}

async fn forward(mut stream: Signal, number: u8, sender: mpsc::Sender<u8>) {
    while stream.recv().await.is_some() {
        if sender.send(number).await.is_err() {
            return;
        }
    }
}

struct Watch {
    model: Model,
    ends: Ends,
    samples: Samples,
    requests: Arc<Requests>,
    demos: Demos,
    notifier: Notifier,
    /// When the next line is due; `None` while the first one waits for its samples.
    due: Option<Instant>,
    began: Instant,
}

impl Watch {
    fn new(mut model: Model, alerts: Vec<Alert>, ends: Ends) -> io::Result<Watch> {
        model.now = clock::now();
        let requests = Arc::default();
        let mut demos = Demos::new(DemoOptions::default());
        if model.setup.only.contains(&Only::Simulated) {
            let name = model.setup.without_gpu.clone();
            demos.start(name.clone(), true);
            model.demo = Some(Demo {
                name,
                simulated: true,
                ..Demo::default()
            });
        }
        Ok(Watch {
            samples: source::start(&model.setup, &requests)?,
            notifier: Notifier::new(alerts, &model),
            model,
            ends,
            requests,
            demos,
            due: None,
            began: Instant::now(),
        })
    }

    async fn run(&mut self, complain: &dyn Fn(&str)) -> io::Result<Exit> {
        let mut reader = interval(READER);
        reader.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut explained = false;
        loop {
            let due = self.due.unwrap_or(self.began + PATIENCE);
            tokio::select! {
                biased;
                number = self.ends.next() => return Ok(128 + number),
                event = self.demos.next() => self.follow_demo(event)?,
                sampled = self.samples.next() => {
                    update(&mut self.model, clock::now(), Event::Sampled(Box::new(sampled)));
                    self.alert(complain);
                }
                why = self.notifier.next() => complain(&format!("gpumem-tui: {why}")),
                () = sleep_until(due) => {
                    if let Some(code) = self.print().await? {
                        return Ok(code);
                    }
                    if !explained && let Some(why) = report::nothing(&self.model) {
                        complain(&format!("gpumem-tui: {why}"));
                    }
                    explained = true;
                    self.due = Some(self.next_line());
                }
                _ = reader.tick() => if reader_is_gone() {
                    return Ok(0);
                },
            }
            if self.due.is_none() && self.has_everything() {
                // What one source found is asked of another, which then samples at once.
                self.due = Some(Instant::now() + GATHER);
            }
            self.requests.set(self.model.request());
        }
    }

    /// Judges the alerts, and tells of those that fire on stderr.
    fn alert(&mut self, complain: &dyn Fn(&str)) {
        let told = self.notifier.judge(&self.model);
        if !told.text.is_empty() {
            complain(&format!("gpumem-tui: {}", told.text));
        }
        let mut stderr = io::stderr();
        if told.bell && stderr.is_terminal() {
            // If stderr is closed, nobody hears it.
            let _ = stderr.write_all(b"\x07");
        }
    }

    /// Follows the simulated run. It ends only when it fails.
    fn follow_demo(&mut self, event: DemoEvent) -> io::Result<()> {
        if let DemoEvent::Failed(why) | DemoEvent::Exited(why) | DemoEvent::GaveUp { text: why, .. } = &event {
            let text = format!("the simulated training run failed: {why}");
            return Err(io::Error::other(text));
        }
        update(&mut self.model, clock::now(), Event::Demo(event));
        Ok(())
    }

    /// Checks whether the first line can be complete: each source has sampled, and a simulated device is there.
    fn has_everything(&self) -> bool {
        let world = self.model.world();
        let demo = self.model.demo.as_ref();
        let awaited = demo.is_some_and(|demo| demo.unpublished.is_none()) && world.devices.is_empty();
        world.times.iter().len() == self.samples.sources() && !awaited
    }

    /// Returns when the line of the next tick is due. Ticks that passed while a line waited for its reader have none.
    fn next_line(&self) -> Instant {
        let pace = Duration::from_nanos(self.model.setup.interval);
        let tick = source::tick_after(pace).saturating_sub(clock::now());
        Instant::now() + Duration::from_nanos(tick) + GATHER.min(pace / 2)
    }

    /// Prints a line. A signal ends the wait for a reader.
    async fn print(&mut self) -> io::Result<Option<Exit>> {
        let document = report::document(&self.model)?;
        let mut writing = tokio::task::spawn_blocking(move || {
            let mut out = gpumem_demo::stdout();
            writeln!(out, "{document}").and_then(|()| out.flush())
        });
        let written = tokio::select! {
            written = &mut writing => written,
            number = self.ends.next() => {
                // Nobody may read it. Otherwise the last line is complete.
                let _ = timeout(LAST_LINE, writing).await;
                return Ok(Some(128 + number));
            }
        };
        match written? {
            Ok(()) => Ok(None),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Some(0)),
            Err(error) => Err(io::Error::new(error.kind(), format!("cannot write to stdout: {error}"))),
        }
    }
}

/// Checks whether stdout is a pipe or socket that nobody reads any more. The next write would tell, too, but may be an hour away.
fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && fds[0].revents().contains(PollFlags::ERR)
}
