//! What the user typed, and what it means.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use clap_complete::Shell;

use crate::model::Window;
use crate::model::focus::{Theme, Topic};
use crate::origin::Origin;
use crate::picture::Ground;
use crate::scenario::Scenario;
use crate::source::Target;
use crate::source::http::{Key, Url};
use crate::view::Look;

/// The variable that names the segment for both programs.
const SEGMENT_VARIABLE: &str = "BIFROST_TELEMETRY__SEGMENT";
/// The variable with the key of a gateway's admin listener; the gateway itself reads it, too.
const KEY_VARIABLE: &str = "BIFROST_ADMIN_KEY";
/// Exit status where there is nothing to go by.
pub(crate) const NO_VERDICT: u8 = 3;
/// The pace of the screen: four times a second costs 0.35 % of a core.
const SCREEN_INTERVAL: Duration = Duration::from_millis(250);
/// The pace of lines: one for each closed second.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// How often to look: faster than that nobody reads, and slower a dead gateway looks alive.
pub(crate) const INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(5);

/// Watch a Bifrost gateway's stages, and whether its instance is still big enough.
#[derive(Debug, Parser)]
#[command(name = "bifrost-monitor", version, max_term_width = 100)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag that a user may type"
)]
pub(crate) struct Arguments {
    /// A gateway's .seg file, followed through restarts; or a directory, whose newest live one is [default: where a
    /// gateway puts its segment by itself; also `BIFROST_TELEMETRY__SEGMENT`]
    #[arg(long, value_name = "PATH")]
    segment: Option<PathBuf>,
    /// The admin listener of a gateway on another machine, at the end of a tunnel; `BIFROST_ADMIN_KEY` opens it
    #[arg(long, value_name = "URL", value_parser = Url::parse, conflicts_with_all = ["segment", "replay"])]
    url: Option<Url>,
    /// Keep what is seen in a file, which must not be there yet
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Show a recording again; all of it at once with --once, --json and the like
    #[arg(long, value_name = "FILE", conflicts_with_all = ["segment", "record"])]
    replay: Option<PathBuf>,
    /// Show an invented gateway: what each trouble looks like
    #[arg(long, value_name = "NAME", value_enum, conflicts_with_all = ["segment", "replay", "url"])]
    scenario: Option<Scenario>,
    /// How many times faster a recording, or a scenario, goes [default: 1]
    #[arg(long, value_name = "TIMES", value_parser = speed)]
    speed: Option<f64>,
    /// Print the screen once, as text
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    once: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "watch")]
    json: bool,
    /// Print a line a second; the default where the output is no terminal
    #[arg(long)]
    watch: bool,
    /// Print the verdict as one line, for cron and Nagios: exit status 0 stay, 1 watch, 2 upgrade, 3 no verdict
    #[arg(long, conflicts_with_all = ["once", "json", "watch"])]
    check: bool,
    /// Write a picture of the screen; a file that is there is replaced, and - is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "json", "watch", "check"])]
    svg: Option<PathBuf>,
    /// Columns and rows of the picture
    #[arg(long, value_name = "WxH", default_value = "160x48", value_parser = size, requires = "svg")]
    size: (u16, u16),
    /// What the picture is drawn on
    #[arg(long, value_enum, default_value_t, requires = "svg")]
    background: Ground,
    /// List all segments that are found; exit status 3 where none of their gateways lives
    #[arg(long, conflicts_with_all = ["once", "json", "watch", "check", "svg", "url", "replay", "scenario", "record"])]
    list: bool,
    /// Print what completes this command line in a shell
    #[arg(long, value_name = "SHELL", exclusive = true)]
    completions: Option<Shell>,
    /// Print the manual page
    #[arg(long, exclusive = true)]
    man: bool,
    /// How often to look, 100ms to 5s [default: 250ms; with --watch 1s]
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    interval: Option<Duration>,
    /// Seconds that the stage table tells of: 10, 60 or 300
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = Window::parse)]
    window: Window,
    /// What the screen, its text or its picture begins with
    #[arg(long, value_name = "NAME", default_value = "overview")]
    view: Topic,
    /// Draw with ASCII only; the default where the locale is not UTF-8
    #[arg(long)]
    ascii: bool,
    /// Draw without colours; also `NO_COLOR`
    #[arg(long)]
    no_color: bool,
    /// Colours for a terminal of any, a dark or a light background, or none: terminal, dark, light, mono
    #[arg(long, value_name = "THEME", default_value = "terminal", value_parser = Theme::parse)]
    theme: Theme,
}

