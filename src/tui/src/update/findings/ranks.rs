//! Findings about ranks that hold unlike the others of their job.

use gpumem_text::units;

use super::{Ranked, finding};
use crate::model::{Figure, Job, Outlier, Rank, Severity, World};

/// Most outliers of a job with a finding each. More share one.
const OUTLIERS: usize = 4;

/// Returns findings about ranks that reserve or allocate much more or less than the others. The bytes at stake are what the rank
/// reserves.
pub(super) fn about_ranks(world: &World) -> Vec<Ranked> {
    world.jobs.iter().flat_map(about_job).collect()
}

fn about_job(job: &Job) -> Vec<Ranked> {
    let outliers = job.ranks.iter().filter_map(|rank| Some((rank, verb(rank.outlier?)?)));
    let outliers: Vec<(&Rank, (&str, Outlier))> = outliers.collect();
    let (Some(&(first, _)), name, all) = (outliers.first(), &job.name, job.ranks.len()) else {
        return Vec::new();
    };
    let reserved = |rank: &Rank| rank.holds.reserved.unwrap_or(0);
    if outliers.len() > OUTLIERS {
        let text = format!(
            "{} of the {all} ranks of {name} reserve or allocate much more or less than the median: r shows them",
            outliers.len()
        );
        return vec![(reserved(first), finding(Severity::Warning, Some(first.id), text))];
    }
    let each = outliers.into_iter().map(|(rank, (verb, outlier))| {
        let (severity, than) = match outlier.above_median > 0 {
            true => (Severity::Warning, "more"),
            false => (Severity::Info, "less"),
        };
        let text = format!(
            "rank {} of {name} {verb} {} {than} than the median of its {all} ranks{} ({})",
            rank.rank,
            units::bytes(outlier.above_median.unsigned_abs()),
            // Nothing is known of the ranks on other machines.
            if job.is_complete() { "" } else { " here" },
            units::bytes(job.median.figure(outlier.figure).unwrap_or(0)),
        );
        (reserved(rank), finding(severity, Some(rank.id), text))
    });
    each.collect()
}

/// Returns what an outlier does, if it deserves a finding: a cache or a context alone does not.
fn verb(outlier: Outlier) -> Option<(&'static str, Outlier)> {
    match outlier.figure {
        Figure::Reserved => Some(("reserves", outlier)),
        Figure::Allocated => Some(("allocates", outlier)),
        Figure::Cached | Figure::Nvml => None,
    }
}
