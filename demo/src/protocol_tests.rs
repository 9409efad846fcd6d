#![allow(clippy::unwrap_used)]

use super::*;

/// The bytes of a line are an interface. Any change other than a new field is a change of schema.
#[test]
fn step_line_is_these_bytes() {
    let step = Step {
        step: 3,
        steps: 7,
        id: "free-every-other".into(),
        title: "Free every other block".into(),
        stats: Stats {
            allocated: 1 << 63,
            external_fragmentation: Some(0.5),
            ..Stats::default()
        },
        choices: vec![Choice {
            name: "remap".into(),
            title: "Join the holes".into(),
            default: true,
        }],
        ..Step::default()
    };
    let line = Line::new("fragmentation", Body::Step(Box::new(step)));
    let text = serde_json::to_string(&line).unwrap();
    assert_eq!(
        text,
        r#"{"schema":"gpumem-demo/1","demo":"fragmentation","type":"step","step":3,"steps":7,"id":"free-every-other","title":"Free every other block","headline":"","summary":"","detail":"","stats":{"requested":0,"allocated":9223372036854775808,"active":0,"reserved":0,"cached":0,"peak_allocated":0,"peak_reserved":0,"largest_free":0,"free_total":0,"external_fragmentation":0.5,"internal_fragmentation":null,"driver_free":null,"segments":0,"blocks":0,"ooms":0,"retries":0},"choices":[{"name":"remap","title":"Join the holes","default":true}],"verified":null,"oom":null,"phases":[],"halted":false,"measures":[],"map":[]}"#
    );
    assert_eq!(Line::parse(&text).unwrap(), line);
}

#[test]
fn every_kind_of_line_round_trips() {
    let outcome = Outcome {
        failed_before: Some(true),
        fix: Some("remap".into()),
        ..Outcome::default()
    };
    for body in [
        Body::Start(Start {
            pid: 7,
            device: "Simulated".into(),
            simulated: true,
            kind: Some(Kind::Paced),
            ..Start::default()
        }),
        Body::Notice {
            message: "what?".into(),
        },
        Body::Result { result: outcome },
        Body::Error {
            message: "no device".into(),
            exit_code: 3,
        },
    ] {
        let line = Line::new("train", body);
        assert_eq!(Line::parse(&serde_json::to_string(&line).unwrap()).unwrap(), line);
    }
}

/// Every field is documented by its name in JSON.
#[test]
fn documentation_names_every_field() {
    let all = include_str!("../../src/tui/JSON.md");
    let section = all.split_once("# `gpumem-tui demo NAME").unwrap().1;
    let step = Step {
        choices: vec![Choice::default()],
        oom: Some(OutOfMemory::default()),
        phases: vec![Phase::default()],
        measures: vec![Measure::default()],
        map: vec![MapBlock::default()],
        ..Step::default()
    };
    let (message, result) = (String::new(), Outcome::default());
    for body in [
        Body::Start(Start::default()),
        Body::Step(Box::new(step)),
        Body::Notice {
            message: message.clone(),
        },
        Body::Result { result },
        Body::Error { message, exit_code: 1 },
    ] {
        let mut todo = vec![serde_json::to_value(Line::new("train", body)).unwrap()];
        assert!(section.contains(&format!("| `{}` |", todo[0]["type"].as_str().unwrap())));
        while let Some(value) = todo.pop() {
            for (field, _) in value.as_object().into_iter().flatten() {
                assert!(section.contains(&format!("`{field}`")), "{field} is not documented");
            }
            let inside = value.as_object().into_iter().flat_map(|map| map.values().cloned());
            todo.extend(inside);
            todo.extend(value.as_array().into_iter().flatten().cloned());
        }
    }
}

#[test]
fn unknown_and_missing_fields_are_accepted() {
    let newer = r#"{"schema":"gpumem-demo/1","demo":"d","type":"step","step":1,"colour":"blue"}"#;
    assert!(matches!(Line::parse(newer).unwrap().body, Body::Step(s) if s.step == 1));
}

#[test]
fn unknown_kind_is_read_as_none() {
    let kind = |written: &str| {
        let line = format!(r#"{{"schema":"gpumem-demo/1","demo":"d","type":"start"{written}}}"#);
        match Line::parse(&line).unwrap().body {
            Body::Start(start) => start.kind,
            _ => None,
        }
    };
    for known in Kind::ALL {
        assert_eq!(kind(&format!(r#","kind":"{}""#, known.name())), Some(known));
        assert_eq!(serde_json::to_value(known).unwrap(), known.name());
    }
    for other in [
        "",
        r#","kind":null"#,
        r#","kind":"later""#,
        r#","kind":7"#,
        r#","kind":[{}]"#,
    ] {
        assert_eq!(kind(other), None, "{other}");
    }
}

#[test]
fn invalid_lines_are_refused() {
    let huge = format!(r#"{{"schema":"gpumem-demo/1","demo":"{}"}}"#, "x".repeat(MAX_LINE));
    assert!(matches!(Line::parse(&huge), Err(ParseError::TooLong(_))));
    assert!(matches!(Line::parse(r#"{"schema":"gpumem-demo/2"}"#), Err(ParseError::Schema(s)) if s == "gpumem-demo/2"));
    assert!(matches!(Line::parse("[1,2]"), Err(ParseError::Schema(_))));
    assert!(matches!(Line::parse("step 1"), Err(ParseError::Malformed(_))));
    assert!(matches!(
        Line::parse(r#"{"schema":"gpumem-demo/1","demo":"d"}"#),
        Err(ParseError::Malformed(_))
    ));
}

#[test]
fn commands_round_trip() {
    for command in [Command::Next, Command::Quit, Command::Fix("remap".into())] {
        assert_eq!(Command::parse(&command.to_string()).unwrap(), command);
    }
    for bad in ["", "fix", "next 3", "fix a b", "NEXT"] {
        assert!(Command::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn outcome_that_broke_its_promise_is_recognised() {
    let good = Outcome {
        failed_before: Some(true),
        succeeded_after: Some(true),
        ..Outcome::default()
    };
    assert!(good.as_promised());
    assert!(
        !Outcome {
            succeeded_after: Some(false),
            ..good.clone()
        }
        .as_promised()
    );
    assert!(
        !Outcome {
            failed_before: Some(false),
            ..good.clone()
        }
        .as_promised()
    );
    assert!(
        !Outcome {
            patterns_verified: Some(false),
            ..good.clone()
        }
        .as_promised()
    );
    assert!(
        !Outcome {
            reserved_at_end: 1,
            ..good
        }
        .as_promised()
    );
}
