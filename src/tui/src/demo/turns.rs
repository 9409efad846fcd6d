//! One demo at a time: the next one starts when nothing is left of the last, and of several that were wanted meanwhile
//! the latest does.

use tokio::task::JoinHandle;

use super::{DemoChild, DemoOptions};
use crate::event::DemoEvent;

/// The demo that runs, or the one before it on its way out.
#[derive(Debug)]
pub(crate) struct Demos {
    options: DemoOptions,
    child: Option<DemoChild>,
    /// The last child's end. Only without a child.
    ending: Option<JoinHandle<()>>,
    next: Option<Wanted>,
}

/// A demo that has not started.
#[derive(Debug)]
struct Wanted {
    name: String,
    simulated: bool,
}

impl Demos {
    /// None yet. Each is started with these options.
    pub(crate) fn new(options: DemoOptions) -> Demos {
        Demos {
            options,
            child: None,
            ending: None,
            next: None,
        }
    }

    /// Ends the demo that runs, and has this one started by [`Demos::next`] once that is gone.
    pub(crate) fn start(&mut self, name: String, simulated: bool) {
        self.stop();
        self.next = Some(Wanted { name, simulated });
    }

    /// Lets the demo go in the background; what it still says is nobody's news.
    pub(crate) fn stop(&mut self) {
        self.next = None;
        if let Some(child) = self.child.take() {
            self.ending = Some(tokio::spawn(child.stop()));
        }
    }

    /// Sends the demo that runs a line.
    pub(crate) async fn tell(&mut self, line: &str) {
        if let Some(child) = &mut self.child {
            child.tell(line).await;
        }
    }

    /// Lets the demo go on if it was stopped.
    pub(crate) fn go_on(&self) {
        self.child.iter().for_each(DemoChild::go_on);
    }

    /// The next thing that the demo says or does. Starts the one that is wanted, so it is called on the main thread. Cancelling
    /// the future loses nothing.
    pub(crate) async fn next(&mut self) -> DemoEvent {
        self.gone().await;
        if let Some(Wanted { name, simulated }) = self.next.take() {
            match DemoChild::spawn(&name, simulated, &self.options) {
                Ok(child) => self.child = Some(child),
                Err(error) => return DemoEvent::Failed(format!("{name} could not be started: {error}")),
            }
        }
        let Some(child) = &mut self.child else {
            return std::future::pending().await;
        };
        let news = child.next().await;
        if matches!(news, DemoEvent::Exited(_)) {
            self.child = None;
        }
        news
    }

    /// Waits until nothing is left of any demo, having ended the one that runs.
    pub(crate) async fn end(&mut self) {
        self.stop();
        self.gone().await;
    }

    async fn gone(&mut self) {
        if let Some(ending) = &mut self.ending {
            // It fails only where the runtime is going, and the child with it.
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

    /// Waits for nothing but what is there to be done now.
    async fn for_a_moment(demos: &mut Demos) -> Option<DemoEvent> {
        tokio::time::timeout(Duration::from_millis(200), demos.next())
            .await
            .ok()
    }

    #[test]
    fn the_next_one_waits_for_the_end_of_the_last_and_the_latest_wish_wins() {
        run(async {
            let mut demos = Demos::new(DemoOptions::default());
            // Nothing but a second's patience ends it.
            let last = shell("trap '' TERM HUP INT; echo; while :; do sleep 60; done");
            let pid = last.pid;
            demos.child = Some(last);
            for n in 0..300 {
                demos.start(format!("demo {n}"), true);
            }
            let began = Instant::now();
            assert_eq!(for_a_moment(&mut demos).await, None, "the last one is still there");
            assert!(is_there(pid) && demos.child.is_none());
            // The test's program is no dashboard: what it is started with is no news of a demo, and it ends.
            assert!(matches!(demos.next().await, DemoEvent::Spawned { .. }));
            assert!(!is_there(pid) && began.elapsed() > GRACE / 2);
            assert!(demos.next.is_none() && demos.ending.is_none());
            demos.end().await;
        });
    }

    #[test]
    fn a_wish_that_was_taken_back_starts_nothing() {
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
