//! The report of a real card, for machines without one.

use super::report::Report;

/// What `gpumem-tui bench hierarchy --json` measured on an NVIDIA H200 with driver 580.159.04 on 2026-11-28. Its UUID is set to zeros, so
/// that no card is taken for it. It has no time to load kernels, which was another figure then.
const H200: &str = include_str!("../../../../assets/hierarchy-h200.json");

/// Returns the report of an NVIDIA H200, to be shown as an example where there is no GPU. Whoever shows it has to label it EXAMPLE.
pub fn example() -> Report {
    // A test holds that it is sound.
    serde_json::from_str(H200).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bench::hierarchy::Rung;

    #[test]
    fn example_passes_the_checks_of_a_kept_report() {
        let report = serde_json::from_str::<Report>(H200).unwrap().checked().unwrap();
        assert_eq!(report, example(), "its texts are clean");
        assert_eq!(report.card.name, "NVIDIA H200");
        let ns = |rung| {
            let level = report.levels.iter().find(|level| level.rung == rung)?;
            Some(level.latency.as_ref()?.ns.round())
        };
        // The figures in `demo/HIERARCHY.md`.
        assert_eq!(ns(Rung::L2Near), Some(139.0));
        assert_eq!(ns(Rung::Device), Some(333.0));
    }

    #[test]
    fn example_has_every_field_that_is_measured() {
        let written = serde_json::to_value(example()).unwrap();
        let committed: serde_json::Value = serde_json::from_str(H200).unwrap();
        assert_eq!(written, committed);
    }
}
