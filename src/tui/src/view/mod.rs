//! Draws the model. Pure: the same model gives the same cells.

use ratatui::Frame;
use ratatui::widgets::Paragraph;

use crate::model::{Hits, Model};

/// Draws `model` and tells which areas answer a click.
pub fn draw(frame: &mut Frame<'_>, model: &Model) -> Hits {
    let mut text = format!("gpumem {:?}\n", model.ui.view);
    for device in &model.world().devices {
        text.push_str(&format!("{} {} {:?}\n", device.label, device.name, device.memory));
    }
    for process in model.listed() {
        text.push_str(&format!(
            "{} {} {}\n",
            process.pid,
            process.command,
            process.state.text()
        ));
    }
    frame.render_widget(Paragraph::new(text), frame.area());
    Hits::default()
}
