//! Runs one demo or benchmark at a time, since each would disturb the other. The next one starts when the last one is gone; if several were requested meanwhile, only the latest one
//! starts.

use tokio::task::JoinHandle;

use super::{DemoChild, DemoOptions};
use crate::event::DemoEvent;

/// The running demo, or the previous one while it ends.
#[derive(Debug)]
pub(crate) struct Demos {
    options: DemoOptions,
    child: Option<DemoChild>,
    /// The task that ends the last child. `Some` only while `child` is `None`.
    ending: Option<JoinHandle<()>>,
    next: Option<Requested>,
}

/// A child that was requested and has not started.
#[derive(Debug)]
enum Requested {
    Demo { name: String, simulated: bool },
    Bench { devices: String },
}

impl Demos {
    /// Creates the runner. Each demo is started with these options.
    pub(crate) fn new(options: DemoOptions) -> Demos {
        Demos {
            options,
            child: None,
            ending: None,
            next: None,
        }
    }

    /// Ends the running demo. [`Demos::next`] starts the new one once that is gone.
    pub(crate) fn start(&mut self, name: String, simulated: bool) {
        self.stop();
        self.next = Some(Requested::Demo { name, simulated });
    }

    /// Ends the running demo, and measures a device's memory hierarchy once that is gone.
    pub(crate) fn start_bench(&mut self, devices: String) {
        self.stop();
        self.next = Some(Requested::Bench { devices });
    }

    /// Ends the demo in the background. Its further events are dropped.
    pub(crate) fn stop(&mut self) {
        self.next = None;
        if let Some(child) = self.child.take() {
            self.ending = Some(tokio::spawn(child.stop()));
        }
    }

    /// Sends a line to the running demo.
    pub(crate) async fn send(&mut self, line: &str) {
        if let Some(child) = &mut self.child {
            child.send(line).await;
        }
    }

    /// Resumes the demo if it was stopped.
    pub(crate) fn resume(&self) {
        self.child.iter().for_each(DemoChild::resume);
    }

    /// Waits for the next event of the demo. Starts a requested one, so it must be called on the main thread. Cancelling the future
    /// loses nothing.
    pub(crate) async fn next(&mut self) -> DemoEvent {
        self.gone().await;
        if let Some(requested) = self.next.take() {
            let (name, started) = match requested {
                Requested::Demo { name, simulated } => {
                    let started = DemoChild::spawn(&name, simulated, &self.options);
                    (name, started)
                }
                Requested::Bench { devices } => ("the benchmark".to_owned(), DemoChild::spawn_bench(&devices)),
            };
            match started {
                Ok(child) => self.child = Some(child),
                Err(error) => return DemoEvent::Failed(format!("{name} could not be started: {error}")),
            }
        }
        let Some(child) = &mut self.child else {
            return std::future::pending().await;
        };
        let event = child.next().await;
        if matches!(event, DemoEvent::Exited(_)) {
            self.child = None;
        }
        event
    }

    /// Ends the running demo and waits until no demo is left.
    pub(crate) async fn end(&mut self) {
        self.stop();
        self.gone().await;
    }

    async fn gone(&mut self) {
        if let Some(ending) = &mut self.ending {
            // It fails only if the runtime shuts down, which ends the child, too.
            let _ = ending.await;
            self.ending = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::demo::GRACE;
    use crate::demo::tests::{is_there, run, shell};

    /// Returns the next event if it comes within a moment.
    async fn for_a_moment(demos: &mut Demos) -> Option<DemoEvent> {
        tokio::time::timeout(Duration::from_millis(200), demos.next())
            .await
            .ok()
    }

    #[test]
    fn latest_requested_demo_starts_after_the_last_ends() {
        run(async {
            let mut demos = Demos::new(DemoOptions::default());
            // It ends only when it is killed after the grace period.
            let last = shell("trap '' TERM HUP INT; echo; while :; do sleep 60; done");
            let pid = last.pid;
            demos.child = Some(last);
            for n in 0..300 {
                demos.start(format!("demo {n}"), true);
            }
            let began = Instant::now();
            assert_eq!(for_a_moment(&mut demos).await, None, "the last one is still there");
            assert!(is_there(pid) && demos.child.is_none());
            // The executable is the test program here, which does not know these arguments and ends.
            assert!(matches!(demos.next().await, DemoEvent::Spawned { .. }));
            assert!(!is_there(pid) && began.elapsed() > GRACE / 2);
            assert!(demos.next.is_none() && demos.ending.is_none());
            demos.end().await;
        });
    }

    #[test]
    fn cancelled_request_starts_nothing() {
        run(async {
            let mut demos = Demos::new(DemoOptions::default());
            let last = shell("cat");
            let folder = format!("/proc/{}", last.pid);
            demos.child = Some(last);
            demos.start("train".into(), true);
            demos.stop();
            assert_eq!(for_a_moment(&mut demos).await, None);
            assert!(demos.child.is_none() && demos.ending.is_none() && !Path::new(&folder).exists());
        });
    }
}
