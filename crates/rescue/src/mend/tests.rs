//! Forged faults of every kind, mended until both checks have nothing to say (P-41).

use stere_format::{
    AccountValue, BlobValue, BlockBitmap, DirentValue, ExtentValue, FileKind, Holder, InodeValue, Key, Timestamp, key,
};
use stere_naming::ROOT;
use stere_store::{Io, Store};

use super::{Mended, mend};
use crate::tests::rig::{Expected, Rig};

fn change(store: &Store, changes: &[(Key, Option<Vec<u8>>)]) {
    let outcome: Result<(), stere_store::Error> = store.update(Io::BLOCKING, |transaction| {
        for (key, value) in changes {
            match value {
                Some(value) => transaction.put(*key, value),
                None => transaction.delete(*key),
            }
        }
        Ok(())
    });
    outcome.unwrap();
}

fn keys(store: &Store, tree: u8) -> Vec<(Key, Vec<u8>)> {
    let mut all = Vec::new();
    let (from, to) = (Key::new(tree, 0, 0, 0), Key::new(tree + 1, 0, 0, 0));
    store.for_each_key(from, to, |key, value| all.push((*key, value.to_vec()))).unwrap();
    all
}

/// Mends, and proves that nothing is left to mend.
fn mended(rig: &Rig) -> Vec<Mended> {
    let store = rig.files.store();
    let mended = mend(store, Timestamp::default()).unwrap();
    store.checker.correct_accounts().unwrap();
    store.checkpoint().unwrap();
    let findings = store.checker.check(true).unwrap().findings;
    assert!(findings.is_empty(), "{findings:?}");
    let findings = stere_naming::check(store).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(store.checker.correct_accounts().unwrap(), 0);
    mended
}

fn filled() -> (Rig, Expected) {
    Rig::filled(2)
}

#[test]
fn an_intact_pool_is_left_alone() {
    let (rig, _) = filled();
    assert_eq!(mended(&rig), []);
}

#[test]
fn forged_names_loops_and_lost_inodes_are_mended() {
    let (rig, _) = filled();
    rig.forge();
    let told = mended(&rig);
    assert!(told.iter().any(|it| it.data_lost && it.text.contains("nothing")), "{told:?}");
    assert!(told.iter().any(|it| it.inode == Some(5003) && it.text.contains("lost+found/5003")), "{told:?}");
    let caller = crate::tests::rig::caller();
    let place = rig.files.lookup(&caller, ROOT, b"lost+found").unwrap().inode;
    assert!(rig.files.lookup(&caller, place, b"5003").is_ok());
}

fn of_root(rig: &Rig) -> AccountValue {
    let infos = rig.files.quotas().accounts(Io::BLOCKING, Holder::User).unwrap();
    infos.into_iter().find(|info| info.account.number == 0).map(|info| info.value).unwrap_or_default()
}

#[test]
fn accounts_that_are_wrong_are_counted_anew() {
    let (rig, _) = filled();
    let caller = crate::tests::rig::caller();
    let volume = rig.files.mkdir(&caller, ROOT, b"volume", 0o755).unwrap().inode;
    let most = Some(Some(1 << 40));
    let limits = stere_naming::Limits { bytes: most, stored: most, ..Default::default() };
    let number = rig.files.quotas().create_volume(&caller, volume, limits).unwrap();
    rig.files.mkdir(&caller, volume, b"in it", 0o755).unwrap();
    while rig.files.step(&caller, 100).unwrap() {}
    rig.files.syncfs(&caller).unwrap();
    assert_eq!(mended(&rig), []);
    let key = Key::account(Holder::Volume, number);
    let value = rig.files.store().view(Io::BLOCKING, |view| view.get(&key)).unwrap().unwrap();
    let right = AccountValue::decode(&value).unwrap();
    let user = Key::account(Holder::User, 12);
    let nobody = AccountValue { bytes: 4096, inodes: 1, ..AccountValue::default() };
    assert!(of_root(&rig).stored > 0, "the files that there are count");
    let wrong = |value: AccountValue| (key, value.encode());
    let inodes = wrong(AccountValue { inodes: 77, ..right });
    let stored = wrong(AccountValue { stored: 512, ..right });
    for (key, value) in [inodes, stored, (user, nobody.encode())] {
        let of_root_before = of_root(&rig);
        change(rig.files.store(), &[(key, Some(value))]);
        assert_eq!(stere_naming::check(rig.files.store()).unwrap().len(), 1);
        let told = mended(&rig);
        assert!(told.iter().any(|it| it.text.contains("counts anew")), "{told:?}");
        // As the next mount does.
        while rig.files.step(&caller, 100).unwrap() {}
        rig.files.syncfs(&caller).unwrap();
        assert_eq!(mended(&rig), []);
        assert_eq!(of_root(&rig), of_root_before);
    }
    let value = rig.files.store().view(Io::BLOCKING, |view| view.get(&key)).unwrap().unwrap();
    assert_eq!(AccountValue::decode(&value).unwrap(), right);
}

