//! Figures over single records: what histograms can't tell, since they have forgotten which values came together.

use bifrost_shared::record::Record;
use bifrost_shared::stage::Stage;

/// What the records in a sample ring say together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SampleFigures {
    /// Records that were overwritten before they could be read.
    pub(crate) missed: u64,
    /// Records whose *HTTP request* was shorter than the time that the provider says it worked: impossible, unless a
    /// stamp is wrong.
    pub(crate) http_request_below_provider_time: u64,
    unattributed: Vec<u64>,
}

impl SampleFigures {
    /// Adds one record.
    pub(crate) fn absorb(&mut self, record: &Record) {
        let worked = record.provider_time;
        let is_short = worked > 0 && record.stage(Stage::HttpRequest) < worked;
        self.http_request_below_provider_time += u64::from(is_short);
        self.unattributed.push(record.unattributed());
    }

    /// How many records were read.
    pub(crate) const fn read(&self) -> usize {
        self.unattributed.len()
    }

    /// The time that 99 of 100 records leave to no stage, or less: exact, not from buckets. None without records.
    pub(crate) fn unattributed_p99_ns(&self) -> Option<u64> {
        let mut sorted = self.unattributed.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * 99).div_ceil(100);
        sorted.get(rank.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(http: u64, provider_time: u64, unattributed: u64) -> Record {
        let mut record = Record {
            provider_time,
            total: http + unattributed,
            ..Record::default()
        };
        record.stages[Stage::HttpRequest.index()] = http;
        record
    }

    #[test]
    fn a_request_shorter_than_its_providers_work_is_counted() {
        let mut figures = SampleFigures::default();
        for (http, provider_time) in [(10, 11), (10, 10), (10, 9), (10, 0)] {
            figures.absorb(&record(http, provider_time, 0));
        }
        assert_eq!(figures.http_request_below_provider_time, 1);
        assert_eq!(figures.read(), 4);
    }

    #[test]
    fn the_99th_percentile_is_a_value_that_was_there() {
        let mut figures = SampleFigures::default();
        assert_eq!(figures.unattributed_p99_ns(), None);
        for unattributed in 1..=200 {
            figures.absorb(&record(0, 0, unattributed));
        }
        assert_eq!(figures.unattributed_p99_ns(), Some(198));
    }
}
