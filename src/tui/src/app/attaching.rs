//! Attaching to a process: the program itself does it, as another process, so that nothing here waits for it.

use std::process::Stdio;

use gpumem_text::clean_line;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::event::Event;

/// Longest sentence that is taken over.
const MOST: usize = 1024;

/// The processes that are being attached to.
pub(super) struct Attaching {
    sender: mpsc::UnboundedSender<Event>,
    results: mpsc::UnboundedReceiver<Event>,
}

impl Default for Attaching {
    fn default() -> Self {
        // There is one event for each request of the user.
        let (sender, results) = mpsc::unbounded_channel();
        Attaching { sender, results }
    }
}

impl Attaching {
    /// Begins to attach to a process.
    pub(super) fn start(&self, pid: u32) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let result = attach(pid).await;
            // The dashboard may have ended.
            let _ = sender.send(Event::Attached { pid, result });
        });
    }

    /// Waits for the next result. Cancelling this loses nothing.
    pub(super) async fn next(&mut self) -> Event {
        match self.results.recv().await {
            Some(event) => event,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }
}

async fn attach(pid: u32) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["attach", &pid.to_string()]).stdin(Stdio::null());
    let output = command.output().await.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(clean_line(&output.stdout, MOST));
    }
    let text = clean_line(&output.stderr, MOST);
    let why = text.split_once(&format!("cannot attach to {pid}: "));
    Err(why.map_or(text.as_str(), |(_, why)| why).to_owned())
}
