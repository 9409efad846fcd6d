//! The demo's child process: this program again, as `demo NAME --headless --json --steer`.
//!
//! It publishes like any other program; what it says on stdout only drives the Demo view. It ends with us: its stdin
//! ends when we do, and the kernel kills it should it not listen.

mod lines;
mod translate;

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::event::DemoEvent;
use lines::Lines;

/// How long a child may take to free its memory and go.
const GRACE: Duration = Duration::from_secs(1);
/// How much of a child's complaints is kept for the message.
const COMPLAINT: usize = 400;

/// What a demo is started with, besides its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DemoOptions {
    /// Arguments for the child, as on our own command line.
    pub arguments: Vec<OsString>,
    /// Device for the child when it is not to be simulated.
    pub device: Option<String>,
}

/// A running child.
#[derive(Debug)]
pub struct DemoChild {
    stdin: ChildStdin,
    news: mpsc::Receiver<DemoEvent>,
    task: JoinHandle<()>,
}

impl DemoChild {
    /// Starts demo `name`. Call it on the main thread: the child dies with the thread that started it.
    ///
    /// # Errors
    /// When this program cannot be run again.
    pub fn spawn(name: &str, simulated: bool, options: &DemoOptions) -> std::io::Result<DemoChild> {
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
        command.args(&options.arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let missing = || std::io::Error::other("the child has no pipe");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let (sender, news) = mpsc::channel(16);
        let task = tokio::spawn(listen(child, stdout, sender));
        Ok(DemoChild { stdin, news, task })
    }

    /// The next thing the child says or does; for ever pending once it has said that it is gone.
    pub async fn next(&mut self) -> DemoEvent {
        match self.news.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }

    /// Sends a line. A child that does not listen is told off by its silence, not by making us wait.
    pub async fn tell(&mut self, line: &str) {
        let line = format!("{line}\n");
        let write = self.stdin.write_all(line.as_bytes());
        let _ = tokio::time::timeout(Duration::from_millis(100), write).await;
    }

    /// Ends the child: politely by the end of its input, then by force.
    pub async fn stop(self) {
        let DemoChild { stdin, news, mut task } = self;
        drop((stdin, news));
        if tokio::time::timeout(GRACE, &mut task).await.is_err() {
            task.abort();
            let _ = task.await;
        }
    }
}

/// Passes on what the child says until it is gone.
async fn listen(mut child: Child, stdout: ChildStdout, sender: mpsc::Sender<DemoEvent>) {
    if let Some(pid) = child.id() {
        let _ = sender.send(DemoEvent::Spawned { pid }).await;
    }
    let complaints = child
        .stderr
        .take()
        .map(|stderr| tokio::spawn(lines::tail(stderr, COMPLAINT)));
    let mut lines = Lines::new(stdout);
    while let Some(line) = lines.next().await {
        let news = match line {
            Ok(line) => translate::line(&line),
            Err(error) => Some(DemoEvent::Failed(error)),
        };
        if let Some(news) = news
            && sender.send(news).await.is_err()
        {
            // Nobody listens any more. With its output closed the child ends as well.
            break;
        }
    }
    drop(lines);
    let how = match child.wait().await {
        Ok(status) => translate::exit(status),
        Err(error) => format!("waiting for it failed: {error}"),
    };
    let complaint = match complaints {
        Some(task) => task.await.unwrap_or_default(),
        None => String::new(),
    };
    let how = if complaint.is_empty() {
        how
    } else {
        format!("{how}: {complaint}")
    };
    let _ = sender.send(DemoEvent::Exited(how)).await;
}
