//! Which panes a topic shows, and where, for the size there is; or one pane alone.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::Widget as _;

use super::{
    TALL, below, charts, counts, credits, events, histogram, keys, peaks, request, requests, row,
    runtimes, stages, style, trends, triggers, verdict,
};
use crate::model::focus::{Pane, Topic};
use crate::model::{Gateway, Model};

/// From this width on, charts or details stand beside the tables rather than below.
const WIDE: u16 = 140;
/// The least that a chart needs to say something.
const CHART_ROWS: u16 = 6;
const CHART_COLUMNS: u16 = 38;
/// Rows that keys, with title and head, and events get, where all of the page's stages stay.
const KEYS_ROWS: u16 = 9;
const EVENTS_ROWS: u16 = 5;
/// The least of the stage table: head, queue wait, overhead.
const STAGES_ROWS: u16 = 3;
/// Rows of the stage table that the page knows, with its head.
const PAGE_ROWS: u16 = 14;

/// What every pane is drawn from.
struct Scene<'a> {
    model: &'a Model,
    gateway: &'a Gateway,
}

pub(super) fn render(area: Rect, buffer: &mut Buffer, model: &Model, gateway: &Gateway) {
    let scene = Scene { model, gateway };
    if model.focus.is_zoomed {
        scene.pane(model.focus.main_pane(), area, buffer, true);
        return;
    }
    match model.focus.topic {
        Topic::Overview => scene.overview(area, buffer),
        Topic::Stages => scene.stages(area, buffer),
        Topic::Keys => scene.show(Pane::Keys, area, buffer),
        Topic::Requests => scene.requests(area, buffer),
        Topic::Runtime => scene.runtime(area, buffer),
        Topic::Events => scene.show(Pane::Events, area, buffer),
    }
}

