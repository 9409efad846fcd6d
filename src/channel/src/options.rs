//! What a program may choose of its channel.

use std::path::PathBuf;

/// How large a channel is and what it says about its program.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory to publish in, made if its parent is there; `None` tries [`own_directories`](crate::own_directories). It must be in memory
    /// (tmpfs), belong to this user, be nobody else's to enter (mode 0700), and be no symbolic link. The dashboard looks into those of
    /// its own environment: give it the same one as `GPUMEM_DIR`.
    pub dir: Option<PathBuf>,
    /// Blocks it has room for (64 bytes each). Blocks beyond that are counted as untracked.
    pub blocks: u32,
    /// Segments it has room for (128 bytes each).
    pub segments: u32,
    /// Events it keeps (64 bytes each), rounded up to a power of two.
    pub events: u32,
    /// Different tags, names of pools and marks it has room for (128 bytes each); marks take three quarters at most.
    pub strings: u32,
    /// Devices it has room for (1.5 KiB each); at most 256.
    pub devices: u32,
    /// Lanes it has room for (1 KiB each, and their events); at most 63, and none if 0.
    pub lanes: u32,
    /// Events that it keeps of each lane (64 bytes each), rounded up to a power of two.
    pub lane_events: u32,
    /// Job label.
    pub job: String,
    /// Program name; `None` takes the executable's.
    pub program: Option<String>,
    /// Whether it is made smaller where it would take more than a sixteenth of its file system, which others need, too: a container's
    /// `/dev/shm` has 64 MiB, where the ranks of a job and the workers that load its data put theirs. Of blocks,
    /// segments and events, what takes most is halved as often as that takes.
    pub fit: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            dir: None,
            blocks: 65_536,
            segments: 4_096,
            events: 16_384,
            strings: 1_024,
            devices: 16,
            lanes: 8,
            lane_events: 8_192,
            job: std::env::var_os("GPUMEM_JOB")
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            program: None,
            fit: true,
        }
    }
}
