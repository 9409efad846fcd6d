//! Verdicts that several claims share: whether figures are in the claimed range.

use super::figure::range;
use super::report::Verdict;

/// A figure under a condition, in words that follow "holds when".
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) when: String,
    pub(super) value: f64,
}

impl Case {
    pub(super) fn new(when: impl Into<String>, value: f64) -> Case {
        Case {
            when: when.into(),
            value,
        }
    }
}

/// Judges a claim that every case is from `least` to `most`: it holds when the cases are that are in this range.
pub(super) fn within(cases: &[Case], (least, most): (f64, f64), unit: &str) -> Verdict {
    let (inside, outside): (Vec<_>, Vec<_>) = cases.iter().partition(|case| (least..=most).contains(&case.value));
    let Some((from, to)) = ends(cases) else {
        return Verdict::NotMeasured("there is no figure".to_owned());
    };
    match (inside.is_empty(), outside.is_empty()) {
        (_, true) => Verdict::Holds,
        (false, false) => Verdict::HoldsWhen(words(&inside)),
        (true, false) if to < least => Verdict::DoesNotHold(format!("less, {}", range(from, to, unit))),
        (true, false) if from > most => Verdict::DoesNotHold(format!("more, {}", range(from, to, unit))),
        (true, false) => Verdict::DoesNotHold(range(from, to, unit)),
    }
}

/// Returns the figures in a few words, for the table.
pub(super) fn short(cases: &[Case], unit: &str) -> String {
    ends(cases).map_or_else(String::new, |(from, to)| range(from, to, unit))
}

fn ends(cases: &[Case]) -> Option<(f64, f64)> {
    let values = || cases.iter().map(|case| case.value);
    Some((values().min_by(f64::total_cmp)?, values().max_by(f64::total_cmp)?))
}

fn words(cases: &[&Case]) -> String {
    let all: Vec<&str> = cases.iter().map(|case| case.when.as_str()).collect();
    all.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_decides_the_verdict() {
        let judge = |small, large| {
            within(
                &[Case::new("small", small), Case::new("large", large)],
                (1.0, 10.0),
                "ms",
            )
        };
        assert_eq!(judge(1.0, 10.0), Verdict::Holds);
        assert_eq!(judge(0.5, 2.0), Verdict::HoldsWhen("large".to_owned()));
        assert_eq!(judge(0.5, 0.9), Verdict::DoesNotHold("less, 0.5 to 0.9 ms".to_owned()));
        assert_eq!(judge(11.0, 12.0), Verdict::DoesNotHold("more, 11 to 12 ms".to_owned()));
        assert_eq!(judge(0.5, 12.0), Verdict::DoesNotHold("0.5 to 12 ms".to_owned()));
        assert!(matches!(within(&[], (1.0, 2.0), "ms"), Verdict::NotMeasured(_)));
    }
}