#[test]
fn contents_without_an_inode_keep_their_name() {
    let (rig, expected) = filled();
    let (path, file) =
        expected.files.iter().find(|(path, file)| path.starts_with(b"/late") && !file.content.is_empty()).unwrap();
    change(rig.files.store(), &[(Key::inode(file.inode), None)]);
    let told = mended(&rig);
    assert!(told.iter().any(|it| it.inode == Some(file.inode) && it.data_lost), "{told:?}");
    let caller = crate::tests::rig::caller();
    let found = rig.files.lookup(&caller, ROOT, &path[1..]).unwrap();
    let mut content = vec![0; file.content.len()];
    rig.files.read(&caller, found.inode, 0, &mut content).unwrap();
    assert!(content == file.content);
}

#[test]
fn every_kind_of_wrong_count_is_put_right() {
    let (rig, expected) = filled();
    let store = rig.files.store();
    let file = expected.files.values().find(|file| file.content.len() > 300_000).unwrap();
    let mut changes: Vec<(Key, Option<Vec<u8>>)> = Vec::new();
    let inodes = keys(store, key::tree::NAMES);
    for (at, bytes) in inodes.iter().filter(|(at, _)| at.kind == key::kind::INODE).step_by(5) {
        let mut value = InodeValue::decode(bytes).unwrap();
        (value.nlink, value.blocks_bytes) = (value.nlink + 3, value.blocks_bytes + 4096);
        if value.kind() == Some(FileKind::Directory) {
            (value.size, value.parent, value.next_dirent_sequence) = (value.size + 9, 12345, 3);
        }
        changes.push((*at, Some(value.encode())));
    }
    for (at, _) in inodes.iter().filter(|(at, _)| at.kind == key::kind::DIRENT_HASH).step_by(4) {
        changes.push((*at, None));
    }
    for (number, (at, bytes)) in keys(store, key::tree::BLOBS).iter().enumerate() {
        let mut value = BlobValue::decode(bytes).unwrap();
        match number % 4 {
            0 => value.references += 2,
            1 => value.live = BlockBitmap::full(1).is_subset_of(&value.present).then(|| BlockBitmap::full(1)).unwrap(),
            _ => continue,
        }
        changes.push((*at, Some(value.encode())));
    }
    changes.push((Key::orphan(file.inode), Some(vec![1])));
    changes.push((Key::orphan(77_777), Some(vec![1])));
    changes.push((Key::preallocated(), Some(4096u64.to_le_bytes().to_vec())));
    change(store, &changes);
    let told = mended(&rig);
    assert!(told.len() > 40 && told.iter().all(|it| !it.data_lost), "{told:?}");
    let copy = rig.close();
    let (report, sink) = crate::tests::rescued(&copy, &expected);
    assert!(!report.is_data_lost(), "{:?}", report.damage);
    expected.assert_all(&sink, crate::Verdict::Whole);
}

fn first_extent(store: &Store, inode: u64) -> ExtentValue {
    let mut extents = keys(store, key::tree::NAMES).into_iter();
    let first = extents.find(|(at, _)| at.object == inode && at.kind == key::kind::EXTENT);
    ExtentValue::decode(&first.unwrap().1).unwrap()
}

#[test]
fn lost_blobs_and_spoiled_values_are_told_and_the_rest_agrees() {
    let (rig, expected) = filled();
    let store = rig.files.store();
    let file = expected.files.values().find(|file| file.content.len() > 300_000).unwrap();
    let extent = first_extent(store, file.inode);
    let other = expected.files.values().find(|it| it.inode != file.inode && it.content.len() > 30_000).unwrap();
    let bad_name = DirentValue { inode: other.inode, kind: FileKind::Fifo, key: 0, name: b"kind".to_vec() };
    change(
        store,
        &[
            (Key::blob(extent.blob), None),
            (Key::extent(other.inode, 4096), Some(vec![9; 20])),
            (Key::dirent(ROOT, 60_000), Some(vec![1, 2, 3])),
            (Key::dirent(ROOT, 60_001), Some(bad_name.encode())),
            (Key::xattr(other.inode, 5), Some(vec![0])),
        ],
    );
    let told = mended(&rig);
    for inode in [file.inode, other.inode, ROOT] {
        assert!(told.iter().any(|it| it.inode == Some(inode) && it.data_lost), "{inode}: {told:?}");
    }
}

