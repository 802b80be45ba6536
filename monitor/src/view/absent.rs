//! What stands on the screen while there is no gateway: why, and what to do.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget as _, Wrap};

use super::style;
use crate::model::Model;
use crate::verdict::Advice;

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model) {
    let mut lines = vec![Line::default()];
    if let Some(trouble) = model.trouble() {
        let label = Line::styled(trouble.label(), style::of_advice(Advice::Upgrade));
        lines.extend([
            label,
            Line::default(),
            trouble.what().into(),
            trouble.remedy().into(),
            Line::default(),
        ]);
    }
    lines.push("Still looking. q quits.".into());
    let text = Paragraph::new(lines).wrap(Wrap { trim: true });
    let indented = Rect {
        x: area.x.saturating_add(1),
        width: area.width.saturating_sub(2),
        ..area
    };
    text.render(indented, buffer);
}
