//! Blobs that others move or change while they are being moved as a policy asks.

use stere_format::{BlobEncoding, BlobFlags};

use super::*;
use crate::{BlobHandle, Move, Recoded};

fn handles(store: &Store, ids: &[u64]) -> Vec<BlobHandle> {
    store.view(Io::BLOCKING, |view| ids.iter().map(|id| view.blob(*id)).collect::<Result<Vec<_>, Error>>()).unwrap()
}

fn moves(blobs: &[BlobHandle]) -> Vec<Move> {
    blobs
        .iter()
        .map(|blob| Move { blob: blob.clone(), owner: Owner { inode: 100, offset: 0 }, recoded: None })
        .collect()
}

/// P-215: cleaning (here: the same move by somebody else) came between looking and moving; the blobs move all the same, and what was
/// removed meanwhile does not come back.
#[test]
fn what_was_moved_meanwhile_is_moved_all_the_same() {
    let (mut rig, store) = Rig::new(2, 96 << 20);
    let data = content(1, 3 << 20);
    let ids = write_file(&store, SINGLE, 100, &data);
    store.commit(Io::BLOCKING).unwrap();
    let seen = moves(&handles(&store, &ids));
    store.cleaning().relocate(&seen, SINGLE, None).unwrap();
    let bytes: u64 = seen.iter().map(|one| u64::from(one.blob.value.address.length)).sum();
    let moved = store.cleaning().relocate(&seen, COPIES, None).unwrap();
    assert_eq!((moved.overtaken, moved.damaged), (0, 0));
    assert!(moved.bytes >= bytes, "{moved:?}, and {bytes} bytes were to move");
    for blob in handles(&store, &ids) {
        assert_eq!(blob.scheme(), COPIES.scheme, "blob {} lies as it did before", blob.id);
    }
    store.commit(Io::BLOCKING).unwrap();
    let (store, _) = rig.crash(store, |_| false);
    assert_eq!(read_file(&store, 100, 3 << 20).unwrap(), data);
    let seen = moves(&handles(&store, &ids));
    remove_file(&store, 100);
    assert_eq!(store.cleaning().relocate(&seen, SINGLE, None).unwrap().bytes, 0);
    assert_clean(&store);
}

/// P-215: a copy by reference came between looking and moving to another encoding; that others have the blob too is not forgotten, or what
/// one of them gives up would be gone for all.
#[test]
fn what_was_shared_while_it_was_recoded_stays_shared() {
    let (mut rig, store) = Rig::new(2, 96 << 20);
    let data = content(1, 1 << 20);
    let ids = write_file(&store, COPIES, 100, &data);
    store.commit(Io::BLOCKING).unwrap();
    let mut offset = 0;
    let mut recoded = |blob: &BlobHandle| {
        let begin = offset;
        offset += blob.value.logical_bytes as usize;
        let (encoding, flags) = (BlobEncoding::PLAIN, BlobFlags::GAVE_UP_ZSTD);
        Recoded { encoding, flags, checksum: blob.value.checksums.kind(), stored: data[begin..offset].to_vec() }
    };
    let seen: Vec<Move> = moves(&handles(&store, &ids))
        .into_iter()
        .map(|one| Move { recoded: Some(recoded(&one.blob)), ..one })
        .collect();
    store
        .update(Io::BLOCKING, |transaction| ids.iter().try_for_each(|id| transaction.reference_blob(*id, true)))
        .unwrap();
    assert_eq!(store.cleaning().relocate(&seen, SINGLE, None).unwrap().overtaken, 0);
    for blob in handles(&store, &ids) {
        assert_eq!(blob.value.flags, BlobFlags::SHARED.with(BlobFlags::GAVE_UP_ZSTD));
        assert_eq!(blob.value.references, 2);
    }
    // One of the two gives up what the other goes on with.
    store
        .update(Io::BLOCKING, |transaction| ids.iter().try_for_each(|id| transaction.trim_blob(*id, 0..8192)))
        .unwrap();
    assert!(handles(&store, &ids).iter().all(|blob| blob.value.live == blob.value.present));
    store.commit(Io::BLOCKING).unwrap();
    let (store, _) = rig.crash(store, |_| false);
    assert_eq!(read_file(&store, 100, 1 << 20).unwrap(), data);
}
