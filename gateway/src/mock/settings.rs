//! How a mock provider behaves, as its command line says it.

use std::net::SocketAddr;
use std::time::Duration;

/// The command line of a mock process. It says where it listens in its first line, and ends when its input does.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct MockArgs {
    // Not `--listen`: that is the gateway's own in every subcommand, and clap panics on two types of one name.
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub address: SocketAddr,
    /// What to answer, and when.
    #[command(flatten)]
    pub settings: Settings,
}

/// What a mock provider answers, and when. Rates and the spread are shares, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct Settings {
    /// Time from the request to the answer, or to a stream's first chunk, on average.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = humantime::parse_duration)]
    pub delay: Duration,
    /// How far the delay varies to either side, evenly: 0.4 is anything from 0.6 to 1.4 times the delay.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub spread: f64,
    /// Size of a plain answer; a frame of some 340 bytes is the least.
    #[arg(long, value_name = "BYTES", default_value = "1407")]
    pub body_bytes: u32,
    /// Pieces that a stream's content comes in.
    #[arg(long, value_name = "COUNT", default_value = "16")]
    pub chunks: u32,
    /// Time between two such pieces.
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = humantime::parse_duration)]
    pub pace: Duration,
    /// Share of requests that fail with a 500 after their delay.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub failure_rate: f64,
    /// Share of requests that are turned away with a 429 at once.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub rate_limit_rate: f64,
    /// How long a 429 tells the client to stay away.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    pub retry_after: Duration,
}

impl Default for Settings {
    /// The answer's size is that of the benchmark page; a test holds the rest to the command line's defaults.
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(50),
            spread: 0.0,
            body_bytes: 1_407,
            chunks: 16,
            pace: Duration::from_millis(20),
            failure_rate: 0.0,
            rate_limit_rate: 0.0,
            retry_after: Duration::from_secs(1),
        }
    }
}

impl Settings {
    /// The command line that says the same. Every field is named, so that none can be forgotten.
    pub(crate) fn to_args(self) -> [String; 8] {
        let Self {
            delay,
            spread,
            body_bytes,
            chunks,
            pace,
            failure_rate,
            rate_limit_rate,
            retry_after,
        } = self;
        [
            format!("--delay={}", humantime::format_duration(delay)),
            format!("--spread={spread}"),
            format!("--body-bytes={body_bytes}"),
            format!("--chunks={chunks}"),
            format!("--pace={}", humantime::format_duration(pace)),
            format!("--failure-rate={failure_rate}"),
            format!("--rate-limit-rate={rate_limit_rate}"),
            format!("--retry-after={}", humantime::format_duration(retry_after)),
        ]
    }

    /// How long this request takes.
    pub(super) fn delay_of_one(&self) -> Duration {
        self.delay
            .mul_f64(1.0 + self.spread * (2.0 * fastrand::f64() - 1.0))
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        mock: MockArgs,
    }

    fn parse<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Settings, clap::Error> {
        Cli::try_parse_from(["mock"].into_iter().chain(args)).map(|cli| cli.mock.settings)
    }

    #[test]
    fn an_empty_command_line_means_the_defaults() {
        assert_eq!(parse([]).unwrap(), Settings::default());
    }

    #[test]
    fn settings_survive_the_way_through_a_command_line() {
        let settings = Settings {
            delay: Duration::from_millis(1_500),
            spread: 0.4,
            body_bytes: 10_563,
            chunks: 3,
            pace: Duration::from_micros(1_250),
            failure_rate: 0.01,
            rate_limit_rate: 1.0,
            retry_after: Duration::from_millis(2_500),
        };
        let args = settings.to_args();
        assert_eq!(parse(args.iter().map(String::as_str)).unwrap(), settings);
    }

    #[test]
    fn a_share_outside_0_to_1_is_refused() {
        for share in ["1.1", "-0.1", "NaN", "half"] {
            assert!(
                parse([format!("--spread={share}").as_str()]).is_err(),
                "{share}"
            );
        }
    }

    #[test]
    fn delays_stay_within_their_spread_and_use_it() {
        let settings = Settings {
            delay: Duration::from_millis(1_500),
            spread: 0.4,
            ..Settings::default()
        };
        let delays: Vec<_> = (0..1_000).map(|_| settings.delay_of_one()).collect();
        let least = *delays.iter().min().unwrap();
        let most = *delays.iter().max().unwrap();
        // 1,000 draws miss the outer eighth of the range by chance once in 10^58.
        assert!((900..1_050).contains(&least.as_millis()), "{least:?}");
        assert!((1_950..=2_100).contains(&most.as_millis()), "{most:?}");
    }
}
