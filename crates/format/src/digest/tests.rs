use super::*;
use crate::{Address, BlobEncoding, BlobValue};
use proptest::prelude::*;

const KINDS: [ChecksumKind; 4] = [ChecksumKind::Crc32c, ChecksumKind::Xxh3, ChecksumKind::Blake3, ChecksumKind::None];

fn value(kind: ChecksumKind, stored: &[u8]) -> BlobValue {
    let address = Address { segment: 3, row_block: 7, offset: 512, length: stored.len() as u32 };
    BlobValue::encoded(address, Checksums::of(kind, stored), BlobEncoding::ZSTD, 70_000)
}

/// Five bytes: the polynomial of CRC32C, reflected, behind a shift that makes it whole bytes. Any two messages that differ by
/// it have the same CRC.
const UNSEEN: [u8; 5] = [0xf1, 0x76, 0xec, 0x05, 0x01];

/// P-120: what the CRCs cannot see the digests do.
#[test]
fn a_change_that_the_crc_does_not_see_is_seen_by_the_digest() {
    let right: Vec<u8> = (0..9000_u32).map(|at| (at * 7 % 251) as u8).collect();
    let mut wrong = right.clone();
    wrong[5000..5005].iter_mut().zip(UNSEEN).for_each(|(byte, unseen)| *byte ^= unseen);
    for (kind, sees) in KINDS.into_iter().zip([false, true, true, false]) {
        let checksums = Checksums::of(kind, &right);
        assert!(checksums.are_of(&right), "{kind:?}");
        assert!(checksums.have_blocks_of(&wrong), "the change has the same CRC");
        assert_eq!(!checksums.are_of(&wrong), sees, "{kind:?}");
    }
}

#[test]
fn digests_are_those_of_the_papers() {
    assert_eq!(Digest::of(ChecksumKind::Xxh3, b""), Digest::Xxh3(0x2d06_8005_38d3_94c2));
    let Digest::Blake3(digest) = Digest::of(ChecksumKind::Blake3, b"") else { panic!("another digest") };
    assert_eq!(digest[..4], [0xaf, 0x13, 0x49, 0xb9]);
}

proptest! {
    /// P-1: an entry of every kind comes back, cut or longer ones are refused, and its size is known.
    #[test]
    fn entries_of_every_kind_come_back(stored in proptest::collection::vec(any::<u8>(), 1..20_000), at in any::<usize>()) {
        for (kind, more) in KINDS.into_iter().zip([0, 8, 32, 0]) {
            let value = value(kind, &stored);
            let bytes = value.encode();
            prop_assert_eq!(bytes.len(), 32 + 4 * stored.len().div_ceil(BLOCK_BYTES) + more);
            prop_assert_eq!(BlobValue::decode(&bytes).unwrap(), value);
            prop_assert!(BlobValue::decode(&bytes[..at % bytes.len()]).is_err());
            prop_assert!(BlobValue::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }
}
