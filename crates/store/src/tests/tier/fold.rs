//! Names that are put away: what is looked up comes back, what needs a volume says so and changes nothing, and no crash leaves a key
//! in both places or in none.

use std::sync::atomic::{AtomicU64, Ordering};

use stere_format::{BlobEncoding, KeyRange, key};
use stere_policy::Compression;

use super::crashes::{cut_at_every_write, prepared};
use super::*;
use crate::ToFold;

/// Inodes 1000 to 1199 of one directory, beside the files that have content.
fn make_names(store: &Store, files: &[(u64, Placement, usize)]) {
    store
        .update(Io::BLOCKING, |transaction| {
            let content = files.iter().map(|(inode, _, _)| *inode);
            for inode in content.chain(1000..1200) {
                transaction.put(Key::inode(inode), &value_of(inode));
            }
            Ok::<_, Error>(())
        })
        .unwrap();
}

fn value_of(inode: u64) -> Vec<u8> {
    vec![inode as u8; 100]
}

fn names() -> KeyRange {
    (Key::inode(1000), Key::inode(1200))
}

/// Puts away the names, and the inodes and extents of the files.
fn put_away(store: &Store) -> Result<Option<u32>, Error> {
    let ranges = [(Key::inode(10), Key::inode(20)), names()];
    store.offload().fold(&ToFold { directory: 5, ranges: &ranges, tertiary: 1 }, &|| true)
}

fn resident(store: &Store) -> usize {
    let (mut count, (from, to)) = (0, names());
    store.for_each_resident_key(from, to, |_, _| count += 1).unwrap();
    count
}

fn read(store: &Store, io: Io<'_>, inode: u64) -> Result<Option<Vec<u8>>, Error> {
    store.view(io, |view| Ok(view.get(&Key::inode(inode))?.map(|value| value.to_vec())))
}

fn assert_names(store: &Store) {
    for inode in 1000..1200 {
        assert_eq!(read(store, Io::BLOCKING, inode).unwrap(), Some(value_of(inode)));
    }
}

/// Down and released: the bundle is on the volume only.
fn send_down(store: &Store) -> Result<(), Error> {
    store.commit(Io::BLOCKING)?;
    while store.tier.step(true, &describe)?.is_busy {}
    let segments: Vec<u64> = store.offload().folds(Io::BLOCKING)?.iter().map(|fold| fold.blob.segment_id()).collect();
    store.tier.stager.release(&segments)?;
    store.checkpoint()?;
    store.checkpoint()
}

fn away() -> (Rig, Store, Arc<MemoryVolume>, Files) {
    let (rig, store, volume, files) = released();
    make_names(&store, &files);
    assert!(put_away(&store).unwrap().unwrap() > 200);
    send_down(&store).unwrap();
    assert!(store.offload().folds(Io::BLOCKING).unwrap().iter().all(|fold| fold.blob.is_released()));
    (rig, store, volume, files)
}

/// P-141: the keys leave the tree and the devices, come back when one of them is looked up, and a check finds all exact on the way.
#[test]
fn names_go_and_come_back() {
    let (_rig, store, volume, files) = away();
    assert_eq!(resident(&store), 0);
    assert_clean(&store);
    assert_eq!(resident(&store), 0, "a check brings nothing back");
    let before = volume.requests();
    assert_eq!(read(&store, Io::BLOCKING, 999).unwrap(), None);
    assert_eq!(volume.requests(), before, "what was not put away asks the volume for nothing");
    assert_eq!(read(&store, Io::BLOCKING, 1077).unwrap(), Some(value_of(1077)));
    assert!(!store.offload().has_folds() && resident(&store) == 200);
    assert!(volume.requests() > before);
    assert_names(&store);
    assert_readable(&store, &files);
    assert_clean(&store);
    // What nobody names any more is deleted on the volume.
    store.checkpoint().unwrap();
    settle(&store);
    assert_clean(&store);
}