/// In which form figures go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A screen that keeps itself up to date.
    Screen,
    /// The screen as text, once.
    Once,
    /// One JSON object.
    Json,
    /// A line a second.
    Watch,
    /// The verdict as one line, and as the exit status.
    Check,
    /// What segments there are.
    List,
    /// A picture of the screen.
    Picture,
}

/// What the user wants.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where figures come from.
    pub(crate) origin: Origin,
    /// Where they are kept.
    pub(crate) record: Option<PathBuf>,
    /// In which form figures go out.
    pub(crate) mode: Mode,
    /// How often to look.
    pub(crate) interval: Duration,
    /// How much of the past the stage table tells of.
    pub(crate) window: Window,
    /// What the screen is about at first.
    pub(crate) topic: Topic,
    /// How to draw.
    pub(crate) look: Look,
    /// The picture, if one is asked for.
    pub(crate) picture: Picture,
    /// Which colours to begin with.
    pub(crate) theme: Theme,
}

/// A picture of the screen.
#[derive(Debug)]
pub(crate) struct Picture {
    /// Where it goes; nowhere if none is asked for.
    pub(crate) path: Option<PathBuf>,
    /// Its columns and rows.
    pub(crate) size: (u16, u16),
    /// What it is drawn on.
    pub(crate) ground: Ground,
}

impl Arguments {
    /// What the user typed. Who asks by `--check` reads the exit status: 2 would be an upgrade.
    pub(crate) fn read() -> Result<Self, u8> {
        Self::try_parse().map_err(|error| {
            // Standard output may be gone, which is no reason to panic.
            let _ = error.print();
            let is_check = std::env::args_os().any(|word| word == "--check");
            match error.exit_code() {
                2 if is_check => NO_VERDICT,
                code => u8::try_from(code).unwrap_or(NO_VERDICT),
            }
        })
    }

    /// What was asked for of this program itself rather than of a gateway.
    pub(crate) fn documentation(&self) -> Option<Vec<u8>> {
        let mut text = vec![];
        let mut command = Self::command();
        if let Some(shell) = self.completions {
            clap_complete::generate(shell, &mut command, "bifrost-monitor", &mut text);
        } else if self.man {
            let page = clap_mangen::Man::new(command).render(&mut text);
            page.expect("memory takes all that is written to it");
        } else {
            return None;
        }
        Some(text)
    }
}

impl Settings {
    /// What `typed` means where `environment` is the environment and standard output is a terminal, or is not.
    pub(crate) fn of(
        typed: Arguments,
        environment: impl Fn(&str) -> Option<OsString>,
        is_terminal: bool,
    ) -> Self {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        let is_dumb = term == "dumb";
        // Their fonts have no Braille.
        let is_console = term == "linux" || term.to_string_lossy().starts_with("vt");
        let mode = match typed {
            Arguments { once: true, .. } => Mode::Once,
            Arguments { json: true, .. } => Mode::Json,
            Arguments { watch: true, .. } => Mode::Watch,
            Arguments { check: true, .. } => Mode::Check,
            Arguments { list: true, .. } => Mode::List,
            Arguments { svg: Some(_), .. } => Mode::Picture,
            _ if is_terminal && !is_dumb => Mode::Screen,
            _ => Mode::Watch,
        };
        let interval = match mode {
            Mode::Watch => LINE_INTERVAL,
            _ => SCREEN_INTERVAL,
        };
        let named = typed
            .segment
            .or_else(|| set(SEGMENT_VARIABLE).map(PathBuf::from));
        // Who wants to know but once wants to know how it ends.
        let goes_on = matches!(mode, Mode::Screen | Mode::Watch);
        let speed = goes_on.then(|| typed.speed.unwrap_or(1.0));
        let key = set(KEY_VARIABLE).and_then(|key| Key::new(key.to_str()?));
        let origin = match (typed.replay, typed.scenario, typed.url) {
            (Some(path), ..) => Origin::Recording { path, speed },
            (None, Some(scenario), _) => Origin::Invented { scenario, speed },
            (None, None, Some(url)) => Origin::Remote { url, key },
            (None, None, None) => Origin::Segment(Target::of(named)),
        };
        Self {
            origin,
            record: typed.record,
            mode,
            interval: typed.interval.unwrap_or(interval),
            window: typed.window,
            topic: typed.view,
            theme: typed.theme,
            // What the terminal can't show, a picture can.
            look: Look {
                ascii: typed.ascii
                    || (mode != Mode::Picture && (is_dumb || is_console || !speaks_utf8(&set))),
                colour: !typed.no_color
                    && (mode == Mode::Picture || (!is_dumb && set("NO_COLOR").is_none())),
            },
            picture: Picture {
                path: typed.svg,
                size: typed.size,
                ground: typed.background,
            },
        }
    }
}

