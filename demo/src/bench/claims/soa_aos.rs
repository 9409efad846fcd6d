//! Structure of arrays against array of structures.

use super::bench::{Bench, Found, MICRO, figure};
use super::report::Verdict;
use super::verdict::{Case, short};
use super::{Claim, Needs};
use crate::bench::error::Stop;
use crate::rig::claims::{FIELDS, Layout};

pub(super) const SOA_AOS: Claim = Claim {
    name: "soa-aos",
    words: "A structure of arrays is much faster than an array of structures.",
    source: "courses",
    method: "A kernel adds to one, four or all of the eight 4-byte fields of each record, in both layouts; the ratio of \
             its times by events. The fields are compared on the host.",
    needs: Needs::Gpu,
    guess_ms: 500,
    measure,
};

/// Records that fit into the budget, at most.
const MOST_RECORDS: u64 = 8 << 20;
const RECORD_BYTES: u64 = 4 * FIELDS as u64;
/// How many fields the kernel uses.
const USED: [u32; 3] = [1, 4, FIELDS];
/// "Much faster" is at least so many times.
const MUCH: f64 = 2.0;

fn measure(bench: &mut Bench<'_>) -> Result<Found, Stop> {
    let records = (bench.gpu()?.budget() / RECORD_BYTES).min(MOST_RECORDS) as u32;
    let mut figures = Vec::new();
    let mut cases = Vec::new();
    for used in USED {
        let mut medians = Vec::new();
        for (name, layout) in [
            ("array of structures", Layout::ArrayOfStructures),
            ("structure of arrays", Layout::StructureOfArrays),
        ] {
            let ns = bench.repeat(|gpu| gpu.fields(layout, records, used))?;
            let samples: Vec<f64> = ns.iter().map(|ns| *ns as f64 / MICRO).collect();
            let figure = figure(format!("{name}, {used} of {FIELDS} fields"), "µs", &samples)?;
            medians.push(figure.median);
            figures.push(figure);
        }
        if let [aos, soa] = medians[..] {
            cases.push(Case::new(format!("{used} of {FIELDS} fields are used"), aos / soa));
        }
    }
    Ok(Found {
        short: short(&cases, "x"),
        figures,
        verdict: verdict(&cases),
    })
}

/// Judges how many times as fast a structure of arrays is, by how many fields are used: fewer first.
fn verdict(cases: &[Case]) -> Verdict {
    let much: Vec<&Case> = cases.iter().filter(|case| case.value >= MUCH).collect();
    match much.last() {
        Some(_) if much.len() == cases.len() => Verdict::Holds,
        Some(last) if much.len() == 1 => Verdict::HoldsWhen(last.when.clone()),
        Some(last) => Verdict::HoldsWhen(format!("at most {}", last.when)),
        None => Verdict::DoesNotHold(short(cases, "x")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(ratios: [f64; 3]) -> Verdict {
        let case = |(used, ratio): (&u32, f64)| Case::new(format!("{used} of 8 fields are used"), ratio);
        verdict(&USED.iter().zip(ratios).map(case).collect::<Vec<_>>())
    }

    #[test]
    fn few_used_fields_make_the_difference() {
        assert_eq!(
            judge([5.3, 1.9, 1.0]),
            Verdict::HoldsWhen("1 of 8 fields are used".to_owned())
        );
        assert_eq!(
            judge([5.3, 2.0, 1.0]),
            Verdict::HoldsWhen("at most 4 of 8 fields are used".to_owned())
        );
        assert_eq!(judge([5.3, 4.0, 2.5]), Verdict::Holds);
        assert_eq!(judge([1.1, 1.0, 1.0]), Verdict::DoesNotHold("1 to 1.1x".to_owned()));
    }
}
