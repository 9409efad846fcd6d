//! The program, run once over a folder of mutants.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a report may take. An idle machine needs a tenth of a second.
const LIMIT: Duration = Duration::from_secs(20);

/// How a run ended.
pub(crate) struct Run {
    /// Its exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Runs a command to its end.
///
/// # Errors
/// When it is not done in time. It is ended then.
pub(crate) fn run(mut command: Command) -> Result<Run, String> {
    // Files: who does not read a pipe holds its writer up.
    let (mut stdout, mut stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    command.stdin(Stdio::null());
    command
        .stdout(stdout.try_clone().unwrap())
        .stderr(stderr.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("it was not done after {LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Ok(Run {
        code: status.code(),
        stdout: all(&mut stdout),
        stderr: all(&mut stderr),
    })
}

fn all(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}
