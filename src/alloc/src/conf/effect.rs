//! What of PyTorch's options has no effect beside others.
//!
//! PyTorch takes them together, so they are no error: what has no effect is left out of the configuration, and noted.

use super::note::note;
use crate::config::{Config, SegmentMode};

/// Leaves out what has no effect in a configuration whose text has these options.
pub(super) fn settle(config: &mut Config, there: &[&'static str]) {
    if let Some(cause) = mapped_by(config, there) {
        leave_to_plain(config, &cause);
    }
    let given = there.contains(&"max_non_split_rounding_mb");
    if given
        && config.max_split_size.is_none()
        && config.max_non_split_rounding != Config::default().max_non_split_rounding
    {
        config.max_non_split_rounding = Config::default().max_non_split_rounding;
        let reason = "no effect without max_split_size_mb";
        note(&mut config.notes, "max_non_split_rounding_mb", reason);
    }
}

/// What has segments be other than plain, as the text says it.
fn mapped_by(config: &Config, there: &[&'static str]) -> Option<String> {
    let own = |option: &'static str| there.contains(&option);
    match config.segments {
        SegmentMode::Virtual if !own("segments") => Some("expandable_segments:True".to_owned()),
        SegmentMode::Virtual | SegmentMode::Stitched => Some(format!("segments:{}", config.segments.name())),
        SegmentMode::Auto if config.gpu_direct_rdma == Some(true) => Some("gpu_direct_rdma:True".to_owned()),
        SegmentMode::Auto if own("max_chunk_mb") => Some("max_chunk_mb".to_owned()),
        SegmentMode::Auto | SegmentMode::Plain => None,
    }
}

/// Leaves out what only plain segments have.
pub(super) fn leave_to_plain(config: &mut Config, cause: &str) {
    let usual = Config::default();
    let notes = &mut config.notes;
    if config.max_split_size.take().is_some() {
        let reason = format!("no effect with {cause}: what a request leaves of a block is free for others");
        note(notes, "max_split_size_mb", reason.as_str());
        if config.max_non_split_rounding != usual.max_non_split_rounding {
            config.max_non_split_rounding = usual.max_non_split_rounding;
            note(notes, "max_non_split_rounding_mb", reason);
        }
    }
    if config.garbage_collection_threshold.take().is_some() {
        let reason = format!("no effect with {cause}: such segments are never idle as a whole");
        note(notes, "garbage_collection_threshold", reason);
    }
}