#[test]
fn wrong_live_bytes_are_counted_anew() {
    let (mut rig, _) = filled();
    rig.close_and_reopen();
    let store = rig.files.store();
    for segment in store.segments().all().iter().step_by(2) {
        segment.add_live_bytes(512);
    }
    assert!(!store.checker.check(false).unwrap().findings.is_empty());
    assert!(store.checker.correct_accounts().unwrap() > 0);
    assert_eq!(mended(&rig), []);
}

/// P-135, P-144: an index that is wrong is built anew, and no digest stays of what is not all there any more.
#[test]
fn a_wrong_index_and_digests_of_lost_content_go() {
    let (rig, expected) = filled();
    let store = rig.files.store();
    let file = expected.files.values().find(|file| file.content.len() > 300_000).unwrap();
    let extent = first_extent(store, file.inode);
    let digests = stere_format::ContentDigests { sha256: Some([1; 32]), blake3: None };
    change(
        store,
        &[
            (Key::content_digest(file.inode), Some(digests.encode())),
            (Key::blob(extent.blob), None),
            (Key::find_size(30, file.inode), Some(vec![1])),
        ],
    );
    mended(&rig);
    let left = store.view(Io::BLOCKING, |view| {
        let value = |key: Key| Ok::<_, stere_store::Error>(view.get(&key)?.map(|value| value.to_vec()));
        Ok::<_, stere_store::Error>((value(Key::content_digest(file.inode))?, value(Key::find_index())?))
    });
    assert_eq!(left.unwrap(), (None, Some(stere_format::FindIndexValue::Clearing.encode())));
}

/// P-148: what is noted of where names lie is put right, and a file lies where a name of it is.
#[test]
fn what_is_noted_of_several_names_is_put_right() {
    let (rig, _) = filled();
    let caller = crate::tests::rig::caller();
    let made = |name: &[u8]| rig.files.mkdir(&caller, ROOT, name, 0o755).unwrap().inode;
    let (one, two) = (made(b"one"), made(b"two"));
    let make = |name: &[u8]| rig.files.mknod(&caller, one, name, 0o644, 0).unwrap().inode;
    let (file, other) = (make(b"a"), make(b"c"));
    rig.files.link(&caller, file, two, b"b").unwrap();
    rig.files.syncfs(&caller).unwrap();
    let store = rig.files.store();
    let read = |at: Key| {
        let value = store.view(Io::BLOCKING, |view| Ok::<_, stere_store::Error>(view.get(&at)?.map(|it| it.to_vec())));
        value.unwrap()
    };
    let moved = |inode: u64, parent: u64| {
        let value = InodeValue::decode(&read(Key::inode(inode)).unwrap()).unwrap();
        Some(InodeValue { parent, ..value }.encode())
    };
    let right = [Key::named_in(file, one), Key::named_in(file, two), Key::named_in_known()].map(&read);
    type Changes<'a> = &'a [(Key, Option<Vec<u8>>)];
    let spoilt: [Changes<'_>; 4] = [
        &[(Key::named_in(file, two), None), (Key::named_in(file, ROOT), Some(vec![1, 0, 0, 0]))],
        &[(Key::named_in(other, one), Some(vec![1])), (Key::inode(other), moved(other, two))],
        &[(Key::inode(file), moved(file, ROOT))],
        &[(Key::named_in_known(), Some(vec![9])), (Key::named_in(file, one), Some(vec![7, 0, 0, 0]))],
    ];
    for changes in spoilt {
        change(store, changes);
        let told = mended(&rig);
        assert!(!told.is_empty() && told.iter().all(|it| !it.data_lost), "{told:?}");
        let now = [Key::named_in(file, one), Key::named_in(file, two), Key::named_in_known()].map(&read);
        assert_eq!(now, right);
        assert_eq!((read(Key::named_in(file, ROOT)), read(Key::named_in(other, one))), (None, None));
        let parent = |inode| InodeValue::decode(&read(Key::inode(inode)).unwrap()).unwrap().parent;
        assert!(parent(other) == one && [one, two].contains(&parent(file)));
    }
}
