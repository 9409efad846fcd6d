//! The signals that end a demo or benchmark.

use crate::control::Signals;

/// Returns the signals that a process ignores, as bits from 1 on, parsed from `/proc/PID/status`; none if they are not there.
fn ignored_signals(status: &[u8]) -> u64 {
    // The kernel cuts the program's name after 15 bytes, possibly within a character.
    let status = String::from_utf8_lossy(status);
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Returns those of `wanted` that this process does not ignore. What is ignored at the start (nohup, a job in the background of a script)
/// has to stay ignored.
pub fn heeded<const N: usize>(wanted: [i32; N]) -> impl Iterator<Item = i32> {
    let ignored = ignored_signals(&std::fs::read("/proc/self/status").unwrap_or_default());
    wanted
        .into_iter()
        .filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// Lets SIGTERM, SIGINT and SIGHUP end a demo or benchmark, so that it frees its memory and closes its channel. A second signal kills it
/// at once, in case it hangs in the driver.
pub(crate) fn listen_to_signals(signals: Signals) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut heard = signal_hook::iterator::Signals::new(heeded([SIGTERM, SIGINT, SIGHUP]))?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for (count, signal) in heard.forever().enumerate() {
            if count > 0 {
                std::process::exit(128 + signal);
            }
            signals.send(signal);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_parsed_from_proc_status() {
        assert_eq!(
            ignored_signals(b"Name:\tx\xd0\nSigIgn:\t0000000000001001\nSigCgt:\t03\n"),
            0x1001
        );
        for nothing in ["", "SigIgn:", "SigIgn:\tnonsense"] {
            assert_eq!(ignored_signals(nothing.as_bytes()), 0, "{nothing}");
        }
    }
}
