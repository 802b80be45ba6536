//! Numbers that are mostly small or zero, in few bytes: what a dashboard keeps for hours must not become large.
//!
//! A number is written as LEB128: seven bits a byte, the lowest first, and the highest bit of a byte says that more follow.

use bifrost_shared::layout::row;
use bifrost_shared::snapshot::Row;

/// Adds `number` to `packed`.
pub(crate) fn push(packed: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        packed.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    packed.push(number.to_le_bytes()[0]);
}

/// The numbers still to come.
pub(crate) struct Numbers<'a>(pub(crate) &'a [u8]);

impl Iterator for Numbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
        }
        Some(number)
    }
}

/// A closed second: some 500 bytes, where a row has 1.7 KB. Pairs of a gap, in words that are zero, and a word.
#[derive(Debug)]
pub(crate) struct PackedRow(Box<[u8]>);

impl PackedRow {
    /// `row`, packed.
    pub(crate) fn of(row: &Row) -> Self {
        let mut packed = vec![];
        let mut gap = 0;
        for word in row.to_words() {
            if word == 0 {
                gap += 1;
                continue;
            }
            push(&mut packed, gap);
            push(&mut packed, word);
            gap = 0;
        }
        Self(packed.into())
    }

    /// What was packed.
    pub(crate) fn row(&self) -> Row {
        let mut words = [0; row::WORDS];
        let mut numbers = Numbers(&self.0);
        let mut at = 0;
        while let (Some(gap), Some(word)) = (numbers.next(), numbers.next()) {
            at += usize::try_from(gap).unwrap_or(row::WORDS);
            if let Some(place) = words.get_mut(at) {
                *place = word;
            }
            at += 1;
        }
        Row::from_words(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture;

    #[test]
    fn a_number_of_any_size_comes_back() {
        let all = [0, 1, 127, 128, 16_383, 16_384, u64::MAX - 1, u64::MAX];
        let mut packed = vec![];
        for number in all {
            push(&mut packed, number);
        }
        assert_eq!(Numbers(&packed).collect::<Vec<_>>(), all);
    }

    #[test]
    fn a_row_comes_back_and_took_a_third() {
        let row = fixture::row(3_790, 91_800);
        let packed = PackedRow::of(&row);
        assert_eq!(packed.row(), row);
        assert!(packed.0.len() * 3 < row::WORDS * 8, "{}", packed.0.len());
        assert_eq!(PackedRow::of(&Row::default()).row(), Row::default());
    }
}
