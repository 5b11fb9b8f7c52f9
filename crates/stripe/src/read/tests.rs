use super::*;
use crate::tests::{CHUNK_BYTES, GRANULE, Pool, address, pattern, scheme};
use stere_device::Operation;
use stere_device::memory::Fault;
use stere_format::crc32c;

fn total_reads(pool: &Pool) -> u64 {
    pool.memories.iter().map(|memory| memory.counters().reads).sum()
}

/// Eight records of 64 KiB behind a row header, with what follows them.
fn eight_records(pool: &Pool, segment: &SegmentChunks) -> Vec<u8> {
    let mut row = pattern(512 + 8 * 65_536, 1);
    row.resize(row.len().next_multiple_of(4096), 0);
    pool.write(segment, 1, &row);
    row
}

fn read_eight(pool: &Pool, segment: &SegmentChunks, row: &[u8]) -> (Vec<u8>, Vec<Result<ReadReport, StripeError>>) {
    let mut out = vec![0; 8 * 65_536];
    let sums: Vec<u32> = row[512..512 + 8 * 65_536].chunks(GRANULE).map(crc32c).collect();
    let checks: Vec<_> = (0..8usize)
        .map(|record| {
            let sums = &sums[record * 16..][..16];
            move |start: usize, bytes: &[u8]| crc32c(bytes) == sums[start / GRANULE]
        })
        .collect();
    let mut requests: Vec<ReadRequest<'_>> = out
        .chunks_mut(65_536)
        .zip(&checks)
        .enumerate()
        .map(|(record, (out, verify))| ReadRequest {
            segment,
            address: address(1, 512 + record as u32 * 65_536, 65_536),
            range: 0..65_536,
            out,
            granule_bytes: GRANULE,
            verify,
        })
        .collect();
    let outcomes = pool.stripe.read_many(&mut requests);
    (out, outcomes)
}

#[test]
fn neighbours_are_one_device_read() {
    for (data, parity, reads) in [(1, 1, 1), (1, 0, 1), (2, 1, 2), (4, 2, 4)] {
        let pool = Pool::new(6);
        let segment = pool.segment(scheme(data, parity));
        let row = eight_records(&pool, &segment);
        let (out, outcomes) = read_eight(&pool, &segment, &row);
        assert_eq!(out, row[512..512 + 8 * 65_536]);
        assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_ok_and(|report| report.bad.is_empty())));
        assert_eq!(total_reads(&pool), reads, "{data}+{parity}");
    }
}

#[test]
fn small_gaps_are_read_over_and_large_ones_are_not() {
    let pool = Pool::new(2);
    let segment = pool.segment(scheme(1, 1));
    let row = eight_records(&pool, &segment);
    for (second_at, reads) in [(512 + 20_000 / 512 * 512, 1), (512 + 400_384, 2)] {
        let before = total_reads(&pool);
        let (mut a, mut b) = ([0; 1000], [0; 1000]);
        let accept = |_: usize, _: &[u8]| true;
        let request = |offset: u32, out| ReadRequest {
            segment: &segment,
            address: address(1, offset, 1000),
            range: 0..1000,
            out,
            granule_bytes: 1000,
            verify: &accept,
        };
        // The order of requests does not matter.
        let mut requests = [request(second_at, &mut b), request(512, &mut a)];
        assert!(pool.stripe.read_many(&mut requests).iter().all(Result::is_ok));
        assert_eq!(a, row[512..1512]);
        assert_eq!(b, row[second_at as usize..second_at as usize + 1000]);
        assert_eq!(total_reads(&pool) - before, reads);
    }
}

/// P-3: a fault that the copies bear does no harm.
#[test]
fn one_bad_record_among_many_is_recovered_alone() {
    for (data, parity) in [(1, 1), (4, 1), (3, 2)] {
        let pool = Pool::new(5);
        let segment = pool.segment(scheme(data, parity));
        let row = eight_records(&pool, &segment);
        // In a data chunk, 40 KiB into the row: one granule is hit.
        pool.corrupt(&segment, 0, 4096 + 40_000..4096 + 40_010);
        let (out, outcomes) = read_eight(&pool, &segment, &row);
        assert_eq!(out, row[512..512 + 8 * 65_536]);
        let reports: Vec<ReadReport> = outcomes.into_iter().map(Result::unwrap).collect();
        let bad: Vec<_> = reports.iter().flat_map(|report| &report.bad).collect();
        assert_eq!(bad.len(), 1, "{data}+{parity}: {bad:?}");
        assert_eq!((bad[0].chunk, bad[0].place), (0, segment.chunks[0]));
        assert_eq!(reports.iter().map(|report| report.recovered_bytes).sum::<usize>(), GRANULE);
        reports.iter().for_each(|report| pool.stripe.count_bad(report));
        let statistics = pool.stripe.devices.get(segment.chunks[0].device).unwrap().statistics();
        assert_eq!(statistics.checksum_errors, 1);
    }
}

