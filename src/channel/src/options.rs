//! Options of a channel.

use std::path::PathBuf;

/// The sizes of a channel, and what it says about its program.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory to publish in, created if its parent exists; `None` tries [`own_directories`](crate::own_directories).
    /// It must be in memory (tmpfs), belong to this user, be closed to other users (mode 0700), and not be a symbolic
    /// link. The dashboard searches the directories of its own environment: set `GPUMEM_DIR` to the same directory for
    /// it.
    pub dir: Option<PathBuf>,
    /// Size of the block table (64 bytes a block). Further blocks are counted as untracked.
    pub blocks: u32,
    /// Size of the segment table (128 bytes a segment).
    pub segments: u32,
    /// Size of the event ring (64 bytes an event), rounded up to a power of two.
    pub events: u32,
    /// Size of the string table (128 bytes a string), which holds tags, pool names and marks. Marks take at most three
    /// quarters of it.
    pub strings: u32,
    /// Size of the device table (1.5 KiB a device); at most 256.
    pub devices: u32,
    /// Number of lanes (1 KiB each, and their events); at most 63.
    pub lanes: u32,
    /// Size of each lane's event ring (64 bytes an event), rounded up to a power of two.
    pub lane_events: u32,
    /// Size of the table of managed ranges (64 bytes a range).
    pub managed: u32,
    /// Size of the table of managed blocks (128 bytes for 2 MiB), for publishers that know where their pages are; none by
    /// default.
    pub managed_blocks: u32,
    /// Whether the publisher samples another allocator. It then says when it did, and what its process uses outside of that allocator.
    pub sampled: bool,
    /// The process that the channel is about, if that is not this one: its parent, say. It must be of the same pid
    /// namespace and user, or readers do not believe it. This process is the life sign, and has to end with that one.
    pub process: Option<u32>,
    /// Label of the job; empty for none.
    pub job: String,
    /// The ranks of the process in a distributed job; `None` reads them from this process's environment.
    pub ranks: Option<Ranks>,
    /// Name of the program; `None` uses that of the executable.
    pub program: Option<String>,
    /// Whether the channel is made smaller if it would take more than a sixteenth of its file system. A container's
    /// `/dev/shm` has 64 MiB, which the ranks of a job and their data loaders share. The largest of the block, segment
    /// and event tables is halved until the channel fits.
    pub fit: bool,
}

/// The place of a process in a distributed job. What is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Its number among all processes of the job (`RANK`).
    pub rank: Option<u32>,
    /// Its number among those on this machine (`LOCAL_RANK`).
    pub local_rank: Option<u32>,
    /// The number of processes of the job (`WORLD_SIZE`).
    pub world_size: Option<u32>,
}

impl Ranks {
    /// Returns the ranks that launchers set in this process's environment.
    pub(crate) fn of_environment() -> Ranks {
        let rank = |name| std::env::var(name).ok().and_then(|v: String| v.parse().ok());
        Ranks {
            rank: rank("RANK"),
            local_rank: rank("LOCAL_RANK"),
            world_size: rank("WORLD_SIZE"),
        }
    }
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
            managed: 256,
            managed_blocks: 0,
            sampled: false,
            process: None,
            job: std::env::var_os("GPUMEM_JOB")
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            ranks: None,
            program: None,
            fit: true,
        }
    }
}
