//! The dashboard's main loop: turns input into events, performs effects, and draws.
//!
//! It runs on one thread and never waits for a driver, a file or a slow terminal.

mod attaching;
mod screen;
mod signals;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::clock;
use crate::demo::{DemoOptions, Demos};
use crate::event::{Effect, Ending, Event};
use crate::input::Input;
use crate::model::{Alert, Demo, Model};
use crate::notify::Notifier;
use crate::source::{self, Requests, Samples};
use crate::terminal;
use crate::update::update;

use attaching::Attaching;
use screen::Screen;
use signals::Signals;

/// Least time between frames: at most 30 a second.
const FRAME: Duration = Duration::from_millis(33);
/// How long a redraw waits for other samples. Samplers sample at the same moment, and NVML takes 20 ms to answer.
const SAMPLE_DELAY: Duration = Duration::from_millis(30);

/// How long ending a demo may take before a message is printed.
const QUIET_END: Duration = Duration::from_millis(200);

/// How the dashboard ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit code.
    pub code: u8,
    /// Why the demo that it was started for failed, if it did.
    pub failed: Option<String>,
}

/// Runs the dashboard on this terminal until it ends. If the model has a demo, that is started with the options `demo`. `alerts` are judged
/// with each sample.
///
/// # Errors
/// When there is no terminal, or the system refuses a resource that the dashboard needs.
pub(crate) fn run(model: Model, demo: DemoOptions, alerts: Vec<Alert>) -> io::Result<Ended> {
    terminal::open()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    terminal::restore_on_panic(crate::demo::end_at_once);
    terminal::restore_on_abort();
    let result = runtime.block_on(async {
        // Signals are handled before the terminal is taken over, since a signal would otherwise end us without restoring it,
        // and before its size is read, so that no change of the size is missed.
        let signals = Signals::new()?;
        terminal::enter()?;
        let mut app = App::new(model, demo, alerts, signals)?;
        let result = app.run().await;
        // The terminal is restored first, since ending a demo takes a moment.
        terminal::leave();
        app.end_demos().await;
        let demo = app.model.demo.as_ref();
        let failed = demo.and_then(|demo| Some(demo.failure()?.1.to_owned()));
        result.map(|code| Ended { code, failed })
    });
    terminal::leave();
    // Samplers may hang in the driver, so they are not joined.
    runtime.shutdown_background();
    result
}

struct App {
    model: Model,
    screen: Screen,
    input: Input,
    signals: Signals,
    samples: Samples,
    requests: Arc<Requests>,
    demos: Demos,
    attaching: Attaching,
    notifier: Notifier,
    /// When the next frame is due; `None` when nothing changed.
    due: Option<Instant>,
    drawn: Instant,
}

/// The exit code with which the loop ends.
type Exit = u8;

impl App {
    fn new(mut model: Model, demo: DemoOptions, alerts: Vec<Alert>, signals: Signals) -> io::Result<App> {
        (model.ui.term.width, model.ui.term.height) = screen::size();
        model.now = clock::now();
        let mut app = App {
            screen: Screen::new(model.ui.term)?,
            input: Input::new(terminal::keyboard()?)?,
            signals,
            notifier: Notifier::new(alerts, &model),
            model,
            samples: Samples::default(),
            requests: Arc::default(),
            demos: Demos::new(demo),
            attaching: Attaching::default(),
            due: None,
            drawn: Instant::now(),
        };
        // The first frame is drawn before anything that takes time.
        app.draw()?;
        app.samples = source::start(&app.model.setup, &app.requests)?;
        Ok(app)
    }

