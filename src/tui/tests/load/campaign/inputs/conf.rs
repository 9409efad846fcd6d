//! Configurations of the allocator.

use gpumem_alloc::Config;
use gpumem_tests::{Random, World};

use super::{PROGRAM, TRACE, Tally, attempt, mutate, replay, run_with};

/// Real configurations, in PyTorch's syntax and ours.
const REAL: [&str; 8] = [
    "expandable_segments:True",
    "max_split_size_mb:128,garbage_collection_threshold:0.8",
    "backend:native,roundup_power2_divisions:[32:256,64:128,256:64,>:32],garbage_collection_threshold:0.8",
    "segments:stitched,budget_mb:4096,publish:on",
    "max_chunk_mb:64,cross_stream_reuse:on",
    "expandable_segments:False,per_process_memory_fraction:0.5",
    "pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
    " max_non_split_rounding_mb : 20 , roundup_power2_divisions:4",
];

const PIECES: [&[u8]; 16] = [
    b":",
    b",",
    b"[",
    b"]",
    b">",
    b"True",
    b"-1",
    b"0",
    b"nan",
    b"1e309",
    b"18446744073709551616",
    b"18446744073709551615",
    b"\x1b[2J",
    "\u{202e}".as_bytes(),
    "\u{1f600}".as_bytes(),
    b"budget_mb:1",
];

/// Tries `count` mutated configurations.
pub(crate) fn configurations(random: &mut Random, count: u64) -> Tally {
    let mut tally = Tally::default();
    let world = World::without_gpu();
    for text in REAL {
        Config::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    for n in 0..count {
        let mut bytes = REAL[random.below(REAL.len() as u64) as usize].as_bytes().to_vec();
        mutate(random, &mut bytes, &PIECES);
        let text = String::from_utf8_lossy(&bytes);
        let read = attempt(&bytes, || Config::parse(&text).map_err(|error| error.to_string()));
        tally.inputs += 1;
        tally.read += u64::from(read.is_some());
        tally.refused += u64::from(read.is_none());
        // No environment has a zero in it.
        if n % PROGRAM == 0 && !text.contains('\0') {
            let mut command = replay(&world, TRACE.as_ref());
            command.env("GPUMEM_ALLOC_CONF", &*text);
            tally.runs += 1;
            run_with(&bytes, command, if read.is_some() { &[0, 2] } else { &[2] });
        }
    }
    tally
}
