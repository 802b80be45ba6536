//! TLS sessions to resume: enough for a burst. rustls' own store keeps 8 tickets a server, and a ticket serves once; with
//! 128 handshakes under way 10 to 20 % were resumed (measured), and a full one costs twice as much.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

/// Tickets that are kept for a server, the newest; some 1 KB each.
const TICKETS_MAX: usize = 256;
/// Servers that tickets are kept for. Only configured providers are asked.
const SERVERS_MAX: usize = 256;

/// Tickets of TLS 1.3 are kept here, all else by rustls.
#[derive(Debug)]
pub(super) struct Sessions {
    tickets: Mutex<HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>>,
    others: ClientSessionMemoryCache,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self {
            tickets: Mutex::default(),
            others: ClientSessionMemoryCache::new(SERVERS_MAX),
        }
    }

    fn tickets(
        &self,
    ) -> MutexGuard<'_, HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>> {
        self.tickets.lock().expect("nobody panics while holding it")
    }
}

impl ClientSessionStore for Sessions {
    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut tickets = self.tickets();
        if tickets.len() >= SERVERS_MAX && !tickets.contains_key(&name) {
            return;
        }
        let kept = tickets.entry(name).or_default();
        if kept.len() == TICKETS_MAX {
            kept.pop_front();
        }
        kept.push_back(ticket);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets().get_mut(name)?.pop_back()
    }

    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.others.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.others.kx_hint(name)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.others.set_tls12_session(name, session);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.others.tls12_session(name)
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.others.remove_tls12_session(name);
    }
}
