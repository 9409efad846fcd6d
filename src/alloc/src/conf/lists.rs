//! Values that are lists.

use std::time::Duration;

use super::Draft;
use super::error::Bad;
use super::lex::{Given, Value, Word};
use super::torch;
use crate::history::{History, Stacks};
use crate::monitor::{Action, Measure, MonitorConfig};
use crate::rounding::Divisions;

/// `roundup_power2_divisions`, by PyTorch's rules: the first size's parts are those of all below it, too, and what stands behind `>` those of
/// all above the size before it, or above 1 MiB. What is given later counts.
pub(super) fn divisions(draft: &mut Draft, given: &Given) -> Result<(), Bad> {
    let pairs = match &given.value {
        Value::Word(word) => {
            let parts = torch::number(draft, word, "a power of two")?;
            draft.config.roundup_power2_divisions = Divisions::all(parts).ok_or_else(|| word.not("a power of two"))?;
            return Ok(());
        }
        Value::List(pairs) => pairs,
    };
    // A list that is given twice changes what the first one made.
    let mut divisions = draft.config.roundup_power2_divisions;
    let mut last = None;
    for (from, parts) in pairs {
        const PARTS: &str = "powers of two, or 0 for none";
        let count = torch::number(draft, parts, PARTS)?;
        if count != 0 && !count.is_power_of_two() {
            return Err(parts.not(PARTS));
        }
        let changed = if from.text == ">" {
            divisions.with_above(last.unwrap_or(1), count)
        } else {
            let mib = torch::number(draft, from, "sizes in MiB that are powers of two")?;
            let below = match last.replace(mib) {
                None => divisions.with_below(mib, count),
                Some(_) => Some(divisions),
            };
            below.and_then(|below| below.with(mib, count))
        };
        divisions = changed.ok_or_else(|| from.not("sizes in MiB that are powers of two"))?;
    }
    draft.config.roundup_power2_divisions = divisions;
    Ok(())
}

const ACTIONS: [(&str, Action); 3] = [
    ("warn", Action::Warn),
    ("release", Action::Release),
    ("compact", Action::Compact),
];
const MEASURES: [(&str, Measure); 2] = [("external", Measure::External), ("cached", Measure::Cached)];

/// `monitor`
pub(super) fn monitor(draft: &mut Draft, given: &Given) -> Result<(), Bad> {
    let mut config = MonitorConfig::default();
    match &given.value {
        Value::Word(word) => {
            let actions = ACTIONS.map(|(name, action)| (name, Some(action)));
            let choices = [&[("none", None)][..], &actions].concat();
            let Some(action) = word.one_of(&choices)? else {
                draft.config.monitor = None;
                return Ok(());
            };
            config.action = action;
        }
        Value::List(pairs) => {
            for (key, value) in pairs {
                part(&mut config, key, value).map_err(|bad| bad.within(key, value))?;
            }
        }
    }
    if config.below.is_some_and(|below| below > config.above) {
        let reason = "has an episode end (below) at a higher ratio than it begins".to_owned();
        let column = given.column;
        return Err(Bad { column, reason });
    }
    draft.config.monitor = Some(config);
    Ok(())
}

fn part(config: &mut MonitorConfig, key: &Word, value: &Word) -> Result<(), Bad> {
    match key.text.as_str() {
        "action" => config.action = value.one_of(&ACTIONS)?,
        "of" => config.measure = value.one_of(&MEASURES)?,
        "ratio" => config.above = value.part(false)?,
        "below" => config.below = Some(value.part(false)?),
        "seconds" => {
            let expected = "a number of seconds from 0 to 2^64";
            let time = Duration::try_from_secs_f64(value.decimal(expected)?);
            config.lasting = time.map_err(|_| value.not(expected))?;
        }
        "least_mb" => config.least = value.mebibytes(0)?,
        "every_ms" => {
            let time = Duration::from_millis(value.number("a whole number of milliseconds")?);
            if time.is_zero() {
                return Err(value.not("at least 1 ms"));
            }
            config.every = time;
        }
        _ => return Err(key.not("action, of, ratio, below, seconds, least_mb and every_ms")),
    }
    Ok(())
}

/// `history`
pub(super) fn history(draft: &mut Draft, given: &Given) -> Result<(), Bad> {
    let pairs = match &given.value {
        Value::Word(word) => {
            draft.config.history = word.one_of(&[("on", History::ON), ("off", History::Off)])?;
            return Ok(());
        }
        Value::List(pairs) => pairs,
    };
    let History::On {
        mut max_events,
        mut stacks,
    } = History::ON
    else {
        return Ok(());
    };
    for (key, value) in pairs {
        let within = |bad: Bad| bad.within(key, value);
        match key.text.as_str() {
            "events" => {
                let most = History::MOST_EVENTS;
                let expected = format!("a number of events, at most {most}");
                let events = usize::try_from(value.number(&expected).map_err(within)?).ok();
                max_events = events
                    .filter(|n| *n <= most)
                    .ok_or_else(|| within(value.not(&expected)))?;
            }
            "stacks" => {
                let choices = [("none", Stacks::None), ("alloc", Stacks::Alloc), ("all", Stacks::All)];
                stacks = value.one_of(&choices).map_err(within)?;
            }
            _ => return Err(key.not("events and stacks")),
        }
    }
    draft.config.history = History::On { max_events, stacks };
    Ok(())
}