    async fn run(&mut self) -> io::Result<Exit> {
        if let Some(Demo { name, simulated, .. }) = &self.model.demo {
            self.demos.start(name.clone(), *simulated);
        }
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let due = self.due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let events = tokio::select! {
                biased;
                signal = self.signals.next() => match signal {
                    signals::Signal::End(number) => vec![Event::End(Ending::Signal(number))],
                    signals::Signal::Resize => {
                        let (width, height) = screen::size();
                        vec![Event::Resize { width, height }]
                    }
                    signals::Signal::Resume => {
                        self.demos.resume();
                        vec![Event::Resumed]
                    }
                    signals::Signal::Stop => {
                        self.suspend().await?;
                        vec![Event::Resumed]
                    }
                },
                keys = self.input.next() => match keys {
                    Ok(Some(events)) => events,
                    Ok(None) | Err(_) => vec![Event::End(Ending::TerminalGone)],
                },
                sampled = self.samples.next() => vec![Event::Sampled(Box::new(sampled))],
                event = self.demos.next() => vec![Event::Demo(event)],
                event = self.attaching.next() => vec![event],
                why = self.notifier.next() => vec![Event::Alert(why)],
                drained = self.screen.drain(), if self.screen.busy() => match drained {
                    Ok(()) => continue,
                    Err(_) => vec![Event::End(Ending::TerminalGone)],
                },
                () = sleep_until(due), if self.due.is_some() && !self.screen.busy() => {
                    match self.draw() {
                        Ok(()) => continue,
                        Err(_) => vec![Event::End(Ending::TerminalGone)],
                    }
                }
                _ = ticks.tick() => vec![Event::Tick],
            };
            let sampled = events.iter().any(|event| matches!(event, Event::Sampled(_)));
            for event in events {
                if let Event::Resize { .. } = event {
                    self.screen.forget();
                }
                if let Some(code) = self.apply(event).await? {
                    return Ok(code);
                }
            }
            if sampled {
                self.alert().await?;
            }
            self.requests.set(self.model.request());
        }
    }

    /// Applies an event to the model and performs the effects.
    async fn apply(&mut self, event: Event) -> io::Result<Option<Exit>> {
        for effect in update(&mut self.model, clock::now(), event) {
            if let Some(code) = self.carry_out(effect).await? {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// Judges the alerts, and tells the user of those that fire.
    async fn alert(&mut self) -> io::Result<()> {
        let told = self.notifier.judge(&self.model);
        if !told.text.is_empty() {
            // It shows a message, which ends nothing.
            self.apply(Event::Alert(told.text)).await?;
        }
        match told.bell {
            true => self.screen.ring(),
            false => Ok(()),
        }
    }

    async fn carry_out(&mut self, effect: Effect) -> io::Result<Option<Exit>> {
        match effect {
            Effect::Draw => self.draw_in(Duration::ZERO),
            Effect::DrawSoon => self.draw_in(SAMPLE_DELAY),
            Effect::Repaint => {
                self.screen.forget();
                self.draw_in(Duration::ZERO);
            }
            Effect::Quit(code) => return Ok(Some(code)),
            Effect::Suspend if signals::has_shell() => {
                self.suspend().await?;
                return Box::pin(self.apply(Event::Resumed)).await;
            }
            Effect::Suspend => return Box::pin(self.apply(Event::CannotSuspend)).await,
            Effect::StartDemo { name, simulated } => self.demos.start(name, simulated),
            Effect::StartBench { devices } => self.demos.start_bench(devices),
            Effect::SendToDemo(line) => self.demos.send(&line).await,
            Effect::StopDemo => self.demos.stop(),
            Effect::Attach { pid } => self.attaching.start(pid),
        }
        Ok(None)
    }

    /// Waits until no demo is left, and prints a message if that takes long.
    async fn end_demos(&mut self) {
        let mut ended = std::pin::pin!(self.demos.end());
        if tokio::time::timeout(QUIET_END, &mut ended).await.is_err() {
            terminal::say("gpumem-tui: ending the demo ...");
            ended.await;
            terminal::unsay();
        }
    }

    /// Restores the terminal and suspends, as Ctrl-Z does. Returns when the shell resumes us.
    async fn suspend(&mut self) -> io::Result<()> {
        terminal::leave();
        self.signals.stop().await?;
        terminal::enter()?;
        (self.model.ui.term.width, self.model.ui.term.height) = screen::size();
        self.screen.forget();
        Ok(())
    }

    /// Schedules a frame after `wait`, but not sooner than the frame rate allows.
    fn draw_in(&mut self, wait: Duration) {
        let at = (Instant::now() + wait).max(self.drawn + FRAME);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn draw(&mut self) -> io::Result<()> {
        self.due = None;
        self.drawn = Instant::now();
        let hits = self.screen.draw(&self.model)?;
        update(&mut self.model, clock::now(), Event::Drawn(Box::new(hits)));
        Ok(())
    }
}