/// P-141: bundles are compressed; those from before, which are not, are read, and so is what a check finds in either.
#[test]
fn bundles_are_compressed_and_older_ones_are_read() {
    let (_rig, store, _volume, files) = released();
    make_names(&store, &files);
    let (plain, packed) = ([(Key::inode(1000), Key::inode(1100))], [(Key::inode(1100), Key::inode(1200))]);
    for (ranges, compression) in [(plain, Compression::NONE), (packed, Compression::ZSTD)] {
        let what = ToFold { directory: 5, ranges: &ranges, tertiary: 1 };
        let gathered = store.offload().gather_fold(&what, compression).unwrap().unwrap();
        assert_eq!(store.offload().enter_fold(&what, &gathered, &|| true).unwrap(), Some(100));
    }
    send_down(&store).unwrap();
    let folds = store.offload().folds(Io::BLOCKING).unwrap();
    let encodings: Vec<_> = folds.iter().map(|fold| fold.blob.value.encoding).collect();
    assert_eq!(encodings, [BlobEncoding::PLAIN, BlobEncoding::ZSTD]);
    let lengths: Vec<_> = folds.iter().map(|fold| fold.blob.value.address.length).collect();
    assert!(lengths[1] * 4 < lengths[0], "{lengths:?}");
    assert_clean(&store);
    assert_eq!(resident(&store), 0);
    assert_names(&store);
    assert_clean(&store);
}

/// P-141: with the volume away, what needs it says so and changes nothing; mounting, writing, commits and checkpoints go on.
#[test]
fn nothing_else_waits_for_a_volume() {
    let (rig, store, volume, _) = away();
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1]);
    assert!(store.offload().has_folds(), "mounted without the volume");
    for io in [Io::NON_BLOCKING, Io::DEVICES_ONLY] {
        assert!(matches!(read(&store, io, 1000), Err(Error::WouldBlock)), "{io:?}");
    }
    store.tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
    store.tier.recalls.set_recall_mode(RecallMode::Deny);
    let before = volume.requests();
    assert!(matches!(read(&store, Io::BLOCKING, 1000), Err(Error::Elsewhere { .. })));
    let blind = store.update(Io::BLOCKING, |transaction| {
        transaction.put(Key::inode(1001), b"without having looked");
        Ok::<_, Error>(())
    });
    assert!(matches!(blind, Err(Error::Elsewhere { .. })), "{blind:?}");
    let new = store.update(Io::BLOCKING, |transaction| {
        transaction.put(Key::inode(2000), b"beside");
        Ok::<_, Error>(())
    });
    assert!(new.is_ok());
    store.commit(Io::BLOCKING).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(volume.requests(), before);
    store.tier.recalls.set_recall_mode(RecallMode::Block);
    store
        .update(Io::BLOCKING, |transaction| {
            transaction.put(Key::inode(1001), b"after it came back");
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!(read(&store, Io::BLOCKING, 1001).unwrap().unwrap(), b"after it came back");
    assert_eq!(read(&store, Io::BLOCKING, 1002).unwrap().unwrap(), value_of(1002));
    assert_clean(&store);
}

/// An object that is missing, cut or changed: those names cannot be read, which is told, and a check says which; nothing else fails.
#[test]
fn what_the_volume_lost_is_told() {
    let (_rig, store, volume, _) = away();
    let segments: BTreeSet<u64> =
        store.offload().folds(Io::BLOCKING).unwrap().iter().map(|fold| fold.blob.segment_id()).collect();
    let names = volume.objects();
    let objects =
        names.iter().filter(|name| stere_format::segment_of_object(name).is_some_and(|(id, _)| segments.contains(&id)));
    objects.for_each(|name| {
        volume.tamper(name, |bytes| {
            bytes.iter_mut().skip(4096).for_each(|byte| *byte ^= 0x55);
            true
        })
    });
    assert!(read(&store, Io::BLOCKING, 1000).is_err());
    assert!(store.offload().has_folds(), "they may still be found");
    let report = store.checker.check(false).unwrap();
    assert!(report.findings.iter().any(|finding| finding.inode == Some(5)), "{report:?}");
    assert_eq!(read(&store, Io::BLOCKING, 2).unwrap(), None);
    store.checkpoint().unwrap();
}

/// A pool that is only read shows them too.
#[test]
fn a_pool_that_is_only_read_has_them_in_memory() {
    let (rig, store, volume, files) = away();
    store.close().unwrap();
    drop(store);
    let written = rig.written_bytes(0);
    let devices = [0, 1].into_iter().filter_map(|index| rig.found(index)).collect();
    let (store, _) = Store::open(devices, crate::StoreOptions { read_only: true, ..options() }).unwrap();
    store.tier.media.attach_volume(0, volume, None, true).unwrap();
    assert_names(&store);
    assert_readable(&store, &files);
    store.close().unwrap();
    assert_eq!(rig.written_bytes(0), written);
}

/// P-141: a crash at any write to devices while names go and come back leaves them whole, and the work goes on.
#[test]
fn a_crash_leaves_each_name_once() {
    let (rig, files) = prepared();
    let work = |store: &Store| -> Result<(), Error> {
        put_away(store)?;
        send_down(store)?;
        read(store, Io::BLOCKING, 1100)?;
        store.commit(Io::BLOCKING)?;
        put_away(store)?;
        store.commit(Io::BLOCKING)?;
        store.checkpoint()
    };
    let rig = {
        let store = rig.open(&[0, 1]);
        make_names(&store, &files);
        store.close().unwrap();
        rig
    };
    let proven = |store: &Store| {
        assert_clean(store);
        assert_names(store);
        assert_readable(store, &files);
        work(store).unwrap();
        assert_names(store);
        assert_clean(store);
    };
    assert!(cut_at_every_write(&rig, work, proven) > 20);
}

/// What changes while it is put away stays: no change is ever lost.
#[test]
fn what_changes_meanwhile_is_not_put_away_as_it_was() {
    let (_rig, store, _volume, files) = released();
    make_names(&store, &files);
    let changes = AtomicU64::new(0);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=4000_u64 {
                store
                    .update(Io::BLOCKING, |transaction| {
                        let before = transaction.get(&Key::inode(1100))?.map(|value| value.to_vec());
                        let before = before.filter(|bytes| bytes.len() == 8);
                        let before = before.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
                        assert_eq!(before, number - 1, "a change was lost");
                        transaction.put(Key::inode(1100), &number.to_le_bytes());
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                changes.store(number, Ordering::SeqCst);
            }
            is_done.store(true, Ordering::SeqCst);
        });
        let mut folded = 0;
        while !is_done.load(Ordering::SeqCst) {
            folded += u32::from(put_away(&store).unwrap().is_some());
        }
        println!("put away {folded} times among {} changes", changes.load(Ordering::SeqCst));
    });
    let last = read(&store, Io::BLOCKING, 1100).unwrap().unwrap();
    assert_eq!(last, 4000_u64.to_le_bytes());
    assert_clean(&store);
}

