//! The settings from the environment, which the crate's documentation describes.

use std::ops::Range;
use std::path::PathBuf;

use crate::result;

/// The settings.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) total: u64,
    pub(crate) used: u64,
    pub(crate) devices: i32,
    pub(crate) init: i32,
    pub(crate) vmm: bool,
    pub(crate) peers: bool,
    pub(crate) rdma: bool,
    /// The call that refuses chunks for RDMA.
    pub(crate) rdma_refused_by: Option<String>,
    pub(crate) event_queries: u64,
    /// Whether a call with a handle that is not a stream ends the process.
    pub(crate) dead_streams_kill: bool,
    /// The name of a call, the range of its calls that fail, and their result.
    pub(crate) fail: Option<(String, Range<u64>, i32)>,
    /// The name of a call, and the file that it waits for.
    pub(crate) wait: Option<(String, PathBuf)>,
}

impl Settings {
    pub(crate) fn read() -> Settings {
        let number = |name: &str, default: u64| {
            let value = std::env::var(name).ok();
            value.and_then(|text| text.trim().parse().ok()).unwrap_or(default)
        };
        let signed = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        let fail = std::env::var("FAKE_CUDA_FAIL").ok();
        Settings {
            total: number("FAKE_CUDA_TOTAL", 8 << 30),
            used: number("FAKE_CUDA_USED", 0),
            devices: number("FAKE_CUDA_DEVICES", 1) as i32,
            init: signed("FAKE_CUDA_INIT"),
            vmm: number("FAKE_CUDA_VMM", 1) != 0,
            peers: number("FAKE_CUDA_PEERS", 1) != 0,
            rdma: number("FAKE_CUDA_RDMA", 1) != 0,
            rdma_refused_by: std::env::var("FAKE_CUDA_RDMA")
                .ok()
                .filter(|call| call.starts_with("cu")),
            event_queries: number("FAKE_CUDA_EVENT_QUERIES", 0),
            dead_streams_kill: number("FAKE_CUDA_DEAD_STREAMS_KILL", 0) != 0,
            fail: fail.and_then(|text| {
                let mut parts = text.split(':');
                let (call, first) = (parts.next()?, parts.next()?.parse().ok()?);
                let code = parts.next().map_or(Some(result::UNKNOWN), |code| code.parse().ok())?;
                let times: u64 = parts.next().map_or(Some(1), |times| times.parse().ok())?;
                Some((call.to_owned(), first..first + times, code))
            }),
            wait: std::env::var("FAKE_CUDA_WAIT").ok().and_then(|text| {
                let (call, path) = text.split_once(':')?;
                Some((call.to_owned(), path.into()))
            }),
        }
    }
}
