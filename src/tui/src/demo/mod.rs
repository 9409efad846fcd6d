//! The demo's child process: this program again, as `demo NAME --headless --json --steer`.
//!
//! It publishes like any other program; what it says on stdout only drives the Demo view. It ends with us: its stdin
//! ends when we do, and it is killed should it not listen (by the kernel where we could not).

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

pub(crate) use turns::Demos;

/// How long a child may take to free its memory and go.
const GRACE: Duration = Duration::from_secs(1);
/// How long a killed child may take to be gone: it frees a GPU's memory on its way.
const KILLED: Duration = Duration::from_secs(1);
/// How long its complaints are waited for once it is gone.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How much of a child's complaints is kept for the message.
const COMPLAINT: usize = 400;

/// What a demo is started with, besides its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoOptions {
    /// Arguments for whichever demo is chosen, as on our own command line.
    pub shared: Vec<OsString>,
    /// A demo's name, and arguments for that one only.
    pub own: Option<(String, Vec<OsString>)>,
    /// Device for the child when it is not to be simulated.
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
    news: mpsc::Receiver<DemoEvent>,
    kill: Arc<Notify>,
    task: JoinHandle<()>,
}

impl DemoChild {
    /// Starts demo `name`. Call it on the main thread: the child dies with the thread that started it.
    ///
    /// # Errors
    /// When this program cannot be run again.
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
        let (sender, news) = mpsc::channel(16);
        let kill = Arc::new(Notify::new());
        let listening = listen(child, stdout, sender, kill.clone());
        let task = tokio::spawn(async move {
            listening.await;
            running::forget(pid);
        });
        Ok(DemoChild {
            pid,
            stdin,
            news,
            kill,
            task,
        })
    }

    /// Lets it go on if it was stopped.
    pub(crate) fn go_on(&self) {
        running::go_on(self.pid);
    }

    /// The next thing the child says or does; for ever pending once it has said that it is gone.
    pub(crate) async fn next(&mut self) -> DemoEvent {
        match self.news.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }

    /// Sends a line. A child that does not listen is told off by its silence, not by making us wait.
    pub(crate) async fn tell(&mut self, line: &str) {
        let line = format!("{line}\n");
        let write = self.stdin.write_all(line.as_bytes());
        let _ = tokio::time::timeout(Duration::from_millis(100), write).await;
    }

    /// Ends the child: politely by the end of its input, then by force. When this returns nothing is left of it, unless it
    /// is stuck in a driver where no signal reaches it.
    pub(crate) async fn stop(self) {
        let DemoChild {
            stdin,
            news,
            kill,
            mut task,
            ..
        } = self;
        drop((stdin, news));
        if tokio::time::timeout(GRACE, &mut task).await.is_err() {
            kill.notify_one();
            if tokio::time::timeout(KILLED, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

/// Kills every child on the way out of a panic, and waits for its end.
pub(crate) fn end_at_once() {
    running::kill_all(KILLED);
}

/// Passes on what the child says until it is gone, which `kill` brings about.
async fn listen(mut child: Child, stdout: ChildStdout, sender: mpsc::Sender<DemoEvent>, kill: Arc<Notify>) {
    if let Some(pid) = child.id() {
        let _ = sender.send(DemoEvent::Spawned { pid }).await;
    }
    let complaints = child
        .stderr
        .take()
        .map(|stderr| tokio::spawn(lines::tail(stderr, COMPLAINT, sender.clone())));
    let silenced = tokio::select! {
        () = pass_on(stdout, &sender) => false,
        () = kill.notified() => true,
    };
    if !silenced {
        tokio::select! {
            _ = child.wait() => {}
            () = kill.notified() => {}
        }
    }
    // Does nothing to a child that has been waited for.
    let _ = child.start_kill();
    let how = match child.wait().await {
        Ok(status) => translate::exit(status),
        Err(error) => format!("waiting for it failed: {error}"),
    };
    let complaint = match complaints {
        // A process of its own that it left behind may hold the pipe open.
        Some(task) => match tokio::time::timeout(LAST_WORDS, task).await {
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

/// Passes on the lines of the child until they end, or nobody listens any more: with its output closed the child ends
/// as well.
async fn pass_on(stdout: ChildStdout, sender: &mpsc::Sender<DemoEvent>) {
    let mut lines = Lines::new(stdout);
    while let Some(line) = lines.next().await {
        let news = match line {
            Ok(line) => translate::line(&line),
            Err(error) => Some(DemoEvent::Failed(error)),
        };
        if let Some(news) = news
            && sender.send(news).await.is_err()
        {
            return;
        }
    }
}
