use super::*;
use crate::{BlobEncoding, Checksums, ChunkPlace};

fn record(length: usize) -> BlobValue {
    let checksums = Checksums::of(ChecksumKind::Crc32c, &vec![7; length]);
    BlobValue::plain(WriteOffer::unplaced(length as u32), checksums)
}

fn grant() -> RowGrant {
    let chunks = (0..3).map(|device| ChunkPlace { device, slot: 9 }).collect();
    RowGrant {
        number: 5,
        epoch: 2,
        segment: 77,
        place: SegmentChunks { scheme: Scheme { data: 2, parity: 1 }, missing: 4, chunks },
        row_block: 3,
        row_bytes: 16_384,
        offsets: vec![512, 4608],
        header: [3; RowHeader::SIZE],
        summary_offset: 12_800,
        summary: vec![8; 90],
    }
}

#[test]
fn offers_and_answers_are_what_was_said() {
    let encrypted = BlobValue { encoding: BlobEncoding::PLAIN.encrypted(), key: 7, ..record(4096) };
    let plugged = BlobValue { encoding: BlobEncoding::ZSTD.plugged(), stack: 3, ..record(4096) };
    let offer = WriteOffer { records: vec![record(128 << 10), encrypted, plugged, record(5000)] };
    assert_eq!(WriteOffer::decode(&offer.encode()), Ok(offer));
    let (compression, checksum, record_bytes) = (2, ChecksumKind::Blake3, 65_536);
    for answer in [
        OfferAnswer::Granted(Box::new(grant())),
        OfferAnswer::Encode { compression, checksum, key: 7, stack: 0, record_bytes },
        OfferAnswer::Encode { compression, checksum, key: 7, stack: 3, record_bytes },
        OfferAnswer::Bytes,
    ] {
        assert_eq!(OfferAnswer::decode(&answer.encode()), Ok(answer));
    }
}

#[test]
fn what_is_no_offer_is_refused() {
    let refused = |change: fn(&mut BlobValue)| {
        let mut wrong = record(8192);
        change(&mut wrong);
        WriteOffer::decode(&WriteOffer { records: vec![wrong] }.encode()).unwrap_err();
    };
    refused(|record| record.references = 2);
    refused(|record| record.address.segment = 3);
    refused(|record| _ = record.live.remove(1..2));
    let offer = WriteOffer { records: vec![record(8192), record(4096)] }.encode();
    for cut in 0..offer.len() {
        WriteOffer::decode(&offer[..cut]).unwrap_err();
    }
}

#[test]
fn what_is_no_grant_is_refused() {
    let refused = |change: fn(&mut RowGrant)| {
        let mut wrong = grant();
        change(&mut wrong);
        OfferAnswer::decode(&OfferAnswer::Granted(Box::new(wrong)).encode()).unwrap_err();
    };
    refused(|grant| grant.row_block = 0);
    refused(|grant| grant.offsets[0] = 0);
    refused(|grant| grant.offsets[1] = 600);
    refused(|grant| grant.offsets[1] = 512);
    refused(|grant| grant.offsets[1] = 12_800);
    refused(|grant| grant.summary_offset = 16_300);
    refused(|grant| grant.row_bytes = 8 << 20);
    // A stack has a number, or is not told.
    let (compression, checksum, record_bytes) = (2, ChecksumKind::Blake3, 65_536);
    let mut encode = OfferAnswer::Encode { compression, checksum, key: 7, stack: 3, record_bytes }.encode();
    *encode.iter_mut().rfind(|byte| **byte == 3).unwrap() = 0;
    OfferAnswer::decode(&encode).unwrap_err();
    let answer = OfferAnswer::Granted(Box::new(grant())).encode();
    for cut in 0..answer.len() {
        OfferAnswer::decode(&answer[..cut]).unwrap_err();
    }
}