#[test]
fn a_failing_device_costs_its_requests_only_a_detour() {
    let pool = Pool::new(2);
    let segment = pool.segment(scheme(1, 1));
    let row = eight_records(&pool, &segment);
    let fail: stere_device::memory::FaultHook =
        Box::new(|operation, _, _| (operation == Operation::Read).then_some(Fault::Error));
    pool.memory_of(segment.chunks[0]).set_fault_hook(Some(fail));
    let (out, outcomes) = read_eight(&pool, &segment, &row);
    assert_eq!(out, row[512..512 + 8 * 65_536]);
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_ok_and(|report| report.bad.len() == 1)));
}

#[test]
fn the_cheaper_copy_is_read() {
    let pool = Pool::new(2);
    let segment = pool.segment(scheme(1, 1));
    let row = eight_records(&pool, &segment);
    let slow = segment.chunks[0].device;
    let device = pool.stripe.detach(slow).unwrap();
    let (layout, memory) = (*device.layout(), pool.memories[usize::from(slow)].clone());
    pool.stripe.attach(slow, memory, layout, crate::READ_COST_SEEKING).unwrap();
    let (out, _) = read_eight(&pool, &segment, &row);
    assert_eq!(out, row[512..512 + 8 * 65_536]);
    assert_eq!(pool.memory_of(segment.chunks[0]).counters().reads, 0);
}

#[test]
fn every_copy_can_be_read_by_itself() {
    let pool = Pool::new(3);
    let segment = pool.segment(scheme(1, 2));
    let row = eight_records(&pool, &segment);
    let at = address(1, 512, 65_536);
    let mut out = vec![0; 65_536];
    pool.corrupt(&segment, 1, 4096..CHUNK_BYTES.into());
    for copy in 0..3 {
        pool.stripe.read(&segment, &at, 0..65_536, &mut out, Attempt::Primary(copy)).unwrap();
        assert_eq!(out == row[512..512 + 65_536], copy != 1);
    }
    pool.stripe.read(&segment, &at, 0..65_536, &mut out, Attempt::Reconstruct { exclude: 0b010 }).unwrap();
    assert_eq!(out, row[512..512 + 65_536]);
    assert!(pool.stripe.read(&segment, &at, 0..65_536, &mut out, Attempt::Reconstruct { exclude: 0b111 }).is_err());
    assert!(pool.stripe.read(&segment, &at, 0..65_536, &mut out, Attempt::Primary(3)).is_err());
}

#[test]
fn data_units_are_rebuilt_on_request() {
    let pool = Pool::new(5);
    let segment = pool.segment(scheme(3, 2));
    let row = eight_records(&pool, &segment);
    let at = address(1, 512, 65_536);
    let mut out = vec![0; 65_000];
    for exclude in [0, 0b1, 0b11, 0b10100, 0b01001] {
        out.fill(0);
        pool.stripe.read(&segment, &at, 500..65_500, &mut out, Attempt::Reconstruct { exclude }).unwrap();
        assert_eq!(out, row[1012..1012 + 65_000], "{exclude:#b}");
    }
    let refused = pool.stripe.read(&segment, &at, 500..65_500, &mut out, Attempt::Reconstruct { exclude: 0b111 });
    assert!(matches!(refused, Err(StripeError::TooFewChunks { readable: 2, needed: 3, .. })));
}

#[test]
fn nothing_is_read_for_nothing() {
    let pool = Pool::new(2);
    let segment = pool.segment(scheme(1, 1));
    eight_records(&pool, &segment);
    let before = total_reads(&pool);
    assert!(pool.read(&segment, address(1, 512, 100), 50..50, &[]).unwrap().0.is_empty());
    assert!(pool.stripe.read_many(&mut []).is_empty());
    assert_eq!(total_reads(&pool), before);
}

