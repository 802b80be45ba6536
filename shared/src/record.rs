//! What one request leaves behind: where its time went, how it ended, what it moved. No prompt, no key.

use crate::numbered::numbered;
use crate::stage::{Series, Stage};

/// How a request ended. It begins as [`Cancelled`](Self::Cancelled); only code that knows better changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// The client went away first, in the stage that the record names.
    Cancelled = 0,
    /// The client has its whole answer.
    Completed = 1,
    /// The client was at fault: a bad request, an unknown model, no right to ask.
    Rejected = 2,
    /// The gateway turned it away: queue full, queue deadline, draining, no key at rest.
    Refused = 3,
    /// The provider failed, and no attempt was left.
    Failed = 4,
    /// The answer broke off after it had begun.
    Truncated = 5,
}

impl Outcome {
    /// Every outcome, by its number.
    pub const ALL: [Self; 6] = [
        Self::Cancelled,
        Self::Completed,
        Self::Rejected,
        Self::Refused,
        Self::Failed,
        Self::Truncated,
    ];

    /// The outcome of that number. A number from a later version reads as [`Failed`](Self::Failed).
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(Self::Failed)
    }

    /// The name that people and programs read.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Completed => "completed",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Truncated => "truncated",
        }
    }
}

numbered! {
    /// Why a request did not get the answer it asked for, as a class that is small enough to be counted.
    Fault {
        /// It got it, or its client went away.
        None = "none", "None";
        /// The request can't be understood, is too large or too slow, or asks for what is not there.
        Request = "request", "Bad request";
        /// The client may not ask for it.
        Access = "access", "No access";
        /// As many requests as may wait were waiting.
        QueueFull = "queue_full", "Queue full";
        /// No place at the provider came free in time.
        QueueTimeout = "queue_timeout", "Queue timeout";
        /// The bodies that were held left no room for its own.
        Memory = "memory", "Body memory";
        /// The gateway was stopping.
        Draining = "draining", "Draining";
        /// Every key that might be used was rate-limited.
        KeysResting = "keys_resting", "Keys resting";
        /// Every key that might be used was refused by the provider.
        Credentials = "credentials", "Keys refused";
        /// The provider could not be reached.
        Connect = "connect", "Connect";
        /// The connection to the provider broke.
        Broken = "broken", "Broken";
        /// The provider was silent for too long.
        Silent = "silent", "Silent";
        /// The time that its client or the settings allow was over.
        Deadline = "deadline", "Deadline";
        /// The provider's answer was no proper one.
        Answer = "answer", "Bad answer";
        /// The provider answered that it is at its limit (429).
        RateLimited = "rate_limited", "Rate limited";
        /// The provider answered with another error.
        Status = "status", "Error status";
        /// A bug of ours.
        Internal = "internal", "Internal";
    }
}

impl Fault {
    /// The fault of that number. A number from a later version reads as [`Internal`](Self::Internal).
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        let known = Self::ALL.get(usize::from(number)).copied();
        known.unwrap_or(Self::Internal)
    }
}

/// Bits of [`Record::flags`].
pub mod flags {
    /// The client asked for a stream.
    pub const STREAM: u8 = 1;
    /// A connection to the provider was opened for it.
    pub const CONNECTED: u8 = 1 << 1;
    /// It was ended by a drain.
    pub const DRAINED: u8 = 1 << 2;
    /// It was ended by a deadline: queue, connect, first byte, idle or total.
    pub const TIMED_OUT: u8 = 1 << 3;
}

/// A provider or key that was never chosen.
pub const NONE: u16 = u16::MAX;

/// Where each [`Stage`]'s time lies in a slot: a whole word where something is waited for, half of one elsewhere.
#[derive(Clone, Copy)]
enum Place {
    Word(usize),
    Low(usize),
    High(usize),
}

const PLACES: [Place; Stage::COUNT] = [
    Place::Word(2),
    Place::Word(3),
    Place::Low(8),
    Place::High(8),
    Place::Low(9),
    Place::High(9),
    Place::Low(10),
    Place::High(10),
    Place::Word(4),
    Place::Low(11),
    Place::Word(5),
    Place::Word(6),
    Place::Word(7),
];

/// Events that a record can tell of.
const EVENTS_MAX: u32 = (1 << 24) - 1;

/// Words of a record's payload: with the slot's sequence word, 192 bytes.
pub const RECORD_WORDS: usize = 23;

