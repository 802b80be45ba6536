//! Any cut of any bytes gives the same events and the same bytes.
#![no_main]

use bifrost_gateway::sse::{self, Splitter};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// The data of all events, the bytes that were handed on, and what is left.
fn split<'a>(packets: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Vec<u8>, Vec<u8>) {
    let mut splitter = Splitter::default();
    let (mut events, mut passed) = (vec![], vec![]);
    for packet in packets {
        let run = splitter
            .push(&Bytes::copy_from_slice(packet))
            .expect("far below the limit");
        let mut before = 0;
        for event in sse::events(&run) {
            assert!(before < event.end && event.end <= run.len());
            before = event.end;
            events.push([event.name, b"=", &event.data].concat());
        }
        passed.extend_from_slice(&run);
    }
    (events, passed, splitter.rest().to_vec())
}

// The first byte says how many cuts follow, each of them a byte.
fuzz_target!(|input: &[u8]| {
    let Some((count, rest)) = input.split_first() else {
        return;
    };
    let (sizes, bytes) = rest.split_at((*count as usize % 16).min(rest.len()));
    let mut left = bytes;
    let mut packets: Vec<&[u8]> = sizes
        .iter()
        .map(|size| {
            let (packet, after) = left.split_at((*size as usize).min(left.len()));
            left = after;
            packet
        })
        .collect();
    packets.push(left);
    let whole = split(std::iter::once(bytes));
    assert_eq!([&whole.1[..], &whole.2].concat(), bytes);
    for cut in [split(packets.into_iter()), split(bytes.chunks(1))] {
        assert_eq!(whole.0, cut.0);
        assert_eq!([&cut.1[..], &cut.2].concat(), bytes);
    }
});