#[test]
fn degraded_neighbours_are_rebuilt_together() {
    for (data, parity, away) in [(2u8, 1u8, 1usize), (4, 1, 1), (4, 2, 2), (3, 2, 1)] {
        let pool = Pool::new(6);
        let segment = pool.segment(scheme(data, parity));
        let row = eight_records(&pool, &segment);
        for chunk in 0..away {
            pool.stripe.detach(segment.chunks[chunk].device);
        }
        let before = total_reads(&pool);
        let (out, outcomes) = read_eight(&pool, &segment, &row);
        assert_eq!(out, row[512..512 + 8 * 65_536]);
        let recovered: usize = outcomes.iter().map(|outcome| outcome.as_ref().unwrap().recovered_bytes).sum();
        assert!(recovered > 65_536 && outcomes.iter().all(|outcome| outcome.as_ref().unwrap().bad.is_empty()));
        // Each source once, and once more for records that lie only on chunks that are there.
        let reads = total_reads(&pool) - before;
        assert!(reads <= 2 * u64::from(data), "{data}+{parity}: {reads} reads");
        // A liar on top is found granule by granule, while parity is left for it.
        if away < usize::from(parity) {
            pool.corrupt(&segment, 1, 4096 + 30_000..4096 + 30_001);
            let (out, _) = read_eight(&pool, &segment, &row);
            assert_eq!(out, row[512..512 + 8 * 65_536]);
        }
    }
}

#[test]
fn degraded_segments_are_not_mixed_up() {
    let pool = Pool::new(4);
    let segments = [pool.segment(scheme(2, 2)), pool.segment(scheme(2, 2))];
    let rows = [pattern(40_960, 1), pattern(40_960, 2)];
    for (segment, row) in segments.iter().zip(&rows) {
        pool.write(segment, 1, row);
    }
    // The first data chunk of both.
    pool.stripe.detach(segments[0].chunks[0].device);
    pool.stripe.detach(segments[1].chunks[0].device);
    for (number, range) in [(1, 0..10_000u32), (2, 100..9001)] {
        let (mut a, mut b) = (vec![0; range.len()], vec![0; range.len()]);
        let accept = |_: usize, _: &[u8]| true;
        let wanted = |segment, number, out| ReadRequest {
            segment,
            address: Address { segment: number, ..address(1, 512, 10_000) },
            range: range.clone(),
            out,
            granule_bytes: GRANULE,
            verify: &accept,
        };
        // Even two segments of one number are told apart, as rescue may meet them.
        let mut requests = [wanted(&segments[0], 1, &mut a), wanted(&segments[1], number, &mut b)];
        assert!(pool.stripe.read_many(&mut requests).iter().all(Result::is_ok));
        let place = 512 + range.start as usize..512 + range.end as usize;
        assert_eq!((&a[..], &b[..]), (&rows[0][place.clone()], &rows[1][place]));
    }
}

#[test]
fn an_unverified_read_is_few_device_reads_too() {
    for (data, parity, reads) in [(1, 1, 1), (2, 1, 2), (4, 1, 4)] {
        let pool = Pool::new(5);
        let segment = pool.segment(scheme(data, parity));
        let row = eight_records(&pool, &segment);
        for attempt in [Attempt::Cheapest, Attempt::Primary(0)] {
            let (mut out, before) = (vec![0; 400_000], total_reads(&pool));
            pool.stripe.read(&segment, &address(1, 0, 400_000), 0..400_000, &mut out, attempt).unwrap();
            assert_eq!(out, row[..400_000]);
            assert_eq!(total_reads(&pool) - before, reads, "{data}+{parity}");
        }
        pool.stripe.detach(segment.chunks[0].device);
        let mut out = vec![0; 400_000];
        let outcome = pool.stripe.read(&segment, &address(1, 0, 400_000), 0..400_000, &mut out, Attempt::Cheapest);
        assert_eq!(outcome.is_ok(), data == 1, "only copies do without");
    }
}

/// A device that is a hundred times slower is read only where nobody else has the data.
#[test]
fn slow_devices_are_read_around() {
    for (data, parity) in [(1, 1), (4, 1), (3, 2)] {
        let pool = Pool::new(5);
        let segment = pool.segment(scheme(data, parity));
        let row = eight_records(&pool, &segment);
        pool.memories.iter().for_each(|memory| memory.set_latency_us(500));
        let slow = pool.memory_of(segment.chunks[0]);
        slow.set_latency_us(50_000);
        let before = slow.counters().reads;
        let (out, outcomes) = read_eight(&pool, &segment, &row);
        assert_eq!(out, row[512..512 + 8 * 65_536]);
        assert!(outcomes.iter().all(|outcome| outcome.as_ref().unwrap().bad.is_empty()));
        assert_eq!(slow.counters().reads, before, "{data}+{parity}");
        // Without the others it is as good as any.
        for chunk in 1..=usize::from(parity) {
            pool.stripe.detach(segment.chunks[chunk].device);
        }
        let (out, _) = read_eight(&pool, &segment, &row);
        assert_eq!(out, row[512..512 + 8 * 65_536]);
        assert!(slow.counters().reads > before);
    }
}

