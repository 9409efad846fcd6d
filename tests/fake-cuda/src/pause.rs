//! Calls that take as long as a test wants.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The call that waits, and for which file.
fn asked_for() -> Option<&'static (String, PathBuf)> {
    static ASKED_FOR: OnceLock<Option<(String, PathBuf)>> = OnceLock::new();
    let read = || {
        let text = std::env::var("FAKE_CUDA_PAUSE").ok()?;
        let (call, file) = text.split_once(':')?;
        Some((call.to_owned(), file.into()))
    };
    ASKED_FOR.get_or_init(read).as_ref()
}

/// Waits if this call is to. Nothing is locked meanwhile.
pub(crate) fn pause(name: &str) {
    static WAITING: AtomicBool = AtomicBool::new(false);
    let Some((_, file)) = asked_for().filter(|(call, _)| call == name) else {
        return;
    };
    if file.exists() && !WAITING.swap(true, Ordering::Relaxed) {
        wait_for(file);
        WAITING.store(false, Ordering::Relaxed);
    }
}

fn wait_for(file: &Path) {
    // Who waits for this is told nothing where it fails, and says so.
    let _ = std::fs::write(file, "waiting");
    while file.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
