//! The question whether to attach to a process, with what that does to it.

use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::view::Screen;
use crate::view::theme::Ink;
use crate::words;
use crate::wrap::wrap;

/// Draws it.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, pid: u32) {
    let wide = area.width.min(72);
    let room = wide.saturating_sub(4);
    let process = screen.model.world().processes.iter().find(|process| process.pid == pid);
    let command = process.map_or_else(String::new, |process| {
        words::command_in(&process.command, usize::from(room).saturating_sub(12))
    });
    let text = format!(
        "Its main thread stands still for about a millisecond, and a thread is started in it that tells what PyTorch's allocator holds. It \
         writes no file and computes as before. `gpumem-tui detach {pid}` ends it."
    );
    let mut lines = vec![
        Line::styled(format!("{pid}  {command}"), screen.theme.ink(Ink::Strong)),
        Line::default(),
    ];
    lines.extend(wrap(&text, room).into_iter().map(Line::raw));
    lines.extend(super::choice(screen, "attaches"));
    let (inside, scroll) = super::page(screen, area, wide, lines.len() as u16, "Attach to this process?", 0);
    screen.render(Paragraph::new(lines).scroll((scroll, 0)), inside);
}
