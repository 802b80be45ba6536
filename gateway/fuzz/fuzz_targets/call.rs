//! What is spliced changes the model, takes the fallbacks, asks for usage, and leaves every other byte of value alone.
#![no_main]

use bifrost_gateway::call::Call;
use libfuzzer_sys::fuzz_target;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in their order, with their values as they are written.
fn members(text: &str) -> Vec<(String, String)> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = vec![];
            while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                members.push((key, value.get().to_owned()));
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(text)
        .deserialize_map(Members)
        .expect("what was a JSON object still is one")
}

fn untouched(text: &str) -> Vec<(String, String)> {
    let mut members = members(text);
    members.retain(|(key, _)| !matches!(&key[..], "model" | "fallbacks" | "stream_options"));
    members
}

fuzz_target!(|input: &[u8]| {
    let Some((spice, body)) = input.split_first() else {
        return;
    };
    let Ok(call) = Call::parse(body) else { return };
    let text = std::str::from_utf8(body).expect("a call is UTF-8");
    let model = ["m", "a \"quoted\" \\ one", "é😀"][*spice as usize % 3];
    let mut edits = call.edits(model);
    edits.extend(call.usage_edit());
    let spliced = call.splice(&mut edits).to_bytes();

    let again = Call::parse(&spliced).expect("what was a call still is one");
    assert_eq!(again.model, model);
    assert_eq!(again.stream, call.stream);
    assert!(again.fallbacks.is_empty());
    assert!(!again.hides_usage() || !again.stream, "usage is asked for");
    let spliced = std::str::from_utf8(&spliced).expect("it stays UTF-8");
    assert_eq!(untouched(text), untouched(spliced));
    assert!(members(spliced).iter().all(|(key, _)| key != "fallbacks"));
});
