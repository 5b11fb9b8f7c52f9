use super::*;

#[test]
fn known_vector() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn record_checksum_equals_checksum_of_the_whole() {
    let data: Vec<u8> = (0..70_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for length in [0, 1, 4095, 4096, 4097, 8192, 40_960, 69_999, 70_000] {
        let data = &data[..length];
        assert_eq!(record_checksum(&block_checksums(data), length), crc32c(data), "length {length}");
    }
}
