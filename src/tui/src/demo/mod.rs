//! The child process: a demo, which is this program run as `demo NAME --headless --json --steer`, or a benchmark, which is
//! `bench hierarchy --json --steer`.
//!
//! It publishes like any other program; its stdout only drives the Demo view. It ends with the dashboard: its stdin is closed, and
//! it is killed if it does not react (by the kernel if the dashboard could not).

mod hierarchy;
mod lines;
mod running;
#[cfg(test)]
mod tests;
mod translate;
mod turns;

use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::event::DemoEvent;
use lines::Lines;

pub(crate) use hierarchy::hierarchy;
pub(crate) use turns::Demos;

/// How long a child may take to free its memory and end.
const GRACE: Duration = Duration::from_secs(1);
/// How long a killed child may take to be gone, since freeing a GPU's memory takes time.
const KILLED: Duration = Duration::from_secs(1);
/// How long to wait for the rest of its stderr once it is gone.
const STDERR_GRACE: Duration = Duration::from_millis(100);
/// Most characters of the last line of stderr that are kept for the message.
const COMPLAINT: usize = 400;

/// The options of a demo, besides its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoOptions {
    /// Arguments for any demo, as on our own command line.
    pub shared: Vec<OsString>,
    /// A demo's name, and arguments for that one only.
    pub own: Option<(String, Vec<OsString>)>,
    /// The device, unless the demo is simulated.
    pub device: Option<String>,
}

impl DemoOptions {
    fn arguments_of(&self, name: &str) -> impl Iterator<Item = &OsString> {
        let own = self.own.iter().filter(move |(of, _)| of == name);
        self.shared.iter().chain(own.flat_map(|(_, arguments)| arguments))
    }
}

/// A running child.
#[derive(Debug)]
pub(crate) struct DemoChild {
    pid: u32,
    stdin: ChildStdin,
    events: mpsc::Receiver<DemoEvent>,
    kill: Arc<Notify>,
    task: JoinHandle<()>,
}

impl DemoChild {
    /// Starts demo `name`. Must be called on the main thread, since the child dies with the thread that started it.
    ///
    /// # Errors
    /// When this program cannot be executed again.
    pub(crate) fn spawn(name: &str, simulated: bool, options: &DemoOptions) -> std::io::Result<DemoChild> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["demo", name, "--headless", "--json", "--steer"]);
        command.arg("--parent").arg(std::process::id().to_string());
        let device = if simulated {
            Some("sim")
        } else {
            options.device.as_deref()
        };
        if let Some(device) = device {
            command.args(["--device", device]);
        }
        command.args(options.arguments_of(name));
        DemoChild::start(command)
    }

    /// Starts the measurement of a device's memory hierarchy. CUDA sees only these `devices`, of which it measures the first one: their
    /// UUIDs, separated by commas. Must be called on the main thread, too.
    ///
    /// # Errors
    /// When this program cannot be executed again.
    pub(crate) fn spawn_bench(devices: &str) -> std::io::Result<DemoChild> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "hierarchy", "--json", "--steer"]);
        command.arg("--parent").arg(std::process::id().to_string());
        command.env("CUDA_VISIBLE_DEVICES", devices);
        DemoChild::start(command)
    }

    fn start(mut command: Command) -> std::io::Result<DemoChild> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let missing = || std::io::Error::other("the child has no pipe");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let pid = child.id().ok_or_else(missing)?;
        running::add(pid);
        let (sender, events) = mpsc::channel(16);
        let kill = Arc::new(Notify::new());
        let listening = listen(child, stdout, sender, kill.clone());
        let task = tokio::spawn(async move {
            listening.await;
            running::forget(pid);
        });
        Ok(DemoChild {
            pid,
            stdin,
            events,
            kill,
            task,
        })
    }

    /// Resumes the child if it was stopped.
    pub(crate) fn resume(&self) {
        running::resume(self.pid);
    }

    /// Waits for the next event of the child. Pending forever after [`DemoEvent::Exited`].
    pub(crate) async fn next(&mut self) -> DemoEvent {
        match self.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Sends a line. Gives up after 100 ms if the child does not read it.
    pub(crate) async fn send(&mut self, line: &str) {
        let line = format!("{line}\n");
        let write = self.stdin.write_all(line.as_bytes());
        let _ = tokio::time::timeout(Duration::from_millis(100), write).await;
    }

    /// Ends the child by closing its stdin, and kills it if it does not end in time. When this returns the child is gone, unless it
    /// is stuck in the driver.
    pub(crate) async fn stop(self) {
        let DemoChild {
            stdin,
            events,
            kill,
            mut task,
            ..
        } = self;
        drop((stdin, events));
        if tokio::time::timeout(GRACE, &mut task).await.is_err() {
            kill.notify_one();
            if tokio::time::timeout(KILLED, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

/// Kills every child after a panic, and waits until they are gone.
pub(crate) fn end_at_once() {
    running::kill_all(KILLED);
}

/// Forwards the events of the child until it is gone. `kill` makes it kill the child.
async fn listen(mut child: Child, stdout: ChildStdout, sender: mpsc::Sender<DemoEvent>, kill: Arc<Notify>) {
    if let Some(pid) = child.id() {
        let _ = sender.send(DemoEvent::Spawned { pid }).await;
    }
    let complaints = child
        .stderr
        .take()
        .map(|stderr| tokio::spawn(lines::tail(stderr, COMPLAINT, sender.clone())));
    let killed = tokio::select! {
        () = forward(stdout, &sender) => false,
        () = kill.notified() => true,
    };
    if !killed {
        tokio::select! {
            _ = child.wait() => {}
            () = kill.notified() => {}
        }
    }
    // This has no effect on a child that has been waited for.
    let _ = child.start_kill();
    let how = match child.wait().await {
        Ok(status) => translate::exit(status),
        Err(error) => format!("waiting for it failed: {error}"),
    };
    let complaint = match complaints {
        // A process that the child left behind may hold the pipe open.
        Some(task) => match tokio::time::timeout(STDERR_GRACE, task).await {
            Ok(said) => said.unwrap_or_default(),
            Err(_) => String::new(),
        },
        None => String::new(),
    };
    let how = if complaint.is_empty() {
        how
    } else {
        format!("{how}: {complaint}")
    };
    let _ = sender.send(DemoEvent::Exited(how)).await;
}

/// Forwards the lines of the child until they end or the receiver is gone. The child ends once its stdout is closed.
async fn forward(stdout: ChildStdout, sender: &mpsc::Sender<DemoEvent>) {
    let mut lines = Lines::new(stdout);
    while let Some(line) = lines.next().await {
        let event = match line {
            Ok(line) => translate::line(&line),
            Err(error) => Some(DemoEvent::Failed(error)),
        };
        if let Some(event) = event
            && sender.send(event).await.is_err()
        {
            return;
        }
    }
}