/// New segments go elsewhere while the others suffice.
#[test]
fn slow_devices_get_no_new_segments_while_others_suffice() {
    let pool = Pool::new(4);
    pool.memories.iter().for_each(|memory| memory.set_latency_us(500));
    assert!(pool.stripe.devices.slow().is_empty());
    pool.memories[2].set_latency_us(60_000);
    assert_eq!(pool.stripe.devices.slow(), [2]);
    for _ in 0..12 {
        assert!(pool.segment(scheme(1, 1)).chunks.iter().all(|place| place.device != 2));
    }
    assert!(pool.segment(scheme(3, 1)).chunks.iter().any(|place| place.device == 2), "all four are needed");
    pool.memories[2].set_latency_us(700);
    assert!((0..12).any(|_| pool.segment(scheme(1, 1)).chunks.iter().any(|place| place.device == 2)));
}

/// Whichever copy a read went to first: what is wrong with it is told, so that it is repaired.
#[test]
fn the_copy_that_was_read_is_the_one_that_is_told() {
    for copy in 0..3 {
        let pool = Pool::new(3);
        let segment = pool.segment(scheme(1, 2));
        let row = eight_records(&pool, &segment);
        pool.memories.iter().for_each(|memory| memory.set_latency_us(5000));
        pool.memory_of(segment.chunks[copy]).set_latency_us(500);
        pool.corrupt(&segment, copy, 4096 + 40_000..4096 + 40_010);
        let (out, outcomes) = read_eight(&pool, &segment, &row);
        assert_eq!(out, row[512..512 + 8 * 65_536]);
        let bad: Vec<usize> =
            outcomes.iter().flat_map(|outcome| &outcome.as_ref().unwrap().bad).map(|bad| bad.chunk).collect();
        assert_eq!(bad, [copy]);
    }
}

/// A device that never gives in time what others can give too, and that counts who waits for it all the same.
struct Tardy {
    memory: std::sync::Arc<stere_device::MemoryDevice>,
    waited_for: std::sync::atomic::AtomicU64,
}

impl Device for Tardy {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.memory.block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.waited_for.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.memory.read(offset, buffer)
    }

    fn read_scattered_or_leave(&self, _: u64, _: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        Err(DeviceError::TooSlow { device: self.describe() })
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<stere_device::Piece>, ticket: stere_device::Ticket) {
        self.memory.submit_write_gathered(offset, pieces, ticket);
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.memory.discard(offset, length)
    }

    fn describe(&self) -> String {
        "tardy".into()
    }
}

/// P-23: a read that a device does not answer in time is had from the others, and only what nobody else has is waited for.
#[test]
fn a_slow_device_is_left_behind_where_others_have_the_bytes() {
    for (data, parity) in [(1, 1), (1, 2), (2, 1), (4, 1), (3, 2), (1, 0), (4, 0)] {
        let pool = Pool::new(6);
        let segment = pool.segment(scheme(data, parity));
        let row = eight_records(&pool, &segment);
        for chunk in 0..segment.chunks.len() {
            let index = segment.chunks[chunk].device;
            let waited_for = std::sync::atomic::AtomicU64::new(0);
            let tardy = std::sync::Arc::new(Tardy { memory: pool.memories[usize::from(index)].clone(), waited_for });
            let layout = *pool.stripe.devices.get(index).unwrap().layout();
            pool.stripe.attach(index, tardy.clone(), layout, crate::READ_COST_FAST).unwrap();
            let (out, outcomes) = read_eight(&pool, &segment, &row);
            assert_eq!(out, row[512..512 + 8 * 65_536], "{data}+{parity}, chunk {chunk}");
            let bad = outcomes.iter().filter(|outcome| outcome.as_ref().is_ok_and(|report| !report.bad.is_empty()));
            assert_eq!(bad.count(), 0, "to be slow is no damage");
            let waits = tardy.waited_for.load(std::sync::atomic::Ordering::SeqCst);
            assert_eq!(waits > 0, parity == 0, "{data}+{parity}, chunk {chunk}: waited {waits} times");
            pool.attach(usize::from(index));
        }
    }
}
