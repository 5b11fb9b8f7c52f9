//! Use and order decode to what they were, and nothing else decodes.

use super::*;

#[test]
fn pages_hold_only_what_belongs_there() {
    let heat = SegmentHeat { used_seconds: 9, references: 2, is_back: true };
    let page = HeatPage { entries: vec![(256, heat), (383, SegmentHeat { used_seconds: 1, ..heat })] };
    assert_eq!(HeatPage::decode(2, &page.encode()), Ok(page.clone()));
    assert!(HeatPage::decode(1, &page.encode()).is_err(), "of another page");
    assert!(HeatPage::decode(0, &HeatPage::default().encode()).is_err(), "nothing needs no page");
    let reversed = HeatPage { entries: page.entries.iter().rev().copied().collect() };
    assert!(HeatPage::decode(2, &reversed.encode()).is_err());
    for used_seconds in [0, SegmentHeat::USED_SECONDS_MAX + 1] {
        let page = HeatPage { entries: vec![(256, SegmentHeat { used_seconds, ..heat })] };
        assert!(HeatPage::decode(2, &page.encode()).is_err(), "{used_seconds}");
    }
}

#[test]
fn prices_are_in_range() {
    let prices = VolumePrices { thousand_requests: 400, gigabyte_out: 90_000, gigabyte_month: VolumePrices::MAX };
    assert_eq!(VolumePrices::decode(&prices.encode()), Ok(prices));
    assert!(VolumePrices::decode(&VolumePrices { gigabyte_out: VolumePrices::MAX + 1, ..prices }.encode()).is_err());
}

#[test]
fn policies_are_in_range() {
    for (order, word) in ReleaseOrder::ALL {
        assert_eq!((order.word(), ReleaseOrder::from_word(word)), (word, Some(order)));
        let policy = TierPolicy { order, exponent_hundredths: 140, cache_bytes: 1 << 40 };
        assert_eq!(TierPolicy::decode(&policy.encode()), Ok(policy));
    }
    assert_eq!(ReleaseOrder::from_word("fifo"), None);
    assert!(TierPolicy::decode(&TierPolicy { exponent_hundredths: 1001, ..TierPolicy::default() }.encode()).is_err());
    let mut bytes = TierPolicy::default().encode();
    bytes[1] = 4;
    assert!(TierPolicy::decode(&bytes).is_err());
}