impl Scene<'_> {
    /// One among others: the one that was chosen stands out by its first row.
    fn show(&self, pane: Pane, area: Rect, buffer: &mut Buffer) {
        self.pane(pane, area, buffer, false);
        if self.model.focus.pane() == Some(pane) {
            buffer.set_style(row(area, 0), style::SELECTED);
        }
    }

    fn pane(&self, pane: Pane, area: Rect, buffer: &mut Buffer, is_alone: bool) {
        let (model, gateway) = (self.model, self.gateway);
        let topic = model.focus.topic;
        let place = |of: Topic| (topic == of).then(|| model.focus.place());
        match pane {
            Pane::Triggers => {
                triggers::render(area, buffer, gateway);
                if is_alone {
                    let rest = below(area, triggers::rows(gateway) + 1);
                    verdict::in_full(rest, buffer, gateway);
                }
            }
            Pane::Stages if topic == Topic::Stages => {
                stages::render_all(area, buffer, model, gateway);
            }
            Pane::Stages => stages::render(area, buffer, model, gateway),
            Pane::Histogram => histogram::render(area, buffer, model, gateway),
            Pane::Keys => keys::render(area, buffer, model, gateway, place(Topic::Keys)),
            Pane::Requests => requests::render(area, buffer, model, gateway),
            Pane::Request => request::render(area, buffer, model, gateway),
            Pane::Runtimes => runtimes::render(area, buffer, gateway),
            Pane::Peaks => peaks::render(area, buffer, gateway),
            Pane::Counts => counts::render(area, buffer, gateway),
            Pane::Events => events::render(area, buffer, model, place(Topic::Events)),
            Pane::QueueWait
            | Pane::Overhead
            | Pane::Load
            | Pane::Memory
            | Pane::Processors
            | Pane::Delay => charts::render(area, buffer, gateway, pane, is_alone),
        }
    }

    fn overview(&self, area: Rect, buffer: &mut Buffer) {
        let gap = u16::from(area.height + 4 >= TALL);
        if area.width >= WIDE {
            let [left, _, right] = Layout::horizontal([
                Constraint::Length(stages::WIDTH_MAX),
                Constraint::Length(2),
                Constraint::Fill(1),
            ])
            .areas(area);
            let all = [Pane::QueueWait, Pane::Overhead, Pane::Load, Pane::Memory];
            self.stacked(&all, right, buffer);
            let credits = self.gateway.credits();
            let above = triggers::rows(self.gateway) + u16::from(credits.is_some()) + 2 * gap;
            let slots = u16::try_from(self.gateway.slots().len()).unwrap_or(u16::MAX);
            let slots = slots.saturating_add(2);
            let besides = slots.min(KEYS_ROWS) + gap + EVENTS_ROWS;
            let most = left.height.saturating_sub(above + besides);
            let table = stages::rows_max(self.gateway).min(most.max(PAGE_ROWS));
            let [judged, credit, _, table, _, rest] = Layout::vertical([
                Constraint::Length(triggers::rows(self.gateway)),
                Constraint::Length(u16::from(credits.is_some())),
                Constraint::Length(gap),
                Constraint::Length(table),
                Constraint::Length(gap),
                Constraint::Fill(1),
            ])
            .areas(left);
            self.show(Pane::Triggers, judged, buffer);
            if let Some(credits) = credits {
                credits::line(&credits, credit.width).render(credit, buffer);
            }
            self.show(Pane::Stages, table, buffer);
            let most = rest.height.saturating_sub(gap + EVENTS_ROWS);
            let [keys, _, events] = Layout::vertical([
                Constraint::Length(slots.min(most.max(rest.height / 2))),
                Constraint::Length(gap),
                Constraint::Fill(1),
            ])
            .areas(rest);
            self.show(Pane::Keys, keys, buffer);
            self.show(Pane::Events, events, buffer);
            return;
        }
        let rows = stages::rows_max(self.gateway);
        // The last of them are only ever watched, and the verdict names those that are.
        let judged = triggers::rows(self.gateway).min(area.height.saturating_sub(STAGES_ROWS));
        let room = area.height.saturating_sub(judged + gap);
        // Charts, where all of the page's stages stay.
        let chart_rows = room.saturating_sub(PAGE_ROWS);
        let has_charts = chart_rows >= CHART_ROWS;
        let table = if has_charts {
            rows.min(room - CHART_ROWS.max(chart_rows.min(CHART_ROWS + 2)))
        } else {
            rows
        };
        let [judged, _, table, rest] = Layout::vertical([
            Constraint::Length(judged),
            Constraint::Length(gap),
            Constraint::Length(table),
            Constraint::Fill(1),
        ])
        .areas(area);
        self.show(Pane::Triggers, judged, buffer);
        self.show(Pane::Stages, table, buffer);
        if has_charts {
            let all = [Pane::QueueWait, Pane::Overhead, Pane::Load, Pane::Memory];
            self.side_by_side(&all, rest, buffer);
        } else {
            trends::render(rest, buffer, self.gateway);
        }
    }

    fn stages(&self, area: Rect, buffer: &mut Buffer) {
        if area.width >= WIDE {
            let [table, _, histogram] = Layout::horizontal([
                Constraint::Length(stages::WIDTH_MAX),
                Constraint::Length(2),
                Constraint::Fill(1),
            ])
            .areas(area);
            self.show(Pane::Stages, table, buffer);
            self.show(Pane::Histogram, histogram, buffer);
            return;
        }
        let rows = stages::rows_max(self.gateway);
        // Below ten rows of both, the table alone says more.
        let below = match area.height {
            0..16 => 0,
            height => height.saturating_sub(rows + 1).max(height / 3),
        };
        let [table, histogram] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(area);
        self.show(Pane::Stages, table, buffer);
        if below > 0 {
            self.show(Pane::Histogram, histogram, buffer);
        }
    }

    fn requests(&self, area: Rect, buffer: &mut Buffer) {
        if area.width >= WIDE {
            let [list, _, one] = Layout::horizontal([
                Constraint::Fill(1),
                Constraint::Length(2),
                Constraint::Length(80),
            ])
            .areas(area);
            self.show(Pane::Requests, list, buffer);
            self.show(Pane::Request, one, buffer);
            return;
        }
        let below = match area.height {
            0..16 => 0,
            height => (height / 2).min(16),
        };
        let [list, one] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(area);
        self.show(Pane::Requests, list, buffer);
        if below > 0 {
            self.show(Pane::Request, one, buffer);
        }
    }

    fn runtime(&self, area: Rect, buffer: &mut Buffer) {
        let runtimes = u16::try_from(self.gateway.runtimes().len()).unwrap_or(u16::MAX);
        let tables = match area.height {
            0..14 => 0,
            14..26 => 8,
            height => height / 2,
        };
        let [above, _, below] = Layout::vertical([
            Constraint::Fill(1),
            Constraint::Length(u16::from(tables > 0)),
            Constraint::Length(tables),
        ])
        .areas(area);
        let all = [Pane::Memory, Pane::Processors, Pane::Delay];
        self.side_by_side(&all, above, buffer);
        if area.width < WIDE {
            let [left, _, right] = Layout::horizontal([
                Constraint::Length(40),
                Constraint::Length(1),
                Constraint::Fill(1),
            ])
            .areas(below);
            let [at_work, peak] = Layout::vertical([
                Constraint::Length(runtimes.saturating_add(2).min(below.height / 2)),
                Constraint::Fill(1),
            ])
            .areas(left);
            self.show(Pane::Runtimes, at_work, buffer);
            self.show(Pane::Peaks, peak, buffer);
            self.show(Pane::Counts, right, buffer);
            return;
        }
        let [at_work, peak, counts] = Layout::horizontal([
            Constraint::Length(56),
            Constraint::Length(42),
            Constraint::Fill(1),
        ])
        .spacing(2)
        .areas(below);
        self.show(Pane::Runtimes, at_work, buffer);
        self.show(Pane::Peaks, peak, buffer);
        self.show(Pane::Counts, counts, buffer);
    }

    /// As many of `panes` as have room, one below the other.
    fn stacked(&self, panes: &[Pane], area: Rect, buffer: &mut Buffer) {
        let shown = usize::from(area.height / CHART_ROWS).clamp(1, panes.len());
        let places = Layout::vertical(vec![Constraint::Fill(1); shown]).split(area);
        for (pane, place) in panes.iter().zip(places.iter()) {
            self.show(*pane, *place, buffer);
        }
    }

    /// As many of `panes` as have room, one beside the other.
    fn side_by_side(&self, panes: &[Pane], area: Rect, buffer: &mut Buffer) {
        let shown = usize::from(area.width / CHART_COLUMNS).clamp(1, panes.len());
        let places = Layout::horizontal(vec![Constraint::Fill(1); shown])
            .spacing(2)
            .split(area);
        for (pane, place) in panes.iter().zip(places.iter()) {
            self.show(*pane, *place, buffer);
        }
    }
}