/// One request. Times are nanoseconds; those that a stage shorter than 4.29 s keeps in half a word saturate there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When it ended, nanoseconds since the Unix epoch.
    pub ended_at: u64,
    /// Its id: what the client reads as `x-request-id`, in hexadecimal.
    pub id: u64,
    /// Time in each stage, by [`Stage::index`].
    pub stages: [u64; Stage::COUNT],
    /// From the request's head to the end, by a stamp pair of its own.
    pub total: u64,
    /// From the request's head to the first byte of the answer's body; zero if there was none.
    pub first_byte: u64,
    /// Opening the connection to the provider, where one was opened for it.
    pub connect: u64,
    /// Of *response writing*: waiting for a client that reads slowly.
    pub back_pressure: u64,
    /// How long the provider says that it worked on the last attempt; zero if it doesn't.
    pub provider_time: u64,
    /// How long our code held the events of a stream, summed.
    pub held: u64,
    /// Bytes of the request's body (saturating).
    pub request_bytes: u32,
    /// Bytes of the answer's body that were handed to the client's connection (saturating).
    pub response_bytes: u32,
    /// Tokens in, as the provider counted them; zero if it didn't say.
    pub prompt_tokens: u32,
    /// Tokens out, as the provider counted them; zero if it didn't say.
    pub completion_tokens: u32,
    /// Status of the answer; zero if none was sent.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not get the answer it asked for.
    pub fault: Fault,
    /// The stage it was in when it ended.
    pub ended_in: Stage,
    /// Index of the provider that was asked last, or [`NONE`].
    pub provider: u16,
    /// Index of the key within that provider, or [`NONE`].
    pub key: u16,
    /// Attempts at providers, the first included.
    pub attempts: u8,
    /// Of these, how often the next provider of a fallback list began.
    pub fallbacks: u8,
    /// The runtime it ran on.
    pub worker: u8,
    /// See [`flags`].
    pub flags: u8,
    /// Events of a stream that were relayed (saturating at 2^24 − 1).
    pub events: u32,
    /// How many requests were already waiting for the provider when it asked for a place.
    pub waiting: u32,
    /// How many requests were in the gateway within 50 ms after it ended.
    pub in_flight: u32,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            ended_at: 0,
            id: 0,
            stages: [0; Stage::COUNT],
            total: 0,
            first_byte: 0,
            connect: 0,
            back_pressure: 0,
            provider_time: 0,
            held: 0,
            request_bytes: 0,
            response_bytes: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            status: 0,
            outcome: Outcome::Cancelled,
            fault: Fault::None,
            ended_in: Stage::RequestParsing,
            provider: NONE,
            key: NONE,
            attempts: 0,
            fallbacks: 0,
            worker: 0,
            flags: 0,
            events: 0,
            waiting: 0,
            in_flight: 0,
        }
    }
}

impl Record {
    /// Time in `stage`.
    #[must_use]
    pub const fn stage(&self, stage: Stage) -> u64 {
        self.stages[stage.index()]
    }

    /// The page's formula: the sum of the stages that [`Stage::in_overhead`] marks.
    #[must_use]
    pub fn overhead(&self) -> u64 {
        let marked = Stage::ALL.into_iter().filter(|stage| stage.in_overhead());
        marked.fold(0, |sum, stage| sum.saturating_add(self.stage(stage)))
    }

    /// All that the gateway itself added, seen from inside: the total without *HTTP request* and *back-off*.
    #[must_use]
    pub const fn added(&self) -> u64 {
        self.total
            .saturating_sub(self.stage(Stage::HttpRequest))
            .saturating_sub(self.stage(Stage::BackOff))
    }

    /// The total without all stages.
    #[must_use]
    pub fn unattributed(&self) -> u64 {
        self.stages
            .iter()
            .fold(self.total, |left, stage| left.saturating_sub(*stage))
    }

    /// From the first token of a stream to its end, for each token after the first; none where it is not a whole stream
    /// of which the provider told the tokens.
    #[must_use]
    pub fn time_per_token(&self) -> Option<u64> {
        let is_whole = self.flags & flags::STREAM != 0 && self.outcome == Outcome::Completed;
        let after_first = u64::from(self.completion_tokens).checked_sub(1)?;
        let time = self.total.saturating_sub(self.first_byte);
        time.checked_div(after_first)
            .filter(|_| is_whole && self.first_byte > 0)
    }

    /// What this record adds to `series`; none where it has no such value. A stage that it never came to is none, and
    /// no zero: that would make every mean of those that did the smaller.
    #[must_use]
    pub fn value(&self, series: Series) -> Option<u64> {
        match series {
            Series::Stage(stage) => Some(self.stage(stage)).filter(|time| *time > 0),
            // Who never asked for a place has met none of it.
            Series::Overhead => {
                let has_asked = self.stage(Stage::QueueWait) > 0;
                has_asked.then(|| self.overhead())
            }
            Series::Total => Some(self.total),
            Series::Added => Some(self.added()),
            Series::Unattributed => Some(self.unattributed()),
            Series::FirstByte => (self.first_byte > 0).then_some(self.first_byte),
            Series::FirstToken => {
                let is_stream = self.flags & flags::STREAM != 0;
                (is_stream && self.first_byte > 0).then_some(self.first_byte)
            }
            Series::TimePerToken => self.time_per_token(),
        }
    }

