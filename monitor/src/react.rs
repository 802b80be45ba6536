//! What follows from a key: a change of what is shown, or something that only the loop can do.

use crate::input::Action;
use crate::model::Model;
use crate::model::focus::{Pane, Step, Topic};

/// Letters of a filter: more would not fit the smallest screen.
const FILTER_MAX: usize = 40;

/// What is left for the loop to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Another picture.
    Draw,
    /// A whole one, whatever is on the screen.
    Redraw,
    /// The end.
    End,
    /// Write the screen to a file.
    Save,
    /// Begin to record, or end it.
    ToggleRecording,
    /// Look more often.
    Faster,
    /// Look less often.
    Slower,
    /// Give the terminal back, stop, and take it again.
    Suspend,
}

/// Changes `model` as `action` asks, and says what else there is to do.
pub(crate) fn to(action: Action, model: &mut Model) -> Reaction {
    model.focus.notice = None;
    let focus = &mut model.focus;
    match action {
        Action::Quit => return Reaction::End,
        Action::Save => return Reaction::Save,
        Action::ToggleRecording => return Reaction::ToggleRecording,
        Action::Faster => return Reaction::Faster,
        Action::Slower => return Reaction::Slower,
        Action::Suspend => return Reaction::Suspend,
        Action::ToggleHelp => focus.shows_help = !focus.shows_help,
        Action::Back => focus.back(),
        Action::TogglePause => model.toggle_pause(),
        Action::NextWindow => model.window = model.window.next(),
        Action::Turn(place) => {
            if let Some(topic) = Topic::ALL.get(place) {
                focus.turn_to(*topic);
            }
        }
        Action::NextPane => focus.cycle(false),
        Action::PreviousPane => focus.cycle(true),
        Action::ToggleZoom => focus.is_zoomed = !focus.is_zoomed,
        Action::Up(by) => model.select(Step::Up(by)),
        Action::Down(by) => model.select(Step::Down(by)),
        Action::First => model.select(Step::First),
        Action::Last => model.select(Step::Last),
        Action::Filter => {
            focus.turn_to(Topic::Requests);
            focus.is_typing = true;
        }
        Action::NextOrder => {
            model.next_order();
            model.focus.turn_to(Topic::Requests);
        }
        Action::ClearPeaks => {
            model.clear_peaks();
            model.focus.notice = Some("peaks and slow requests are forgotten".to_owned());
        }
        Action::NextTheme => {
            focus.theme = focus.theme.next();
            focus.notice = Some(format!("theme {}", focus.theme.label()));
        }
        Action::Type(letter) => {
            if focus.filter.chars().count() < FILTER_MAX && !letter.is_control() {
                focus.filter.push(letter);
            }
        }
        Action::Erase => {
            if focus.is_typing {
                focus.filter.pop();
            }
        }
        Action::Accept => accept(model),
    }
    Reaction::Draw
}

/// Ends a filter; in a list of requests, shows the selected one in full.
fn accept(model: &mut Model) {
    let focus = &mut model.focus;
    if focus.is_typing {
        focus.is_typing = false;
        return;
    }
    if focus.topic == Topic::Requests && !focus.is_zoomed {
        // Held on to, so that it does not change while it is read.
        model.select(Step::Up(0));
        model.focus.choose(Pane::Request);
        model.focus.is_zoomed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;

    fn after(actions: &[Action]) -> Model {
        let mut model = fixture::busy();
        for action in actions {
            assert_eq!(to(*action, &mut model), Reaction::Draw, "{action:?}");
        }
        model
    }

    #[test]
    fn what_is_no_picture_is_left_to_the_loop() {
        let mut model = fixture::busy();
        for (action, expected) in [
            (Action::Quit, Reaction::End),
            (Action::Save, Reaction::Save),
            (Action::ToggleRecording, Reaction::ToggleRecording),
            (Action::Faster, Reaction::Faster),
            (Action::Slower, Reaction::Slower),
            (Action::Suspend, Reaction::Suspend),
        ] {
            assert_eq!(to(action, &mut model), expected);
        }
    }

    #[test]
    fn a_filter_is_typed_where_requests_are() {
        let mut actions = vec![Action::Filter];
        actions.extend("failxx".chars().map(Action::Type));
        actions.extend([Action::Erase, Action::Erase]);
        let mut model = after(&actions);
        assert_eq!(model.focus.topic, Topic::Requests);
        assert_eq!(model.focus.filter, "fail");
        let shown = model.requests(model.gateway().unwrap());
        assert!(!shown.is_empty());
        assert!(shown.iter().all(|it| it.outcome.label() == "failed"));
        to(Action::Accept, &mut model);
        assert!(!model.focus.is_typing && !model.focus.is_zoomed);
        to(Action::Accept, &mut model);
        assert!(model.focus.is_zoomed, "the second one shows a request");
        assert_eq!(model.focus.pane(), Some(Pane::Request));
    }

    #[test]
    fn a_filter_has_a_bound() {
        let mut actions = vec![Action::Filter];
        actions.extend([Action::Type('世'); 99]);
        assert_eq!(after(&actions).focus.filter.chars().count(), FILTER_MAX);
    }

    #[test]
    fn the_selected_request_stays_selected_while_others_come() {
        let mut model = after(&[Action::Turn(3), Action::Down(2)]);
        let selected = |model: &Model| {
            let requests = model.requests(model.gateway().unwrap());
            let place = model.selected_request(&requests);
            (place, requests[place].id)
        };
        let (place, id) = selected(&model);
        assert_eq!(place, 2);
        model.absorb(fixture::busy_later());
        let (later, same) = selected(&model);
        assert_eq!(same, id);
        assert!(later > place, "newer ones stand above it");
    }

    #[test]
    fn a_notice_lasts_until_the_next_key() {
        let mut model = after(&[Action::NextTheme]);
        assert_eq!(model.focus.notice.as_deref(), Some("theme dark"));
        to(Action::Up(1), &mut model);
        assert_eq!(model.focus.notice, None);
    }
}
