//! What volumes are asked for, and what that costs, before it happens: from segments as they are, not from files.
//!
//! Prices are what somebody said of a volume, in millionths of whatever he pays in; what nobody said costs nothing. Read next:
//! `upload.rs` (four requests for each segment), `fetch.rs` (one).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use stere_format::{BLOCK_BYTES, Key, VolumePrices};
use stere_log::Io;

use super::media::Media;
use stere_engine::Error;
use stere_recall::object_bytes;

/// Whether an object is there, what names are in it, the object itself, and reading it back.
const REQUESTS_OUT: u64 = 4;
const GIGABYTE: u128 = 1_000_000_000;

/// What is asked of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    pub segments: u64,
    pub requests: u64,
    /// Bytes that go to it, and stay there.
    pub bytes_to: u64,
    /// Bytes that are read from it.
    pub bytes_from: u64,
}

impl AddAssign for Costs {
    fn add_assign(&mut self, more: Costs) {
        self.segments += more.segments;
        self.requests += more.requests;
        self.bytes_to += more.bytes_to;
        self.bytes_from += more.bytes_from;
    }
}

impl Costs {
    /// What it costs once, and what each month from then on; in millionths, rounded up.
    pub fn prices(&self, prices: &VolumePrices) -> (u64, u64) {
        let part = |count: u64, price: u64, unit: u128| u128::from(count) * u128::from(price) * (GIGABYTE / unit);
        let round = |sum: u128| u64::try_from(sum.div_ceil(GIGABYTE)).unwrap_or(u64::MAX);
        let once =
            part(self.requests, prices.thousand_requests, 1000) + part(self.bytes_from, prices.gigabyte_out, GIGABYTE);
        (round(once), round(part(self.bytes_to, prices.gigabyte_month, GIGABYTE)))
    }
}

impl Media {
    /// What a volume costs, as somebody said.
    pub fn volume_prices(&self, number: u8) -> Result<VolumePrices, Error> {
        let value = self.engine.view(Io::BLOCKING, |view| view.get(&Key::volume_prices(number)))?;
        Ok(value.and_then(|bytes| VolumePrices::decode(&bytes).ok()).unwrap_or_default())
    }

    pub fn set_volume_prices(&self, number: u8, prices: VolumePrices) -> Result<(), Error> {
        self.engine.update(Io::BLOCKING, |transaction| {
            match prices == VolumePrices::default() {
                true => transaction.delete(Key::volume_prices(number)),
                false => transaction.put(Key::volume_prices(number), &prices.encode()),
            }
            Ok::<_, Error>(())
        })?;
        self.engine.commit(Io::BLOCKING)
    }

    /// What bringing these segments back asks of volumes: of those that are on volumes only, each whole, once, from the first volume that
    /// has it.
    pub fn costs_of_staging(&self, segments: &BTreeSet<u64>) -> BTreeMap<u8, Costs> {
        let mut costs: BTreeMap<u8, Costs> = BTreeMap::new();
        let known = segments.iter().filter_map(|segment| self.engine.log().segments.get(*segment));
        for segment in known.filter(|segment| segment.is_released() && segment.live_bytes() > 0) {
            let there = segment.tertiary().there;
            let numbers = (0..u16::BITS as u8).filter(|number| there >> number & 1 == 1);
            let first =
                numbers.clone().find(|number| self.can_reach(1u16 << *number)).or_else(|| numbers.clone().next());
            let Some(number) = first else { continue };
            let of_volume = costs.entry(number).or_default();
            of_volume.segments += 1;
            of_volume.requests += 1;
            of_volume.bytes_from += object_bytes(&segment);
        }
        costs
    }

    /// What copying so many stored bytes out to a volume asks of it that lie in segments with so many data chunks: whole segments, the
    /// last of which may be short.
    pub fn costs_of_archiving(&self, bytes: u64, data_chunks: u8) -> Costs {
        let room = (u64::from(self.engine.log().chunk_bytes()) - BLOCK_BYTES as u64) * u64::from(data_chunks);
        let segments = bytes.div_ceil(room);
        let bytes_to = bytes + segments * BLOCK_BYTES as u64;
        Costs { segments, requests: segments * REQUESTS_OUT, bytes_to, bytes_from: bytes_to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_rounded_up_and_does_not_overflow() {
        let prices = VolumePrices { thousand_requests: 5_000_000, gigabyte_out: 90_000, gigabyte_month: 23_000 };
        let costs = Costs { segments: 3, requests: 12, bytes_to: 2_000_000_000, bytes_from: 500_000_001 };
        // 12 requests for 0.06, and half a gigabyte for 0.045.
        assert_eq!(costs.prices(&prices), (60_000 + 45_001, 46_000));
        assert_eq!(costs.prices(&VolumePrices::default()), (0, 0));
        let most =
            VolumePrices { thousand_requests: VolumePrices::MAX, gigabyte_out: VolumePrices::MAX, gigabyte_month: 0 };
        let huge = Costs { requests: u64::MAX, bytes_from: u64::MAX, ..costs };
        assert_eq!(huge.prices(&most).0, u64::MAX);
    }
}
