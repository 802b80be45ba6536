//! The stages of a request's life, in order, and what the benchmark page measured for each.

/// What a request is busy with. Every moment of a request belongs to exactly one stage.
///
/// The ten that the benchmark page knows keep its names and meaning; [`RequestParsing`](Self::RequestParsing),
/// [`BackOff`](Self::BackOff) and [`ResponseWriting`](Self::ResponseWriting) are ours, so that nothing is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Request head read → body read and the fields that we need known.
    RequestParsing,
    /// Asks for a place → has the permit, including the wake-up.
    QueueWait,
    /// → a key is leased.
    KeySelection,
    /// → messages in the provider's form.
    MessageFormatting,
    /// → parameters in the provider's form.
    ParamsPreparation,
    /// → body assembled.
    RequestBody,
    /// → body is bytes.
    JsonMarshaling,
    /// → HTTP request built: URL, headers, credentials.
    RequestSetup,
    /// Handed to the client → the provider's last byte.
    HttpRequest,
    /// Status and error body classified; retry, rotate or give up decided.
    ErrorHandling,
    /// Waiting before another attempt.
    BackOff,
    /// → answer decoded and in the client's form.
    ResponseParsing,
    /// → last byte handed to the client's connection.
    ResponseWriting,
}

impl Stage {
    /// Every stage, in the order of a request's life.
    pub const ALL: [Self; 13] = [
        Self::RequestParsing,
        Self::QueueWait,
        Self::KeySelection,
        Self::MessageFormatting,
        Self::ParamsPreparation,
        Self::RequestBody,
        Self::JsonMarshaling,
        Self::RequestSetup,
        Self::HttpRequest,
        Self::ErrorHandling,
        Self::BackOff,
        Self::ResponseParsing,
        Self::ResponseWriting,
    ];

    /// How many stages there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Its place in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The stage at `index` of [`ALL`](Self::ALL), if there is one.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }

    /// The name that people read.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::RequestParsing => "Request parsing",
            Self::QueueWait => "Queue wait",
            Self::KeySelection => "Key selection",
            Self::MessageFormatting => "Message formatting",
            Self::ParamsPreparation => "Params preparation",
            Self::RequestBody => "Request body prep",
            Self::JsonMarshaling => "JSON marshaling",
            Self::RequestSetup => "Request setup",
            Self::HttpRequest => "HTTP request",
            Self::ErrorHandling => "Error handling",
            Self::BackOff => "Back-off",
            Self::ResponseParsing => "Response parsing",
            Self::ResponseWriting => "Response writing",
        }
    }

    /// The name that programs read: lower case, `snake_case`, stable.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::RequestParsing => "request_parsing",
            Self::QueueWait => "queue_wait",
            Self::KeySelection => "key_selection",
            Self::MessageFormatting => "message_formatting",
            Self::ParamsPreparation => "params_preparation",
            Self::RequestBody => "request_body",
            Self::JsonMarshaling => "json_marshaling",
            Self::RequestSetup => "request_setup",
            Self::HttpRequest => "http_request",
            Self::ErrorHandling => "error_handling",
            Self::BackOff => "back_off",
            Self::ResponseParsing => "response_parsing",
            Self::ResponseWriting => "response_writing",
        }
    }

    /// Whether the benchmark page's *overhead* (59.20 µs on its t3.medium) counts this stage.
    #[must_use]
    pub const fn in_overhead(self) -> bool {
        matches!(
            self,
            Self::QueueWait
                | Self::KeySelection
                | Self::MessageFormatting
                | Self::ParamsPreparation
                | Self::RequestBody
                | Self::RequestSetup
                | Self::ErrorHandling
        )
    }
}

/// A distribution that the segment keeps: one for each stage, and seven that are made of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Series {
    /// One stage's time.
    Stage(Stage),
    /// The page's formula: the sum of the stages that [`Stage::in_overhead`] marks.
    Overhead,
    /// From the request's head to the last byte, by a stamp pair of its own.
    Total,
    /// Total minus *HTTP request* and *back-off*: all that the gateway itself added, seen from inside.
    Added,
    /// Total minus the sum of the stages. Nearly nothing, or the stamps are wrong.
    Unattributed,
    /// From the request's head to the first byte of the answer's body; only requests that got one.
    FirstByte,
    /// Time to first token: from the request's head to the first event of a stream that the client waits for.
    FirstToken,
    /// Time per output token: from the first token of a stream to its end, for each token after the first.
    TimePerToken,
}

