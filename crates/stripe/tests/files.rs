//! Segments on real files: rows, verified reads from several devices at once, and reads with devices away.

use std::sync::Arc;
use stere_device::{Buffer, BufferPool, Completion, FileDevice, FileOptions};
use stere_format::{Address, DeviceLayout, Scheme, SegmentChunks, crc32c};
use stere_stripe::{READ_COST_SEEKING, ReadReport, ReadRequest, Stripe, StripeError};

const CHUNK_BYTES: u32 = 1 << 20;
const DEVICE_BYTES: u64 = 64 << 20;
const RECORD_BYTES: usize = 60_000;

fn stripe(folder: &tempfile::TempDir, count: u16, direct: bool) -> Stripe {
    let stripe = Stripe::new(CHUNK_BYTES, BufferPool::new(16 << 20));
    let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap();
    for index in 0..count {
        let options = FileOptions { direct, ..FileOptions::default() };
        let device = FileDevice::create(&folder.path().join(index.to_string()), DEVICE_BYTES, &options).unwrap();
        // Slow devices are read side by side however little is wanted.
        stripe.attach(index, Arc::new(device), layout, READ_COST_SEEKING).unwrap();
    }
    stripe
}

fn read(stripe: &Stripe, segment: &SegmentChunks, row: &[u8]) -> Result<Vec<ReadReport>, StripeError> {
    let mut out = vec![0; 5 * RECORD_BYTES];
    let offset = |record: usize| 512 + record * RECORD_BYTES.next_multiple_of(512);
    let checks: Vec<_> = (0..5)
        .map(|record| {
            let expected = &row[offset(record)..][..RECORD_BYTES];
            move |start: usize, bytes: &[u8]| crc32c(bytes) == crc32c(&expected[start..start + bytes.len()])
        })
        .collect();
    let mut requests: Vec<ReadRequest<'_>> = out
        .chunks_mut(RECORD_BYTES)
        .zip(&checks)
        .enumerate()
        .map(|(record, (out, verify))| ReadRequest {
            segment,
            address: Address { segment: 1, row_block: 1, offset: offset(record) as u32, length: RECORD_BYTES as u32 },
            range: 0..RECORD_BYTES as u32,
            out,
            granule_bytes: 4096,
            verify,
        })
        .collect();
    let reports: Result<Vec<ReadReport>, StripeError> = stripe.read_many(&mut requests).into_iter().collect();
    if reports.is_ok() {
        for (record, out) in out.chunks(RECORD_BYTES).enumerate() {
            assert_eq!(out, &row[offset(record)..][..RECORD_BYTES]);
        }
    }
    reports
}

#[test]
fn rows_on_files_survive_what_they_should() {
    let row: Vec<u8> = (0..311_296u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for (data, parity, direct) in [(1u8, 1u8, true), (2, 1, true), (3, 1, false), (4, 2, true)] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let stripe = stripe(&folder, 6, direct);
        let scheme = Scheme::new(data, parity).unwrap();
        let segment = stripe.slots.allocate(scheme, 0).unwrap();
        let completion = Completion::new();
        stripe.write_row(1, &segment, 1, &Buffer::copy_of(&row).share(), 0, &completion).unwrap();
        assert!(completion.wait().is_empty());
        assert!(stripe.devices.flush().is_empty());
        let recovered = |reports: Vec<ReadReport>| reports.iter().map(|report| report.recovered_bytes).sum::<usize>();
        assert_eq!(recovered(read(&stripe, &segment, &row).unwrap()), 0);
        for chunk in 0..usize::from(parity) {
            stripe.detach(segment.chunks[chunk].device).unwrap();
            let reports = read(&stripe, &segment, &row).unwrap();
            assert_eq!(recovered(reports) > 0, data > 1, "{scheme}: copies are just read elsewhere");
        }
        stripe.detach(segment.chunks[usize::from(parity)].device).unwrap();
        assert!(matches!(read(&stripe, &segment, &row), Err(StripeError::TooFewChunks { .. })), "{scheme}");
    }
}
