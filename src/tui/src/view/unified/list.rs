//! The list of all processes that have managed memory, with their rates.

use gpumem_text::units::{self, count_short};
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Modifier;
use ratatui::text::Text;
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};

use super::counting_text;
use crate::model::{Counting, Target};
use crate::view::Screen;
use crate::view::layout::{ELLIPSIS, clip};
use crate::view::theme::Ink;

/// Draws the list, or why it is empty.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let managed = &model.world().managed;
    let inside = screen.panel(area, "Managed memory of all processes", "");
    let listed: Vec<_> = managed.with_memory().collect();
    if listed.is_empty() {
        let text = Text::styled(nothing(screen), screen.theme.ink(Ink::Dim));
        screen.render(Paragraph::new(text).wrap(Wrap { trim: true }), inside);
        return;
    }
    let chosen = model
        .ui
        .unified
        .chosen
        .filter(|target| listed.iter().any(|(t, ..)| *t == target));
    let chosen = chosen.unwrap_or(*listed[0].0);
    let mut notes = Vec::new();
    // What the other columns and the gaps between them leave, see below.
    let room = usize::from(inside.width.saturating_sub(54 + 7).max(8));
    let rows: Vec<Row<'_>> = listed
        .iter()
        .map(|(target, process, sums)| {
            let row = model.world().processes.iter().find(|p| p.pid == target.pid);
            let name = row.map_or_else(String::new, |p| clip(&p.name_in(room, ELLIPSIS), room as u16));
            let rates = managed.past.get(target).and_then(|past| past.rates());
            if let (Counting::Refused(_), Some(text)) = (
                &process.counting,
                counting_text(&process.counting, model.setup.tracking),
            ) && !notes.contains(&text)
            {
                notes.push(text);
            }
            let bytes = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| units::bytes_short(n as u64));
            let faults = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| count_short(n as u64));
            let right = |text: String| Cell::from(Text::from(text).right_aligned());
            let cells = [
                right(target.pid.to_string()),
                Cell::from(name),
                right(units::bytes_short(sums.bytes)),
                right(sums.cpu_share().map_or_else(String::new, units::percent)),
                right(bytes(rates.map(|r| r.to_gpu))),
                right(bytes(rates.map(|r| r.to_cpu))),
                right(faults(rates.map(|r| r.cpu_faults))),
                right(faults(rates.map(|r| r.gpu_faults))),
            ];
            let row = Row::new(cells);
            match **target == chosen {
                true => row.style(screen.theme.selected()),
                false => row,
            }
        })
        .collect();
    let heading = [
        "PID",
        "COMMAND",
        "MANAGED",
        "CPU",
        "H>D/s",
        "D>H/s",
        "CPU FLT/s",
        "GPU FLT/s",
    ];
    let heading = heading.iter().enumerate().map(|(n, title)| match n {
        1 => Cell::from(*title),
        _ => Cell::from(Text::from(*title).right_aligned()),
    });
    let style = screen.theme.ink(Ink::Dim).add_modifier(Modifier::BOLD);
    let widths = [7, 0, 8, 5, 8, 8, 9, 9].map(|wide| match wide {
        0 => Constraint::Min(8),
        wide => Constraint::Length(wide),
    });
    let notes_height = match notes.is_empty() {
        true => 0,
        false => 3.min(inside.height / 3),
    };
    let room = usize::from(inside.height.saturating_sub(1 + notes_height));
    let at = listed.iter().position(|(target, ..)| **target == chosen).unwrap_or(0);
    let first = at.saturating_sub(room.saturating_sub(1));
    screen.hits.page = room as u16;
    for (n, (target, ..)) in listed.iter().skip(first).take(room).enumerate() {
        let line = Rect {
            y: inside.y + 1 + n as u16,
            height: 1,
            ..inside
        };
        screen.hit(line, Target::Managed(**target));
    }
    let table = Table::new(rows.into_iter().skip(first).take(room), widths)
        .header(Row::new(heading).style(style))
        .column_spacing(1);
    screen.render(table, inside);
    let foot = Rect {
        y: inside.bottom() - notes_height,
        height: notes_height,
        ..inside
    };
    let notes = Text::styled(notes.join("\n"), screen.theme.ink(Ink::Warning));
    screen.render(Paragraph::new(notes).wrap(Wrap { trim: true }), foot);
}

/// Says why no process is listed.
fn nothing(screen: &Screen<'_>) -> String {
    let managed = &screen.model.world().managed;
    let hidden = managed.sample.processes.iter().filter_map(|(target, process)| {
        let why = process.sums.as_ref().err()?;
        Some((target.pid, why))
    });
    let hidden: Vec<_> = hidden.collect();
    match hidden.first() {
        Some((pid, why)) if hidden.len() == 1 => format!("No process is known to have managed memory. Whether {pid} has any is not known: {why}."),
        Some((_, why)) => format!(
            "No process is known to have managed memory. Whether {} others have any is not known: {why}.",
            hidden.len()
        ),
        None if managed.sample.policy.is_none() => {
            "No process has managed memory: the driver's module nvidia_uvm is not loaded, or not visible here.".to_owned()
        }
        None => "No process has managed memory (cudaMallocManaged). When one does, this view shows where its pages are and how they move."
            .to_owned(),
    }
}