/// What changed since it was gathered, or came to it, stays as it is.
#[test]
fn what_changed_since_it_was_gathered_stays() {
    let (_rig, store, _volume, files) = released();
    make_names(&store, &files);
    let ranges = [names()];
    let what = ToFold { directory: 5, ranges: &ranges, tertiary: 1 };
    for changed in [Key::inode(1100), Key::xattr(1100, 7)] {
        let gathered = store.offload().gather_fold(&what, Compression::ZSTD).unwrap().unwrap();
        store
            .update(Io::BLOCKING, |transaction| {
                transaction.put(changed, b"newer");
                Ok::<_, Error>(())
            })
            .unwrap();
        assert_eq!(store.offload().enter_fold(&what, &gathered, &|| true).unwrap(), None);
        let value = store.view(Io::BLOCKING, |view| view.get(&changed).map(|value| value.map(|it| it.to_vec())));
        assert_eq!(value.unwrap().unwrap(), b"newer");
        assert!(!store.offload().has_folds());
    }
    assert_eq!(store.offload().fold(&what, &|| true).unwrap(), Some(201));
    assert_eq!(read(&store, Io::BLOCKING, 1100).unwrap().unwrap(), b"newer");
    assert_clean(&store);
}

/// Who says no under the lock keeps them where they are, and nothing that was put away is put away twice.
#[test]
fn what_is_in_use_stays() {
    let (_rig, store, _volume, files) = released();
    make_names(&store, &files);
    let ranges = [names()];
    let what = ToFold { directory: 5, ranges: &ranges, tertiary: 1 };
    assert_eq!(store.offload().fold(&what, &|| false).unwrap(), None);
    assert_eq!((store.offload().has_folds(), resident(&store)), (false, 200));
    assert_eq!(store.offload().fold(&what, &|| true).unwrap(), Some(200));
    assert_eq!(store.offload().fold(&what, &|| true).unwrap(), None);
    let (mut all, (from, to)) = (0, (Key::inode(0), Key::new(key::tree::BLOBS, 0, 0, 0)));
    store
        .for_each_key(from, to, |key, value| {
            if (1000..1200).contains(&key.object) {
                assert_eq!(value, value_of(key.object));
                all += 1;
            }
        })
        .unwrap();
    assert_eq!((all, store.offload().has_folds()), (200, true));
    assert_clean(&store);
}
