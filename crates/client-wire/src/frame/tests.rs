//! Frames (P-90): what is decoded is within bounds and encodes to the same bytes; everything else is refused.

use proptest::prelude::*;

use super::*;

/// Any bytes, about half of them near to a request.
fn bytes() -> impl Strategy<Value = [u8; REQUEST_BYTES]> {
    let near = (0_u32..6, any::<u32>(), edge(), edge(), 0_u32..(REQUEST_BYTES_MAX + 2), 0_u32..4);
    let near = near.prop_map(|(kind, tag, offset, place, length, reserved)| {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&tag.to_le_bytes());
        bytes[8..16].copy_from_slice(&offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&place.to_le_bytes());
        bytes[24..28].copy_from_slice(&length.to_le_bytes());
        bytes[28..32].copy_from_slice(&reserved.to_le_bytes());
        bytes
    });
    prop_oneof![any::<[u8; REQUEST_BYTES]>(), near]
}

fn edge() -> impl Strategy<Value = u64> {
    let near = |middle: u64| (0_u64..(2 << 20)).prop_map(move |far| middle.wrapping_add(far).wrapping_sub(1 << 20));
    prop_oneof![any::<u64>(), near(0), near(1 << 63), near(MEMORY_BYTES_MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_request_that_is_taken_is_within_bounds_and_encodes_to_itself(bytes in bytes(), memory in 0..=MEMORY_BYTES_MAX) {
        if let Ok(request) = Request::decode(&bytes) {
            prop_assert_eq!(request.encode(), bytes);
            prop_assert!(request.length <= REQUEST_BYTES_MAX);
            prop_assert!(request.offset + u64::from(request.length) <= i64::MAX as u64);
            let is_within = u128::from(request.place) + u128::from(request.length) <= u128::from(memory);
            prop_assert_eq!(request.is_within(memory), is_within);
        } else {
            let (kind, length, reserved) = (u32_at(&bytes, 0), u32_at(&bytes, 24), u32_at(&bytes, 28));
            let end = |at| u128::from(u64_at(&bytes, at)) + u128::from(length);
            let is_good = (1..=4).contains(&kind)
                && reserved < 2
                && length <= REQUEST_BYTES_MAX
                && end(8) <= i64::MAX as u128
                && end(16) <= i64::MAX as u128;
            prop_assert!(!is_good, "a good request was refused");
        }
    }

    #[test]
    fn replies_are_read_as_they_were_written(bytes in any::<[u8; REPLY_BYTES]>()) {
        let mut whole = bytes;
        whole[20..24].fill(0);
        prop_assert_eq!(Reply::decode(&whole).unwrap().encode(), whole);
        prop_assert_eq!(Reply::decode(&bytes).is_ok(), bytes[20..24] == [0; 4]);
    }
}
