//! The program, run once over a folder of mutants.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a report may take. It takes a tenth of a second on an idle machine.
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
/// If it does not end in time. It is killed then.
pub(crate) fn run(mut command: Command) -> Result<Run, String> {
    // Files, because a pipe that is not read would block the program.
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
