use super::*;

fn sample(logical_bytes: u32) -> BlobValue {
    let address = Address { segment: 9, row_block: 3, offset: 512, length: logical_bytes };
    let checksums = (0..logical_bytes.div_ceil(BLOCK)).map(|block| block.wrapping_mul(77)).collect();
    BlobValue::plain(address, checksums)
}

#[test]
fn a_block_of_data_needs_no_heap_and_thirty_six_bytes() {
    let value = sample(4096);
    assert_eq!(value.encode().len(), 36);
    assert_eq!(BlobValue::decode(&value.encode()), Ok(value));
}

#[test]
fn trimmed_blob_finds_its_blocks() {
    let mut value = sample(10 * 4096 + 100);
    assert_eq!(value.blocks(), 11);
    assert_eq!(value.kill(2..5), 3);
    assert_eq!(value.kill(4..6), 1);
    assert_eq!(value.live_blocks(), 7);
    assert!(!value.is_live(5) && value.is_live(6));
    assert_eq!(value.stored_offset_of_block(6), Some(6 * 4096));
    assert_eq!(BlobValue::decode(&value.encode()), Ok(value.clone()));

    value.present = value.live;
    value.address.length = value.plain_bytes_of(&value.present);
    assert_eq!(value.address.length, 6 * 4096 + 100);
    value.checksums = value.checksums[..7].iter().copied().collect();
    assert_eq!(value.stored_offset_of_block(5), None);
    assert_eq!(value.stored_offset_of_block(6), Some(2 * 4096));
    assert_eq!(value.stored_offset_of_block(10), Some(6 * 4096));
    assert_eq!(BlobValue::decode(&value.encode()), Ok(value.clone()));

    value.address.length += 1;
    assert!(matches!(BlobValue::decode(&value.encode()), Err(DecodeError::OutOfRange { field: "stored length", .. })));
}

#[test]
fn live_but_not_present_is_refused() {
    let mut value = sample(8192);
    value.present.remove(0..1);
    value.kill(0..1);
    value.address.length = 4096;
    value.checksums = value.checksums[..1].iter().copied().collect();
    let mut bytes = value.encode();
    assert_eq!(BlobValue::decode(&bytes), Ok(value));
    assert_eq!(bytes[32..34], [2, 2], "the two bitmaps");
    bytes[32] = 1;
    assert!(matches!(BlobValue::decode(&bytes), Err(DecodeError::OutOfRange { .. })));
}

#[test]
fn largest_blob() {
    let mut value = sample(BLOB_LOGICAL_BYTES_MAX);
    assert_eq!(value.kill(0..256), 256);
    assert_eq!(value.live_blocks(), 0);
    assert_eq!(BlobValue::decode(&value.encode()), Ok(value));
}

#[test]
fn encoded_blob_may_be_stored_in_fewer_bytes() {
    let mut value = sample(131_072);
    value.encoding = BlobEncoding(2);
    value.address.length = 5000;
    value.checksums = value.checksums[..2].iter().copied().collect();
    assert_eq!(BlobValue::decode(&value.encode()), Ok(value.clone()));
    value.encoding = BlobEncoding::PLAIN;
    assert!(BlobValue::decode(&value.encode()).is_err());
}
