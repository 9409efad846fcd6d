//! What a process is called: its command line as one line of text, and its label.

use std::io;

use gpumem_text::clean_line;

use super::label::label;
use crate::Root;
use crate::arguments::Arguments;
use crate::stat::Stat;

/// Length of the longest command shown, in characters.
const LENGTH: usize = 512;
/// Bytes of a command line that are shown: enough for characters of 4 bytes each.
const SHOWN: usize = 4 * LENGTH;

/// How a process is named.
pub(super) struct Named {
    /// The arguments separated by blanks.
    pub(super) command: String,
    /// The script, module or model that it runs.
    pub(super) label: String,
}

/// Reads how a process is named. One without arguments (kernel threads, zombies) has its name in brackets, as `ps` shows it.
pub(super) fn read(root: &Root, pid: u32, stat: &Stat) -> io::Result<Named> {
    let (mut bytes, whole) = match Arguments::read_bytes(root, pid) {
        Ok(read) => read,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => (Vec::new(), true),
        Err(e) => return Err(e),
    };
    let label = label(&Arguments::parse(&bytes, whole));
    bytes.truncate(SHOWN);
    bytes.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
    let line = clean_line(&bytes, LENGTH);
    let command = match line.is_empty() {
        false => line,
        true if stat.state == 'Z' => format!("[{}] <defunct>", stat.comm),
        true => format!("[{}]", stat.comm),
    };
    let label = if label.is_empty() { stat.comm.clone() } else { label };
    Ok(Named { command, label })
}
