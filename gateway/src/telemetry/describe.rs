//! What the segment says of its gateway, beside figures: who it is, and what providers and keys are called.

use std::io;

use bifrost_shared::layout::{self, NameKind};
use bifrost_shared::segment;
use bifrost_shared::snapshot::{Header, Name};

use super::Description;
use crate::clock::{Clock, unix_ns};
use crate::config::{self, InstanceMetadata};
use crate::machine::instance::{Instance, METADATA, PATIENCE, ask, is_on_ec2};
use crate::machine::{self, Machine};

/// The segment's header.
pub(super) fn head(
    settings: &config::Telemetry,
    description: &Description,
    clock: &Clock,
    machine: &mut Machine,
) -> Header {
    let memory = machine.memory();
    let instance = instance(settings, is_on_ec2, || ask(METADATA, PATIENCE));
    Header {
        version: (layout::VERSION_MAJOR, layout::VERSION_MINOR),
        pid: std::process::id().into(),
        start_ticks: machine::start_ticks(),
        boot_id: segment::boot_id(),
        started_at: unix_ns(),
        clock: clock.kind(),
        stamp_cost_ps: clock.cost_ps(),
        vcpus: machine.vcpus(),
        memory_total: memory.total,
        memory_limit: memory.limit,
        buffer_size: description.buffer_size as u64,
        pool_size: description.pool_size as u64,
        workers: description.workers as u64,
        thresholds: settings.thresholds,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        instance: instance.kind.unwrap_or_default(),
        credit_mode: instance.credit_mode.unwrap_or_default(),
    }
}

/// Which instance this is: as the settings say, and where they leave something open that somebody could see, as the
/// instance itself does.
fn instance(
    settings: &config::Telemetry,
    is_on_ec2: impl FnOnce() -> bool,
    ask: impl FnOnce() -> io::Result<Instance>,
) -> Instance {
    let told = Instance {
        kind: settings.instance.clone(),
        credit_mode: settings.credit_mode,
    };
    let is_open = settings.enabled && (told.kind.is_none() || told.credit_mode.is_none());
    let may_ask = is_open
        && match settings.instance_metadata {
            InstanceMetadata::Auto => is_on_ec2(),
            InstanceMetadata::On => true,
            InstanceMetadata::Off => false,
        };
    if !may_ask {
        return told;
    }
    match ask() {
        Ok(found) => Instance {
            kind: told.kind.or(found.kind),
            credit_mode: told.credit_mode.or(found.credit_mode),
        },
        Err(error) => {
            const MESSAGE: &str = "the instance did not say what it is";
            if settings.instance_metadata == InstanceMetadata::On {
                tracing::warn!(%error, "{MESSAGE}");
            } else {
                tracing::debug!(%error, "{MESSAGE}");
            }
            told
        }
    }
}

/// The labels of providers and keys.
pub(super) fn names(providers: &[(String, Vec<String>)]) -> Vec<Name> {
    let name = |kind: NameKind, index: usize, key: &str, label: String| Name {
        kind: kind as u64,
        index: index as u64,
        is_stage: false,
        in_overhead: false,
        reference_ns: (None, None),
        key: key.to_owned(),
        label,
    };
    let mut names = vec![];
    for (provider, (provider_name, keys)) in providers.iter().enumerate() {
        names.push(name(
            NameKind::Provider,
            provider,
            provider_name,
            provider_name.clone(),
        ));
        // The place of a key that is no more stays empty.
        let named = keys.iter().enumerate().filter(|(_, name)| !name.is_empty());
        for (key, key_name) in named {
            names.push(name(
                NameKind::Key,
                provider << 32 | key,
                key_name,
                format!("{provider_name}/{key_name}"),
            ));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use bifrost_shared::layout::CreditMode;
    use bifrost_shared::segment::Readers;
    use bifrost_shared::thresholds::Thresholds;

    use super::*;

    fn settings(instance: Option<&str>, credit_mode: Option<CreditMode>) -> config::Telemetry {
        config::Telemetry {
            enabled: true,
            segment: None,
            readers: Readers::Owner,
            thresholds: Thresholds::default(),
            instance: instance.map(str::to_owned),
            credit_mode,
            instance_metadata: InstanceMetadata::On,
        }
    }

    fn medium() -> Instance {
        Instance {
            kind: Some("t3.medium".to_owned()),
            credit_mode: Some(CreditMode::Unlimited),
        }
    }

    #[test]
    fn the_settings_win_over_what_the_instance_says() {
        let said = |instance, mode| {
            let found = super::instance(&settings(instance, mode), || false, || Ok(medium()));
            (found.kind.unwrap(), found.credit_mode.unwrap())
        };
        let (standard, unlimited) = (CreditMode::Standard, CreditMode::Unlimited);
        assert_eq!(said(None, None), ("t3.medium".to_owned(), unlimited));
        assert_eq!(
            said(Some("t3.xlarge"), None),
            ("t3.xlarge".to_owned(), unlimited)
        );
        assert_eq!(
            said(None, Some(standard)),
            ("t3.medium".to_owned(), standard)
        );
    }

    #[test]
    fn nobody_is_asked_unless_the_settings_allow_it_and_leave_something_open() {
        use InstanceMetadata::{Auto, Off, On};
        let (all, none) = (
            (Some("t3.medium"), Some(CreditMode::Standard)),
            (None, None),
        );
        for (instance_metadata, told, is_on_ec2, enabled, expected) in [
            (On, none, false, true, true),
            (Auto, none, true, true, true),
            (Auto, none, false, true, false),
            (Off, none, true, true, false),
            (On, all, true, true, false),
            (On, none, true, false, false),
        ] {
            let settings = config::Telemetry {
                enabled,
                instance_metadata,
                ..settings(told.0, told.1)
            };
            let mut is_asked = false;
            let found = instance(
                &settings,
                || is_on_ec2,
                || {
                    is_asked = true;
                    Err(io::Error::other("silence"))
                },
            );
            assert_eq!(is_asked, expected, "{instance_metadata:?} {told:?}");
            assert_eq!((found.kind.as_deref(), found.credit_mode), told);
        }
    }
}
