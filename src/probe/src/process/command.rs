//! A process's command line as one line of text.

use std::io;

use gpumem_text::clean_line;

use crate::Root;
use crate::stat::Stat;

/// Length of the longest command shown, in characters.
const LENGTH: usize = 512;
/// Bytes read: enough for characters of 4 bytes each. A command line may have megabytes.
const LIMIT: u64 = 4 * LENGTH as u64;

/// Returns the arguments separated by blanks. For a process without arguments (kernel threads, zombies) returns its
/// name in brackets, as `ps` shows it.
pub(super) fn read(root: &Root, pid: u32, stat: &Stat) -> io::Result<String> {
    let mut bytes = match root.read(format!("proc/{pid}/cmdline"), LIMIT) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Vec::new(),
        Err(e) => return Err(e),
    };
    bytes.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
    let line = clean_line(&bytes, LENGTH);
    Ok(match line.is_empty() {
        false => line,
        true if stat.state == 'Z' => format!("[{}] <defunct>", stat.comm),
        true => format!("[{}]", stat.comm),
    })
}
