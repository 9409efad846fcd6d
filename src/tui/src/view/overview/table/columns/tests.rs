use super::*;
use crate::view::tests::fixture;

fn titles(columns: &[(Shown, u16)]) -> Vec<&'static str> {
    columns.iter().map(|c| c.0.title()).collect()
}

#[test]
fn columns_fit_at_every_width() {
    for model in [
        fixture::h100(),
        fixture::several(),
        fixture::simulated(),
        fixture::failing(),
    ] {
        for room in 0..300 {
            for framed in [false, true] {
                let columns = fit(&model, room, framed);
                let end = columns.iter().fold(1, |x, c| x + c.1 + GAP);
                assert!(columns.is_empty() || end <= room + GAP, "{room}: {columns:?}");
            }
        }
    }
}

#[test]
fn wide_tables_have_more_columns_in_the_same_order() {
    let model = fixture::h100();
    let at = |room| titles(&fit(&model, room, false));
    assert_eq!(at(20), ["PID", "COMMAND"]);
    assert_eq!(at(60), ["PID", "COMMAND", "NVML", "ALLOC", "STATE"]);
    let all = at(300);
    for room in 30..300 {
        let mut rest = all.iter();
        assert!(at(room).iter().all(|title| rest.any(|t| t == title)), "{room}");
    }
}

#[test]
fn headings_fit_and_some_columns_are_never_dropped() {
    let ranks: Vec<u8> = SPECS.iter().map(|s| s.drop_rank).filter(|&l| l > 0).collect();
    assert!(ranks.len() < SPECS.len());
    for spec in &SPECS {
        assert!(
            // One more column is for the arrow of the sort order.
            width(spec.shown.title()) < spec.width,
            "{:?}: its heading would be cut",
            spec.shown
        );
    }
}
