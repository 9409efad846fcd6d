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

/// No process publishes: only NVML's figures are known.
#[test]
fn column_of_dashes_is_left_out_unless_rows_are_sorted_by_it() {
    let mut model = fixture::h100();
    model.live.processes.iter_mut().for_each(|p| p.figures = None);
    let at = |model: &Model, room| titles(&fit(model, room, false));
    let known = ["PID", "USER", "COMMAND", "OF DEVICE", "NVML", "STATE", "COMMAND LINE"];
    assert_eq!(
        at(&model, 200)
            .iter()
            .filter(|title| **title != "JOB")
            .copied()
            .collect::<Vec<_>>(),
        known
    );
    model.ui.sort.column = Column::Cached;
    for room in [200, 80, 60] {
        let titles = at(&model, room);
        assert!(
            titles.contains(&"CACHED") && !titles.contains(&"ALLOC"),
            "{room}: {titles:?}"
        );
    }
    model.ui.kept.columns.insert(Column::Allocated);
    assert!(at(&model, 200).contains(&"ALLOC"));
}

/// Whether a row has a value is asked of the model, and the dash is drawn by the view.
#[test]
fn dash_stands_for_a_value_that_the_process_does_not_have() {
    let models = [
        fixture::h100(),
        fixture::several(),
        fixture::simulated(),
        fixture::failing(),
    ];
    let mut dashes = 0;
    for process in models.iter().flat_map(Model::listed) {
        for column in Column::ALL {
            let (text, _) = row::value(process, Shown::Of(column));
            // MANAGED is 0 where there is none.
            let dash = text == "-" || (column == Column::Managed && text == "0");
            assert_eq!(!dash, process.has(column), "{column:?} of {}", process.pid);
            dashes += usize::from(dash);
        }
    }
    assert!(dashes > 0);
}

#[test]
fn chosen_columns_are_the_only_ones_beside_those_that_tell_rows_apart() {
    let mut model = fixture::h100();
    model.setup.columns = ["reserved", "of-device", "command-line"].map(str::to_owned).into();
    let at = |room| titles(&fit(&model, room, false));
    // Rows are sorted by NVML's figure.
    assert_eq!(
        at(300),
        ["PID", "COMMAND", "OF DEVICE", "NVML", "RESERVED", "COMMAND LINE"]
    );
    assert_eq!(at(50), ["PID", "COMMAND", "NVML", "RESERVED"]);
    for column in SPECS.iter().map(|spec| spec.shown) {
        let sorted = Column::ALL.into_iter().map(Column::name);
        let known: Vec<String> = sorted.chain(crate::model::OTHER_COLUMNS.map(str::to_owned)).collect();
        assert!(known.contains(&column.name()), "{column:?} cannot be chosen");
    }
}