impl Series {
    /// How many series there are.
    pub const COUNT: usize = Stage::COUNT + 7;

    /// Every series, in the order of the segment.
    pub fn all() -> impl Iterator<Item = Self> {
        Stage::ALL.into_iter().map(Self::Stage).chain([
            Self::Overhead,
            Self::Total,
            Self::Added,
            Self::Unattributed,
            Self::FirstByte,
            Self::FirstToken,
            Self::TimePerToken,
        ])
    }

    /// Its place in the segment.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Stage(stage) => stage.index(),
            Self::Overhead => Stage::COUNT,
            Self::Total => Stage::COUNT + 1,
            Self::Added => Stage::COUNT + 2,
            Self::Unattributed => Stage::COUNT + 3,
            Self::FirstByte => Stage::COUNT + 4,
            Self::FirstToken => Stage::COUNT + 5,
            Self::TimePerToken => Stage::COUNT + 6,
        }
    }

    /// The name that people read.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stage(stage) => stage.label(),
            Self::Overhead => "Overhead (sum of *)",
            Self::Total => "End to end",
            Self::Added => "Added in process",
            Self::Unattributed => "Unattributed",
            Self::FirstByte => "First byte",
            Self::FirstToken => "Time to first token",
            Self::TimePerToken => "Time per token",
        }
    }

    /// The name that programs read.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Stage(stage) => stage.key(),
            Self::Overhead => "overhead",
            Self::Total => "total",
            Self::Added => "added",
            Self::Unattributed => "unattributed",
            Self::FirstByte => "first_byte",
            Self::FirstToken => "first_token",
            Self::TimePerToken => "time_per_token",
        }
    }

    /// The mean on the benchmark page, in nanoseconds: t3.medium, then t3.xlarge. Where the page prints two
    /// instances' figures but gives no number for a series, there is none. *Unattributed* is the page's average latency
    /// less its stages.
    #[must_use]
    pub const fn reference_ns(self) -> (Option<u64>, Option<u64>) {
        match self {
            Self::Stage(Stage::QueueWait) => (Some(47_130), Some(1_670)),
            Self::Stage(Stage::KeySelection) => (Some(16), None),
            Self::Stage(Stage::MessageFormatting) => (Some(2_190), None),
            Self::Stage(Stage::ParamsPreparation) => (Some(436), None),
            Self::Stage(Stage::RequestBody) => (Some(2_650), None),
            Self::Stage(Stage::JsonMarshaling) => (Some(63_470), Some(26_800)),
            Self::Stage(Stage::RequestSetup) => (Some(6_590), None),
            Self::Stage(Stage::HttpRequest) => (Some(1_560_000_000), None),
            Self::Stage(Stage::ErrorHandling) => (Some(189), None),
            Self::Stage(Stage::ResponseParsing) => (Some(11_300_000), Some(2_110_000)),
            Self::Overhead => (Some(59_200), Some(11_000)),
            Self::Total => (Some(2_120_000_000), None),
            Self::Unattributed => (Some(549_000_000), None),
            Self::Stage(Stage::RequestParsing | Stage::BackOff | Stage::ResponseWriting)
            | Self::Added
            | Self::FirstByte
            | Self::FirstToken
            | Self::TimePerToken => (None, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marked_stages_add_up_to_the_pages_overhead() {
        let sum: u64 = Stage::ALL
            .into_iter()
            .filter(|stage| stage.in_overhead())
            .map(|stage| Series::Stage(stage).reference_ns().0.unwrap())
            .sum();
        // 47.13 + 0.016 + 2.19 + 0.436 + 2.65 + 6.59 + 0.189 µs; the page rounds it to 59.
        assert_eq!(sum, 59_201);
    }

    #[test]
    fn every_series_stands_where_its_index_says() {
        for (place, series) in Series::all().enumerate() {
            assert_eq!(series.index(), place);
        }
        assert_eq!(Series::all().count(), Series::COUNT);
    }
}
