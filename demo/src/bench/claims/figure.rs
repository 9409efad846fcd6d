//! Figures: samples of a quantity with their median and spread.

use serde::{Deserialize, Serialize};

/// A quantity that was measured several times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// Its unit: `ns`, `µs`, `ms`, `GB/s`, `cycles`, `MiB`, `%`, or `x` for a ratio.
    pub unit: String,
    /// The median; of an even number of samples the lower one of the two in the middle.
    pub median: f64,
    /// The smallest sample.
    pub least: f64,
    /// The largest sample.
    pub most: f64,
    /// The first and third quartile.
    pub quartiles: (f64, f64),
    /// Samples (a count); 1 for figures that are counted and not timed.
    pub samples: u64,
}

/// The middle half of the samples of a steady figure lies within this fraction of the median. An idle H200 has at most 0.1.
const STEADY: f64 = 0.5;

impl Figure {
    /// Summarises samples. `None` if there are none, or some are not numbers.
    pub(super) fn of(what: impl Into<String>, unit: &str, samples: &[f64]) -> Option<Figure> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |quarters: usize| sorted.get(last * quarters / 4).copied();
        sorted.iter().all(|sample| sample.is_finite()).then_some(())?;
        Some(Figure {
            what: what.into(),
            unit: unit.to_owned(),
            median: at(2)?,
            least: at(0)?,
            most: at(4)?,
            quartiles: (at(1)?, at(3)?),
            samples: sorted.len() as u64,
        })
    }

    /// Checks whether the samples agree well enough for a verdict.
    pub(super) fn is_steady(&self) -> bool {
        self.quartiles.1 - self.quartiles.0 <= STEADY * self.median.abs()
    }
}

/// Returns a number with three significant digits, and none of them behind the point from 100 on.
pub(super) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.0995 => 3,
        v if v >= 0.00995 => 4,
        _ => 5,
    };
    let text = format!("{value:.decimals$}");
    match decimals {
        0 => text,
        _ => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

/// Returns a range of numbers with their unit, or the number if both ends read the same.
pub(super) fn range(from: f64, to: f64, unit: &str) -> String {
    let (from, to) = (number(from), number(to));
    // Ratios are written close: 2.5x.
    let blank = if unit == "x" || unit == "%" { "" } else { " " };
    match from == to {
        true => format!("{from}{blank}{unit}"),
        false => format!("{from} to {to}{blank}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_summarises_samples() {
        let figure = Figure::of("x", "ms", &[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap_or_default();
        assert_eq!(
            (figure.least, figure.quartiles, figure.median, figure.most),
            (1.0, (2.0, 4.0), 3.0, 5.0)
        );
        assert_eq!(figure.samples, 5);
        assert_eq!(Figure::of("x", "ms", &[]), None);
        assert_eq!(Figure::of("x", "ms", &[f64::NAN]), None);
    }

    /// One slow sample in seven is usual on a machine with other programs; three are not.
    #[test]
    fn steady_figure_may_have_one_outlier() {
        let steady = |samples: &[f64]| Figure::of("x", "ms", samples).is_some_and(|figure| figure.is_steady());
        assert!(steady(&[1.0, 1.0, 1.1, 1.0, 1.0, 1.2, 9.0]));
        assert!(!steady(&[1.0, 1.0, 1.1, 1.0, 2.0, 2.0, 9.0]));
        assert!(steady(&[0.0, 0.0]));
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0463, "0.0463"),
            (0.5, "0.5"),
            (2.0, "2"),
            (2.346, "2.35"),
            (12.34, "12.3"),
            (99.97, "100"),
            (1234.5, "1234"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(range(0.0461, 0.4, "ms"), "0.0461 to 0.4 ms");
        assert_eq!(range(2.0, 2.001, "x"), "2x");
    }
}