/// Whether the locale can show more than ASCII. The first of its variables that is set decides.
fn speaks_utf8(set: &impl Fn(&str) -> Option<OsString>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let locale = locale.unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let expected = "expected columns and rows up to 500x200, such as 160x48";
    let (width, height) = text.split_once('x').ok_or(expected)?;
    match (width.parse(), height.parse()) {
        (Ok(width @ 1..=500), Ok(height @ 1..=200)) => Ok((width, height)),
        _ => Err(expected.to_owned()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok();
    speed
        .filter(|speed| (0.1..=1e6).contains(speed))
        .ok_or_else(|| "expected a number from 0.1 to 1000000".to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let expected = "a duration from 100ms to 5s, such as 250ms";
    let interval =
        humantime::parse_duration(text).map_err(|error| format!("{error}: expected {expected}"))?;
    if INTERVALS.contains(&interval) {
        Ok(interval)
    } else {
        Err(format!("expected {expected}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str, environment: &[(&str, &str)], is_terminal: bool) -> Settings {
        let words = ["bifrost-monitor"]
            .into_iter()
            .chain(line.split_whitespace());
        let typed = Arguments::try_parse_from(words).unwrap();
        let read = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Settings::of(typed, read, is_terminal)
    }

    fn refusal(line: &str) -> String {
        let words = ["bifrost-monitor"]
            .into_iter()
            .chain(line.split_whitespace());
        Arguments::try_parse_from(words).unwrap_err().to_string()
    }

    #[test]
    fn the_arguments_hold_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn without_a_terminal_there_are_lines_unless_told_otherwise() {
        let term = [("TERM", "xterm")];
        for (line, is_terminal, mode) in [
            ("", true, Mode::Screen),
            ("", false, Mode::Watch),
            ("--once", false, Mode::Once),
            ("--json", true, Mode::Json),
            ("--watch", true, Mode::Watch),
            ("--check", true, Mode::Check),
            ("--list", false, Mode::List),
        ] {
            assert_eq!(settings(line, &term, is_terminal).mode, mode, "{line}");
        }
        let dumb = settings("", &[("TERM", "dumb"), ("LANG", "C.UTF-8")], true);
        assert_eq!(dumb.mode, Mode::Watch);
        assert_eq!((dumb.look.ascii, dumb.look.colour), (true, false));
    }

    #[test]
    fn every_shell_and_the_manual_know_every_flag() {
        let text = |line: &str| {
            let words = ["bifrost-monitor"].into_iter().chain(line.split(' '));
            let typed = Arguments::try_parse_from(words).unwrap();
            String::from_utf8(typed.documentation().unwrap()).unwrap()
        };
        for flag in ["check", "record", "replay", "scenario", "url", "window"] {
            for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
                let text = text(&format!("--completions {shell}"));
                assert!(text.contains(flag), "{flag} for {shell}");
            }
            let flag = format!("\\-\\-{flag}");
            assert!(text("--man").contains(&flag), "{flag}");
        }
        assert!(refusal("--man --json").contains("cannot be used with"));
    }

    #[test]
    fn lines_come_once_a_second_and_the_screen_four_times() {
        assert_eq!(settings("--watch", &[], true).interval, LINE_INTERVAL);
        assert_eq!(settings("", &[], true).interval, SCREEN_INTERVAL);
        let asked = settings("--watch --interval 2s", &[], true);
        assert_eq!(asked.interval, Duration::from_secs(2));
    }

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        for (environment, ascii) in [
            (&[("LANG", "de_DE.UTF-8")][..], false),
            (&[("LANG", "en_US.utf8")], false),
            (&[("LANG", "C")], true),
            (&[], true),
            (&[("LC_ALL", "C"), ("LANG", "C.UTF-8")], true),
            (
                &[("LC_ALL", ""), ("LC_CTYPE", "C.UTF-8"), ("LANG", "C")],
                false,
            ),
        ] {
            assert_eq!(
                settings("", environment, true).look.ascii,
                ascii,
                "{environment:?}"
            );
        }
        let picture = settings("--svg a.svg", &[("LANG", "C"), ("NO_COLOR", "1")], false);
        assert_eq!((picture.look.ascii, picture.look.colour), (false, true));
        assert!(settings("--ascii", &[("LANG", "C.UTF-8")], true).look.ascii);
    }

    #[test]
    fn colours_go_when_asked_to() {
        assert!(settings("", &[("NO_COLOR", "")], true).look.colour);
        assert!(!settings("", &[("NO_COLOR", "1")], true).look.colour);
        assert!(!settings("--no-color", &[], true).look.colour);
    }

    #[test]
    fn the_flag_wins_over_the_variable() {
        let variable = [(SEGMENT_VARIABLE, "b.seg")];
        let file = |path: &str| Origin::Segment(Target::File(path.into()));
        assert_eq!(settings("", &variable, true).origin, file("b.seg"));
        assert_eq!(
            settings("--segment a.seg", &variable, true).origin,
            file("a.seg")
        );
        let directory = settings("--segment somewhere", &variable, true).origin;
        let expected = Target::Directories(vec!["somewhere".into()]);
        assert_eq!(directory, Origin::Segment(expected));
    }

    #[test]
    fn a_gateway_elsewhere_is_opened_by_a_key_of_the_environment_alone() {
        let url = || Url::parse("http://a:1").unwrap();
        for (variable, key) in [
            (&[][..], None),
            (&[("BIFROST_ADMIN_KEY", "ak-1")], Key::new("ak-1")),
        ] {
            let found = settings("--url http://a:1", variable, true).origin;
            assert_eq!(found, Origin::Remote { url: url(), key });
        }
        assert!(refusal("--url https://a").contains("tunnel"));
        assert!(refusal("--url http://a:1 --segment b").contains("cannot be used with"));
    }

    #[test]
    fn a_recording_keeps_its_pace_where_somebody_looks_on() {
        for (line, speed) in [
            ("--replay a.jsonl", Some(1.0)),
            ("--replay a.jsonl --speed 60", Some(60.0)),
            ("--replay a.jsonl --watch --speed 0.5", Some(0.5)),
            ("--replay a.jsonl --json --speed 60", None),
            ("--replay a.jsonl --once", None),
        ] {
            let path = "a.jsonl".into();
            let expected = Origin::Recording { path, speed };
            // Whatever the variable says.
            let variable = [(SEGMENT_VARIABLE, "b.seg"), ("TERM", "xterm")];
            assert_eq!(settings(line, &variable, true).origin, expected, "{line}");
        }
    }

    #[test]
    fn what_can_not_be_meant_is_refused_with_what_can() {
        assert!(refusal("--window 7").contains("10, 60 or 300"));
        assert!(refusal("--interval 1h").contains("from 100ms to 5s"));
        assert!(refusal("--interval soon").contains("such as 250ms"));
        for speed in ["0", "-1", "NaN", "inf", "fast"] {
            let line = format!("--replay a --speed={speed}");
            assert!(refusal(&line).contains("from 0.1 to 1000000"), "{speed}");
        }
        for size in ["160", "0x48", "501x48", "160x-1", "ax1"] {
            assert!(refusal(&format!("--svg a --size={size}")).contains("160x48"));
        }
        assert!(refusal("--scenario storm").contains("queue-wait"));
        assert!(refusal("--replay a --segment b").contains("cannot be used with"));
        assert!(refusal("--once --json").contains("cannot be used with"));
    }
}