    /// The record as the payload of a slot.
    #[must_use]
    pub fn to_words(&self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        words[0] = self.ended_at;
        words[1] = self.id;
        for (place, time) in PLACES.iter().zip(self.stages) {
            match *place {
                Place::Word(word) => words[word] = time,
                Place::Low(word) => words[word] |= time.min(u64::from(u32::MAX)),
                Place::High(word) => words[word] |= time.min(u64::from(u32::MAX)) << 32,
            }
        }
        words[12] = self.total;
        words[13] = self.first_byte;
        words[14] = self.connect;
        words[15] = self.back_pressure;
        words[16] = self.provider_time;
        words[17] = self.held;
        words[18] = pair(self.request_bytes, self.response_bytes);
        words[19] = pair(self.prompt_tokens, self.completion_tokens);
        words[20] = u64::from(self.status)
            | (self.outcome as u64) << 16
            | (self.ended_in as u64) << 24
            | u64::from(self.provider) << 32
            | u64::from(self.key) << 48;
        words[21] = u64::from(self.attempts)
            | u64::from(self.fallbacks) << 8
            | u64::from(self.worker) << 16
            | u64::from(self.flags) << 24
            | u64::from(self.events.min(EVENTS_MAX)) << 32
            | (self.fault as u64) << 56;
        words[22] = pair(self.waiting, self.in_flight);
        words
    }

    /// The record in the payload of a slot. Any bits are a record: numbers that this version does not know are read as
    /// the nearest that it knows.
    #[must_use]
    pub fn from_words(words: &[u64; RECORD_WORDS]) -> Self {
        let stages = PLACES.map(|place| match place {
            Place::Word(word) => words[word],
            Place::Low(word) => u64::from(low(words[word])),
            Place::High(word) => u64::from(high(words[word])),
        });
        let [status_low, status_high, outcome, ended_in, ..] = words[20].to_le_bytes();
        let [attempts, fallbacks, worker, flags, .., fault] = words[21].to_le_bytes();
        let chosen = high(words[20]).to_le_bytes();
        Self {
            ended_at: words[0],
            id: words[1],
            stages,
            total: words[12],
            first_byte: words[13],
            connect: words[14],
            back_pressure: words[15],
            provider_time: words[16],
            held: words[17],
            request_bytes: low(words[18]),
            response_bytes: high(words[18]),
            prompt_tokens: low(words[19]),
            completion_tokens: high(words[19]),
            status: u16::from_le_bytes([status_low, status_high]),
            outcome: Outcome::from_number(outcome),
            fault: Fault::from_number(fault),
            ended_in: Stage::from_index(usize::from(ended_in)).unwrap_or(Stage::ResponseWriting),
            provider: u16::from_le_bytes([chosen[0], chosen[1]]),
            key: u16::from_le_bytes([chosen[2], chosen[3]]),
            attempts,
            fallbacks,
            worker,
            flags,
            events: high(words[21]) & EVENTS_MAX,
            waiting: low(words[22]),
            in_flight: high(words[22]),
        }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what is asked for"
)]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        Record {
            ended_at: 1_796_040_000_123_456_789,
            id: 0xfeed_beef_0000_0001,
            stages: std::array::from_fn(|stage| 1_000 * (stage as u64 + 1)),
            total: 600_000_000_000, // ten minutes: more than a u32 of nanoseconds holds
            first_byte: 2,
            connect: 3,
            back_pressure: 4,
            provider_time: 5,
            held: 6,
            request_bytes: 7,
            response_bytes: u32::MAX,
            prompt_tokens: 8,
            completion_tokens: 9,
            status: 529,
            fault: Fault::Deadline,
            outcome: Outcome::Truncated,
            ended_in: Stage::ResponseWriting,
            provider: 11,
            key: NONE,
            attempts: 3,
            fallbacks: 1,
            worker: 255,
            flags: flags::STREAM,
            events: 123_456,
            waiting: 10,
            in_flight: 20,
        }
    }

    #[test]
    fn a_record_survives_its_slot() {
        assert_eq!(Record::from_words(&sample().to_words()), sample());
        assert_eq!((RECORD_WORDS + 1) * 8, 192);
    }

    #[test]
    fn no_two_stages_share_a_place() {
        for stage in Stage::ALL {
            let mut record = Record {
                provider: 0,
                key: 0,
                ..Record::default()
            };
            record.stages[stage.index()] = 0x1234_5678;
            let back = Record::from_words(&record.to_words());
            assert_eq!(back, record, "{stage:?}");
        }
    }

    #[test]
    fn a_short_stage_saturates_and_a_waited_one_does_not() {
        let mut record = Record::default();
        record.stages[Stage::KeySelection.index()] = 1 << 40;
        record.stages[Stage::QueueWait.index()] = 1 << 40;
        let back = Record::from_words(&record.to_words());
        assert_eq!(back.stage(Stage::KeySelection), u64::from(u32::MAX));
        assert_eq!(back.stage(Stage::QueueWait), 1 << 40);
    }

    #[test]
    fn any_bits_are_a_record() {
        let record = Record::from_words(&[u64::MAX; RECORD_WORDS]);
        assert_eq!(record.outcome, Outcome::Failed);
        assert_eq!(record.ended_in, Stage::ResponseWriting);
        assert_eq!(record.unattributed(), 0);
    }
}
