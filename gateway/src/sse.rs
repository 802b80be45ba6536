//! Event streams, split into whole events and left as bytes.
//!
//! Packets respect neither lines nor characters, so what is unfinished is kept for the next packet, up to a limit. Lines
//! end in CR, LF or both. The bytes of whole events are handed on as they came.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use memchr::memchr2_iter;

/// An event that is longer than this ends the stream. An image comes as one line of megabytes.
pub const EVENT_BYTES_MAX: usize = 32 << 20;

/// Keeps what is unfinished between two packets.
#[derive(Debug, Default)]
pub struct Splitter {
    pending: BytesMut,
    /// Where the unfinished line begins in `pending`.
    line: usize,
    /// Where to look on in `pending`.
    scanned: usize,
    /// The byte before was a CR: an LF that follows belongs to it.
    after_cr: bool,
}

/// An event grew beyond [`EVENT_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Splitter {
    /// Adds a packet, and gives back the events that are whole now, as one run of bytes; empty if there is none.
    ///
    /// # Errors
    ///
    /// [`TooLong`] when an event exceeds the limit.
    pub fn push(&mut self, packet: &Bytes) -> Result<Bytes, TooLong> {
        if self.pending.is_empty() {
            // The usual case: a packet of whole events goes through without a copy.
            let end = self.scan(packet);
            self.pending.extend_from_slice(&packet[end..]);
            self.settle(end);
            return self.checked(packet.slice(..end));
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(packet);
        let end = self.scan(&pending);
        let run = pending.split_to(end);
        self.pending = pending;
        self.settle(end);
        self.checked(run.freeze())
    }

    /// What is left when the stream has ended: the beginning of an event that never became whole.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.pending
    }

    fn checked(&self, run: Bytes) -> Result<Bytes, TooLong> {
        if self.pending.len() > EVENT_BYTES_MAX {
            Err(TooLong)
        } else {
            Ok(run)
        }
    }

    /// The end of the last whole event in `bytes`, of which `scanned` were seen before.
    fn scan(&mut self, bytes: &[u8]) -> usize {
        let mut end = 0;
        let from = self.scanned;
        let mut previous_cr = if self.after_cr {
            from.checked_sub(1)
        } else {
            None
        };
        // A CR that ended the packet before, with everything up to it handed on.
        let mut leading = self.after_cr && from == 0;
        for at in memchr2_iter(b'\r', b'\n', &bytes[from..]).map(|at| at + from) {
            let is_second_half = bytes[at] == b'\n'
                && (previous_cr.is_some_and(|cr| cr + 1 == at) || (leading && at == 0));
            leading = false;
            if is_second_half {
                if end == at {
                    end = at + 1;
                }
                self.line = at + 1;
                previous_cr = None;
                continue;
            }
            if self.line == at {
                end = at + 1;
            }
            self.line = at + 1;
            previous_cr = (bytes[at] == b'\r').then_some(at);
        }
        self.scanned = bytes.len();
        if let Some(last) = bytes.last() {
            self.after_cr = *last == b'\r';
        }
        end
    }

    /// Counts from the new beginning.
    fn settle(&mut self, end: usize) {
        self.line -= end;
        self.scanned -= end;
    }
}

/// An event, as its fields say.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'r> {
    /// Its name; empty if it has none.
    pub name: &'r [u8],
    /// Its data.
    pub data: Cow<'r, [u8]>,
    /// Where it ends in the run.
    pub end: usize,
}

/// The events in a run of whole events, in order. Events without data are left out, as comments are. A byte order mark
/// is for whoever knows where the stream begins.
pub fn events(run: &[u8]) -> impl Iterator<Item = Event<'_>> {
    let mut rest = run;
    std::iter::from_fn(move || {
        let mut name: &[u8] = &[];
        let mut data: Option<Cow<'_, [u8]>> = None;
        while !rest.is_empty() {
            let (line, after) = first_line(rest);
            rest = after;
            if line.is_empty() {
                if let Some(data) = data {
                    let end = run.len() - rest.len();
                    return Some(Event { name, data, end });
                }
                name = &[];
            } else if let Some(value) = field(line, b"data") {
                data = Some(match data {
                    None => Cow::Borrowed(value),
                    Some(before) => Cow::Owned([&before, &b"\n"[..], value].concat()),
                });
            } else if let Some(value) = field(line, b"event") {
                name = value;
            }
        }
        let end = run.len();
        data.map(|data| Event { name, data, end })
    })
}

fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr2(b'\r', b'\n', bytes) {
        None => (bytes, &[]),
        Some(at) => {
            let both = bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n');
            (&bytes[..at], &bytes[at + 1 + usize::from(both)..])
        }
    }
}

/// The value of a line's field, if it has that name. One blank after the colon belongs to the form.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(packets: &[&[u8]]) -> (Vec<String>, String, Vec<u8>) {
        let mut splitter = Splitter::default();
        let (mut events, mut passed) = (vec![], vec![]);
        for packet in packets {
            let run = splitter.push(&Bytes::copy_from_slice(packet)).unwrap();
            events.extend(
                super::events(&run).map(|event| String::from_utf8_lossy(&event.data).into_owned()),
            );
            passed.extend_from_slice(&run);
        }
        (
            events,
            String::from_utf8_lossy(splitter.rest()).into_owned(),
            passed,
        )
    }

    #[test]
    fn events_are_whole_whatever_ends_their_lines() {
        let check = |text: &str, expected: &[&str], rest: &str| {
            let (events, left, _) = split(&[text.as_bytes()]);
            assert_eq!(events, expected, "{text:?}");
            assert_eq!(left, rest, "{text:?}");
        };
        check("data: a\n\ndata: b\n\n", &["a", "b"], "");
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"], "");
        check("data: a\r\rdata: b\r\r", &["a", "b"], "");
        check("data:a\n\ndata: b", &["a"], "data: b");
        check(": comment\n\ndata: a\nid: 1\ndata: b\n\n", &["a\nb"], "");
        check("event: x\ndata: 1\n\n\n\n", &["1"], "");
        check("data\n\n", &[""], "");
        check("database: a\n\n", &[], "");
    }

    #[test]
    fn an_event_has_the_name_that_stands_with_its_data() {
        let check = |run: &str, expected: &[(&str, usize)]| {
            let found: Vec<_> = events(run.as_bytes())
                .map(|event| (str::from_utf8(event.name).unwrap(), event.end))
                .collect();
            assert_eq!(found, expected, "{run:?}");
        };
        check("event: x\ndata: 1\n\ndata: 2\n\n", &[("x", 18), ("", 27)]);
        check("data: 1\r\nevent:x\r\n\r\n", &[("x", 20)]);
        check("event: x\n\ndata: 1\n\n", &[("", 19)]);
    }

    #[test]
    fn a_packet_of_whole_events_is_not_copied() {
        let packet = Bytes::from_static(b"data: a\n\n");
        let run = Splitter::default().push(&packet).unwrap();
        assert_eq!(run.as_ptr(), packet.as_ptr());
    }

    #[test]
    fn an_event_without_end_is_too_long_at_the_limit() {
        let mut splitter = Splitter::default();
        let megabyte = Bytes::from(vec![b'x'; 1 << 20]);
        for _ in 0..32 {
            splitter.push(&megabyte).unwrap();
        }
        assert_eq!(splitter.push(&megabyte), Err(TooLong));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events_and_the_same_bytes(
            lines in prop::collection::vec(("(data|id|event|)", "(:|: |)", "[a-zé😀]{0,5}", "(\n|\r|\r\n)"), 0..24),
            cuts in prop::collection::vec(0_usize..400, 0..12),
        ) {
            let text = lines.iter().flat_map(|(name, colon, value, end)| [name, colon, value, end]).map(String::as_str).collect::<String>();
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let packets: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            let (whole, cut) = (split(&[bytes]), split(&packets));
            prop_assert_eq!(&whole.0, &cut.0);
            let all = |(_, rest, passed): &(Vec<String>, String, Vec<u8>)| [passed.clone(), rest.clone().into_bytes()].concat();
            prop_assert_eq!(all(&whole), bytes);
            prop_assert_eq!(all(&cut), bytes);
        }
    }
}
