//! The report as text of 80 columns, or of more for those who have them.

use gpumem_text::units::bytes_to_pib;

use super::figure::{Figure, number, range};
use super::report::{Place, Report, Row};
use crate::paragraph::paragraph;

/// Columns of a line.
const WIDTH: usize = 80;
/// Columns from which on a line has the claim's words, too.
const WIDE: usize = 130;
/// Columns of a name and of a figure.
const NAME: usize = 16;
const SHORT: usize = 20;
const INDENT: &str = "  ";

impl Report {
    /// Returns the report as text: a line for each claim, or all that is known of it. Lines end after so many columns; `None` stands
    /// for an output that is no terminal, where they are whole.
    pub(super) fn text(&self, explained: bool, columns: Option<usize>) -> String {
        let mut text = self.heading();
        for row in &self.rows {
            if explained {
                text.push('\n');
            }
            text += &match explained {
                true => line(row, self.card.is_some(), WIDTH),
                false => line(row, self.card.is_some(), columns.unwrap_or(usize::MAX)),
            };
            if explained {
                explain(row, &mut text);
            }
        }
        text
    }

    fn heading(&self) -> String {
        let mut text = String::new();
        let words = match &self.card {
            Some(card) => format!(
                "{}, driver {}: at most {} of its memory, {:.0} s",
                card.name,
                card.driver,
                bytes_to_pib(self.budget),
                self.duration_ms as f64 / 1e3
            ),
            None => "SIMULATED: no GPU. Bytes are counted as on a GPU, times are those of a model.".to_owned(),
        };
        paragraph(&mut text, "", &words, WIDTH);
        text
    }
}

/// Returns the line of a claim. Where there is no GPU the heading says for all rows that they are simulated.
fn line(row: &Row, has_gpu: bool, columns: usize) -> String {
    let simulated = match row.place {
        Place::Simulated if has_gpu => "SIMULATED ",
        _ => "",
    };
    let short = if row.short.is_empty() { "-" } else { &row.short };
    let line = format!("{:<NAME$} {short:<SHORT$} {simulated}{}", row.name, row.verdict);
    if columns < WIDE {
        return cut(&line, WIDTH) + "\n";
    }
    let words = format!("{} ({})", row.claim, row.source);
    cut(&format!("{line:<WIDTH$} {words}"), columns) + "\n"
}

fn cut(line: &str, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        None => line.to_owned(),
        Some(_) => line.chars().take(columns - 1).chain(['…']).collect(),
    }
}

fn explain(row: &Row, text: &mut String) {
    paragraph(
        text,
        &format!("{INDENT}claim    "),
        &format!("{} ({})", row.claim, row.source),
        WIDTH,
    );
    paragraph(text, &format!("{INDENT}measured "), &row.method, WIDTH);
    for figure in &row.figures {
        paragraph(text, &format!("{INDENT}figure   "), &figure_text(figure), WIDTH);
    }
    paragraph(text, &format!("{INDENT}verdict  "), &row.verdict.to_string(), WIDTH);
}

fn figure_text(figure: &Figure) -> String {
    let median = range(figure.median, figure.median, &figure.unit);
    match figure.samples {
        1 => format!("{}: {median}", figure.what),
        samples => format!(
            "{}: {median} ({} to {}, {samples} samples)",
            figure.what,
            number(figure.least),
            number(figure.most)
        ),
    }
}
