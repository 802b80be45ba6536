//! Descriptors: raised as far as the system allows, and a clear word where that is not enough.

use anyhow::bail;

use super::scenario::Setup;
use crate::machine;

/// Of a process, beside those of requests.
const APART: u64 = 256;
/// Answers that come late keep their descriptors: so much more than the mean may be in flight.
const MARGIN: f64 = 1.15;

/// Raises the limit of this process and of those that it starts.
pub(super) fn raise() -> anyhow::Result<()> {
    Ok(machine::raise_descriptor_limit()?)
}

/// Refuses a load that needs more than there are: two for each request in flight in the gateway, one in the load and in
/// the provider. How many a provider elsewhere keeps in flight is not known.
pub(super) fn check(setup: &Setup) -> anyhow::Result<()> {
    let needed = needed(setup);
    match machine::descriptor_limit() {
        Some(limit) if limit < needed && !setup.elsewhere => bail!(
            "{} needs {needed} descriptors in the gateway (two for each of {:.0} requests in flight), and the limit is {limit}: \
             raise the hard limit, as with `ulimit -Hn {needed}` as root or `LimitNOFILE={needed}` in systemd, or lower --rate",
            setup.name,
            setup.in_flight(),
        ),
        _ => Ok(()),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of descriptors"
)]
fn needed(setup: &Setup) -> u64 {
    APART + (setup.in_flight() * MARGIN * 2.0).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{Name, Pace};
    use super::*;

    #[test]
    fn the_page_s_load_fits_into_what_the_page_needed() {
        // The page needs 18,400 to 21,000.
        let needed = needed(&Setup::page(Name::T3Medium));
        assert_eq!(needed, 17_506);
    }

    #[test]
    fn a_load_that_no_limit_allows_is_refused_with_the_command_that_helps() {
        let setup = Setup {
            pace: Pace::Rate(u32::MAX),
            ..Setup::page(Name::T3Medium)
        };
        let Err(error) = check(&setup) else {
            assert_eq!(machine::descriptor_limit(), None);
            return;
        };
        let words = error.to_string();
        let command = format!("`ulimit -Hn {}`", needed(&setup));
        assert!(words.contains(&command), "{words}");
    }
}
