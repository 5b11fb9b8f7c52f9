//! Random damage to all regions: whatever is called whole is, and no byte is anywhere where it never was.

use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use stere_device::{Device, MemoryDevice};

use super::damage::Damager;
use super::rescued;
use super::rig::{Expected, Rig};
use crate::sink::Verdict;

/// Where a blow falls.
#[derive(Clone, Copy, Debug)]
enum Region {
    Superblock,
    Journal,
    ChunkHeader,
    Metadata,
    Data,
    Anywhere,
}

#[derive(Clone, Copy, Debug)]
struct Blow {
    region: Region,
    /// Chooses device and place.
    device: usize,
    which: u64,
    sectors: u64,
    /// All devices at the same chosen place, as far as it can be.
    everywhere: bool,
}

fn blow() -> impl Strategy<Value = Blow> {
    let region = prop_oneof![
        1 => Just(Region::Superblock),
        1 => Just(Region::Journal),
        1 => Just(Region::ChunkHeader),
        3 => Just(Region::Metadata),
        3 => Just(Region::Data),
        1 => Just(Region::Anywhere),
    ];
    let sectors = prop_oneof![Just(1u64), 1..16u64, Just(64), Just(1024)];
    (region, 0..4usize, any::<u64>(), sectors, any::<bool>())
        .prop_map(|(region, device, which, sectors, everywhere)| Blow { region, device, which, sectors, everywhere })
}

fn pool(is_closed: bool) -> &'static (Vec<Arc<MemoryDevice>>, Expected) {
    static CLOSED: OnceLock<(Vec<Arc<MemoryDevice>>, Expected)> = OnceLock::new();
    static OPEN: OnceLock<(Vec<Arc<MemoryDevice>>, Expected)> = OnceLock::new();
    let make = || {
        let (mut rig, mut expected) = Rig::filled(4);
        rig.write_with_parity(&mut expected);
        (if is_closed { rig.close() } else { rig.abandon() }, expected)
    };
    if is_closed { CLOSED.get_or_init(make) } else { OPEN.get_or_init(make) }
}

/// Noise, other on every device.
fn garbage(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(length / 8).flatten().collect()
}

fn strike(devices: &[Arc<MemoryDevice>], damager: &Damager, blow: &Blow) {
    let numbers = if blow.everywhere { (0..devices.len()).collect() } else { vec![blow.device % devices.len()] };
    for number in numbers {
        let layout = damager.layout(number);
        let length = blow.sectors * 512;
        let (start, room) = match blow.region {
            Region::Superblock => (layout.superblock_offsets()[blow.which as usize % 4], 4096),
            // Where the records are: at the beginning.
            Region::Journal => (layout.journal_offset, layout.journal_bytes / 8),
            Region::ChunkHeader | Region::Metadata | Region::Data => {
                let is_meta = matches!(blow.region, Region::Metadata) || blow.which.is_multiple_of(2);
                let chunks = damager.chunks(is_meta);
                let own: Vec<u64> = chunks.iter().filter(|(on, _)| *on == number).map(|(_, offset)| *offset).collect();
                let Some(offset) = own.get((blow.which >> 8) as usize % own.len().max(1)) else { continue };
                let room = if matches!(blow.region, Region::ChunkHeader) { 4096 } else { 1 << 20 };
                (*offset, room)
            }
            Region::Anywhere => (0, layout.size_bytes),
        };
        let at = (blow.which >> 20) % (room / 512).max(1) * 512;
        let length = length.min(room - at);
        devices[number]
            .write_bytes(start + at, &garbage(blow.which.wrapping_add(number as u64 * 0x9e37_79b9), length as usize))
            .unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    // P-40
    #[test]
    fn whatever_is_called_whole_is(
        is_closed in any::<bool>(),
        blows in prop::collection::vec(blow(), 1..12),
        left in 1..16u8,
    ) {
        let (pristine, expected) = pool(is_closed);
        let copies: Vec<_> = pristine.iter().map(|device| Arc::new(device.copy())).collect();
        let damager = Damager::new(&copies);
        for blow in &blows {
            strike(&copies, &damager, blow);
        }
        let given: Vec<_> = (0..4).filter(|number| left >> number & 1 == 1).map(|number| copies[number].clone()).collect();
        let mut sink = super::MemorySink::default();
        match crate::rescue(super::sources(&given), crate::Options::default(), &mut sink) {
            Ok(report) => {
                expected.judge(&sink, &report);
                // What is not whole is in the report, by path or as a whole.
                for (path, verdict) in sink.verdicts().filter(|(_, verdict)| *verdict == Verdict::Damaged) {
                    let shown = crate::report::shown(if path == b"/" { b"" } else { path });
                    prop_assert!(report.damage.iter().any(|damage| damage.path == shown), "{shown} is {verdict:?}");
                }
                prop_assert!(!report.is_whole() || report.counts.whole > 150);
            }
            Err(error) => prop_assert!(matches!(error, crate::Error::NothingFound { .. }), "{error}"),
        }
    }
}

#[test]
fn slight_damage_on_one_device_costs_nothing() {
    let (pristine, expected) = pool(true);
    for seed in 0..40u64 {
        let copies: Vec<_> = pristine.iter().map(|device| Arc::new(device.copy())).collect();
        let damager = Damager::new(&copies);
        for number in 0..6 {
            let which = (seed * 6 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let regions = [Region::Journal, Region::ChunkHeader, Region::Metadata, Region::Data, Region::Anywhere];
            let region = regions[(number % 5) as usize];
            let blow = Blow { region, device: (seed % 4) as usize, which, sectors: 8, everywhere: false };
            strike(&copies, &damager, &blow);
        }
        let (report, sink) = rescued(&copies, expected);
        assert!(!report.is_data_lost(), "{:?}", report.damage);
        expected.assert_all(&sink, Verdict::Whole);
    }
}
