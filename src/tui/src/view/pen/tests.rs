use super::*;
use crate::model::Colors as Depth;

fn drawn(w: u16, h: u16, ascii: bool, draw: impl Fn(&mut Pen<'_>, Rect)) -> Vec<String> {
    let area = Rect::new(0, 0, w, h);
    let mut buffer = Buffer::empty(area);
    let theme = Theme::new(Depth::Mono, ascii);
    draw(&mut Pen::new(&mut buffer, theme), area);
    theme.spell(&mut buffer);
    (0..h)
        .map(|y| (0..w).map(|x| buffer[(x, y)].symbol().to_owned()).collect())
        .collect()
}

#[test]
fn text_is_cut_at_the_edge_of_its_area_at_every_width() {
    for (w, expected) in [(0, ""), (1, "a"), (2, "ab"), (4, "abc ")] {
        assert_eq!(
            drawn(w, 1, false, |pen, area| {
                pen.text(area, 0, 0, "abc", Style::new());
            }),
            [expected]
        );
    }
}

#[test]
fn an_ellipsis_says_that_something_is_missing() {
    for (room, expected) in [(0, "    "), (1, "…   "), (2, "a…  "), (3, "abc "), (9, "abc ")] {
        assert_eq!(
            drawn(4, 1, false, |pen, area| {
                pen.clipped(area, 0, 0, "abc", room, Style::new());
            }),
            [expected]
        );
    }
    assert_eq!(
        drawn(3, 1, false, |pen, area| {
            pen.clipped(area, 0, 0, "日本語", 3, Style::new());
        }),
        ["日 …"]
    );
}

#[test]
fn right_aligned_text_that_does_not_fit_is_left_out_rather_than_shown_wrong() {
    for (w, expected) in [(2, "  "), (3, "1.5"), (5, "  1.5")] {
        assert_eq!(
            drawn(w, 1, false, |pen, area| {
                pen.text_end(area, area.width, 0, "1.5", Style::new());
            }),
            [expected]
        );
    }
}

#[test]
fn a_panel_gives_its_title_way_as_it_shrinks() {
    assert_eq!(
        drawn(16, 2, false, |pen, area| {
            pen.panel(area, "ab", "note");
        }),
        ["╭─ ab ─── note ─╮", "╰──────────────╯"]
            .map(|s| s.replace("── note ─", "─ note ─"))
            .to_vec()
    );
    assert_eq!(
        drawn(9, 2, true, |pen, area| {
            pen.panel(area, "abcdef", "note");
        }),
        ["+- ab~ -+", "+-------+"]
    );
    for w in 0..30 {
        for h in 0..5 {
            drawn(w, h, false, |pen, area| {
                let inside = pen.panel(area, "a title", "and a note");
                assert_eq!(inside.intersection(area), inside);
            });
        }
    }
}

#[test]
fn areas_outside_the_buffer_are_ignored() {
    drawn(3, 2, false, |pen, _| {
        let outside = Rect::new(10, 10, 5, 5);
        pen.text(outside, 0, 0, "x", Style::new());
        pen.cell(outside, 0, 0, 'x', Style::new());
        pen.panel(outside, "x", "y");
        pen.restyle(outside, Style::new());
    });
}
