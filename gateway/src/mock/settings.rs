//! How a mock provider behaves, as its command line says it.

use std::net::SocketAddr;
use std::time::Duration;

use super::delay::{self, Percentiles};
use super::manner::KeyManner;

/// The command line of a mock process. It says where it listens in its first line, and ends with whoever started
/// it: the demo's when its input does.
#[derive(Debug, Clone, clap::Args)]
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
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Settings {
    /// Time from the request to the answer, or to a stream's first chunk, on average.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = humantime::parse_duration)]
    pub delay: Duration,
    /// How far the delay varies to either side, evenly: 0.4 is anything from 0.6 to 1.4 times the delay.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub spread: f64,
    /// How far it varies log-normally instead, as real providers' does: the delay is then the median, and e^SIGMA times it
    /// is what 84 of 100 take at most.
    #[arg(long, value_name = "SIGMA", default_value = "0", value_parser = sigma, conflicts_with = "spread")]
    pub sigma: f64,
    /// The delay by percentiles instead, such as 50=1s,90=1.8s,99=4s: even between two of them; 0 and 100 may be named.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["delay", "spread", "sigma"])]
    pub percentiles: Option<Percentiles>,
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
    /// Share of requests that are never answered.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub stall_rate: f64,
    /// Share of requests whose connection breaks in the middle of the answer.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    pub cut_rate: f64,
    /// What becomes of a key's requests instead: KEY=delay:TIME, KEY=status:CODE, KEY=limited (429), KEY=stall or KEY=cut;
    /// may be repeated.
    #[arg(long = "key", value_name = "KEY=MANNER")]
    pub keys: Vec<KeyManner>,
}

impl Default for Settings {
    /// The answer's size is that of the benchmark page; a test holds the rest to the command line's defaults.
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(50),
            spread: 0.0,
            sigma: 0.0,
            percentiles: None,
            body_bytes: 1_407,
            chunks: 16,
            pace: Duration::from_millis(20),
            failure_rate: 0.0,
            rate_limit_rate: 0.0,
            retry_after: Duration::from_secs(1),
            stall_rate: 0.0,
            cut_rate: 0.0,
            keys: vec![],
        }
    }
}

impl Settings {
    /// The command line that says the same. Every field is named, so that none can be forgotten.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let Self {
            delay,
            spread,
            sigma,
            percentiles,
            body_bytes,
            chunks,
            pace,
            failure_rate,
            rate_limit_rate,
            retry_after,
            stall_rate,
            cut_rate,
            keys,
        } = self;
        let time = |time: &Duration| humantime::format_duration(*time).to_string();
        let mut args = vec![
            format!("--body-bytes={body_bytes}"),
            format!("--chunks={chunks}"),
            format!("--pace={}", time(pace)),
            format!("--failure-rate={failure_rate}"),
            format!("--rate-limit-rate={rate_limit_rate}"),
            format!("--retry-after={}", time(retry_after)),
            format!("--stall-rate={stall_rate}"),
            format!("--cut-rate={cut_rate}"),
        ];
        args.extend(keys.iter().map(|key| format!("--key={key}")));
        // One way to say how long it takes shuts the others out.
        match percentiles {
            Some(percentiles) => args.push(format!("--percentiles={percentiles}")),
            None if *sigma > 0.0 => {
                args.extend([
                    format!("--delay={}", time(delay)),
                    format!("--sigma={sigma}"),
                ]);
            }
            None => args.extend([
                format!("--delay={}", time(delay)),
                format!("--spread={spread}"),
            ]),
        }
        args
    }

    /// How long this request takes.
    pub(super) fn delay_of_one(&self) -> Duration {
        match &self.percentiles {
            Some(percentiles) => percentiles.at(fastrand::f64()),
            None if self.sigma > 0.0 => {
                delay::log_normal(self.delay, self.sigma, [fastrand::f64(), fastrand::f64()])
            }
            None => delay::even(self.delay, self.spread, fastrand::f64()),
        }
    }
}

fn sigma(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(sigma) if (0.0..=3.0).contains(&sigma) => Ok(sigma),
        _ => Err("expected a number from 0 to 3".to_owned()),
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
        let check = |settings: Settings| {
            let args = settings.to_args();
            assert_eq!(parse(args.iter().map(String::as_str)).unwrap(), settings);
        };
        let settings = Settings {
            delay: Duration::from_millis(1_500),
            spread: 0.4,
            body_bytes: 10_563,
            chunks: 3,
            pace: Duration::from_micros(1_250),
            failure_rate: 0.01,
            rate_limit_rate: 1.0,
            retry_after: Duration::from_millis(2_500),
            stall_rate: 0.02,
            cut_rate: 0.03,
            keys: vec![
                "sk-a=stall".parse().unwrap(),
                "sk-b=delay:3s".parse().unwrap(),
            ],
            ..Settings::default()
        };
        check(Settings {
            spread: 0.0,
            sigma: 0.5,
            ..settings.clone()
        });
        check(Settings {
            percentiles: Some("50=1s,99=4s".parse().unwrap()),
            ..Settings::default()
        });
        check(settings);
    }

    #[test]
    fn two_ways_to_say_how_long_it_takes_are_refused() {
        for args in [
            ["--sigma=0.5", "--spread=0.4"],
            ["--percentiles=50=1s", "--delay=1s"],
            ["--percentiles=50=1s", "--sigma=0.5"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
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
