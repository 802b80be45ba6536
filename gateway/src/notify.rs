//! What systemd is told of the gateway: that it is ready, reads its settings again, stops, and is alive.
//!
//! Each is a datagram to the socket that `NOTIFY_SOCKET` names (`sd_notify(3)`). Without the variable nobody is told,
//! and a supervisor that does not listen costs nothing: the gateway never waits for it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use bifrost_shared::segment::monotonic_ns;

/// What there is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It serves, with the settings that it has.
    Ready,
    /// It reads its settings again. [`State::Ready`] follows, also where they were refused.
    Reloading,
    /// It takes nothing new and ends when it has finished what it has.
    Stopping,
    /// It is not stuck.
    Alive,
}

impl State {
    fn message(self) -> String {
        match self {
            Self::Ready => "READY=1".to_owned(),
            // From systemd 253 on, Type=notify-reload wants to know when.
            Self::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_ns() / 1_000),
            Self::Stopping => "STOPPING=1".to_owned(),
            Self::Alive => "WATCHDOG=1".to_owned(),
        }
    }
}

/// Whoever started the gateway and wants to hear of it, if anybody.
#[derive(Debug)]
pub struct Supervisor {
    door: Option<(UnixDatagram, SocketAddr)>,
    /// How long it may hear nothing before it takes the gateway for stuck.
    patience: Option<Duration>,
}

impl Supervisor {
    /// The one that `environment` names. Take `std::env::var_os`.
    ///
    /// # Errors
    ///
    /// If it names a socket that can't be one, or the system gives none.
    pub fn find(environment: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let name = environment("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let door = name.map(|name| door(&name)).transpose()?;
        // A process that inherits the variables of another is not the one that is watched.
        let is_for_us = environment("WATCHDOG_PID")
            .is_none_or(|pid| pid.to_str() == Some(&std::process::id().to_string()));
        let patience = environment("WATCHDOG_USEC")
            .and_then(|text| text.to_str()?.parse().ok())
            .filter(|microseconds| is_for_us && *microseconds > 0);
        Ok(Self {
            door,
            patience: patience.map(Duration::from_micros),
        })
    }

    /// Tells it, if it is there to be told.
    pub fn tell(&self, state: State) {
        let Some((socket, address)) = &self.door else {
            return;
        };
        if let Err(error) = socket.send_to_addr(state.message().as_bytes(), address) {
            tracing::debug!(%error, ?state, "the supervisor can't be told");
        }
    }

    /// Tells it twice within its patience that the caller's runtime gets on. Never ends.
    pub async fn reassure(&self) {
        let Some(patience) = self.patience else {
            return std::future::pending().await;
        };
        let mut beat = tokio::time::interval(patience / 2);
        loop {
            beat.tick().await;
            self.tell(State::Alive);
        }
    }
}

/// A socket to send from, and the address of the supervisor's: a path, or a name in the abstract namespace after an `@`.
fn door(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor(variables: &[(&str, &str)]) -> Supervisor {
        let variables: Vec<(String, String)> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Supervisor::find(|name| {
            let found = variables.iter().find(|(set, _)| set == name);
            found.map(|(_, value)| OsString::from(value))
        })
        .unwrap()
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut datagram = [0; 256];
        let length = socket.recv(&mut datagram).unwrap();
        String::from_utf8(datagram[..length].to_vec()).unwrap()
    }

    #[test]
    fn each_state_is_a_datagram() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = supervisor(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        for (state, message) in [
            (State::Ready, "READY=1"),
            (State::Stopping, "STOPPING=1"),
            (State::Alive, "WATCHDOG=1"),
        ] {
            supervisor.tell(state);
            assert_eq!(heard(&socket), message);
        }
        supervisor.tell(State::Reloading);
        let reloading = heard(&socket);
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        assert!(since.unwrap().parse::<u64>().unwrap() <= monotonic_ns() / 1_000);
    }

    #[test]
    fn a_name_after_an_at_is_abstract() {
        let name = format!("bifrost-test-{}", fastrand::u64(..));
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        supervisor(&[("NOTIFY_SOCKET", &format!("@{name}"))]).tell(State::Ready);
        assert_eq!(heard(&socket), "READY=1");
    }

    #[test]
    fn a_supervisor_that_is_not_there_or_does_not_listen_is_no_trouble() {
        supervisor(&[]).tell(State::Ready);
        supervisor(&[("NOTIFY_SOCKET", "")]).tell(State::Ready);
        supervisor(&[("NOTIFY_SOCKET", "/nonexistent/notify")]).tell(State::Ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watchdog_hears_of_us_twice_within_its_patience() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let path = path.to_str().unwrap();
        let us = std::process::id().to_string();
        let watched = [
            ("NOTIFY_SOCKET", path),
            ("WATCHDOG_USEC", "10000000"),
            ("WATCHDOG_PID", &us),
        ];
        let supervisor = supervisor(&watched);
        let _ = tokio::time::timeout(Duration::from_secs(11), supervisor.reassure()).await;
        socket.set_nonblocking(true).unwrap();
        let mut beats = 0;
        while socket.recv(&mut [0; 16]).is_ok() {
            beats += 1;
        }
        assert_eq!(beats, 3, "at 0, 5 and 10 s");
    }

    #[test]
    fn only_the_process_that_is_watched_keeps_the_watchdog_quiet() {
        let check = |variables: &[(&str, &str)], patience: Option<u64>| {
            let expected = patience.map(Duration::from_secs);
            assert_eq!(supervisor(variables).patience, expected, "{variables:?}");
        };
        check(&[], None);
        check(&[("WATCHDOG_USEC", "30000000")], Some(30));
        check(
            &[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "1")],
            None,
        );
        check(&[("WATCHDOG_USEC", "0")], None);
        check(&[("WATCHDOG_USEC", "soon")], None);
    }
}
