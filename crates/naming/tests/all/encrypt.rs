//! Encryption: nothing of content or names is in the clear on media, what is encrypted comes back byte for byte whatever is done to
//! it, also across crashes, no nonce is used twice, and locked or tampered things are errors for themselves alone (P-53 to P-56).

use crate::support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_device::Device;
use stere_format::{BlobValue, ExtentValue, Key, key};
use stere_naming::{
    COLLAPSE_RANGE, CryptError, Error, FileSystem, INSERT_RANGE, Io, KEEP_SIZE, OpenFlags, PUNCH_HOLE, RENAME_EXCHANGE,
    ROOT, Secret, SetMode, WrappingSeed,
};
use support::edits::{Edit, Random, edit, fact, set};
use support::files::{assert_clean, check, directory, make};
use support::keys::{COST, create_key, secret, unlock};
use support::{Rig, caller, reconcile};
use zeroize::Zeroizing;

const DEVICE_BYTES: u64 = 96 << 20;
const RECORD: usize = 128 << 10;

fn text(number: usize, length: usize) -> Vec<u8> {
    let line = |at: usize| format!("WELLKNOWN record {:>6} of file {:>4}, in the clear\n", at * 7, number).into_bytes();
    (0..length / 40 + 1).flat_map(line).take(length).collect()
}

fn list(fs: &FileSystem, directory: u64) -> Vec<(String, u64)> {
    let mut names = Vec::new();
    fs.readdir(&caller(4), directory, 0, false, &mut |entry| {
        names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.inode));
        ControlFlow::Continue(())
    })
    .unwrap();
    names.retain(|(name, _)| name != "." && name != "..");
    names
}

/// Whether these bytes are anywhere on the devices.
fn is_on_media(rig: &Rig, wanted: &[u8]) -> bool {
    rig.images().iter().any(|device| {
        let mut bytes = vec![0; device.size_bytes() as usize];
        device.read(0, &mut bytes).unwrap();
        // Media are mostly zeros.
        bytes.chunks(4096).enumerate().any(|(block, chunk)| {
            let end = (block * 4096 + 4096 + wanted.len()).min(bytes.len());
            chunk.iter().any(|byte| *byte != 0)
                && bytes[block * 4096..end].windows(wanted.len()).any(|window| window == wanted)
        })
    })
}

fn blobs(fs: &FileSystem, inode: u64) -> Vec<u64> {
    let mut blobs = Vec::new();
    let (from, to) = (Key::extent(inode, 0), Key::new(key::tree::NAMES, inode, key::kind::EXTENT + 1, 0));
    fs.store().for_each_key(from, to, |_, bytes| blobs.push(ExtentValue::decode(bytes).unwrap().blob)).unwrap();
    blobs
}

fn no_key(error: &Error) -> bool {
    matches!(error, Error::Key(CryptError::Locked(_))) && error.errno() == libc::ENOKEY
}

/// P-53.
#[test]
fn nothing_that_is_encrypted_is_in_the_clear_on_media() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    create_key(&fs, "main", 1);
    // What the search finds where nothing is encrypted.
    let open = fs.mkdir(&caller(2), ROOT, b"open", 0o755).unwrap().inode;
    make(&fs, open, "visible-name-of-a-file", b"VISIBLE content of a file");
    fs.symlink(&caller(2), open, b"l", b"visible-target").unwrap();
    let top = directory(&fs, "vault", "encrypt", "yes");
    set(&fs, top, "compress", "zstd");
    let plain = directory(&fs, "vault2", "encrypt", "main");
    let long = "secret-name-".repeat(22)[..255].to_owned();
    let mut files = Vec::new();
    for directory in [top, plain] {
        let below = fs.mkdir(&caller(2), directory, b"secret-directory", 0o755).unwrap().inode;
        for (number, length) in [60, 5000, RECORD, 700_000].into_iter().enumerate() {
            let bytes = text(number, length);
            let inode = make(&fs, below, &format!("secret-name-{number}"), &bytes);
            // Small pieces that are synced one by one.
            fs.write(&caller(3), inode, 10, b"WELLKNOWN", false).unwrap();
            fs.fsync(&caller(3), inode, false).unwrap();
            let mut bytes = bytes;
            bytes[10..19].copy_from_slice(b"WELLKNOWN");
            files.push((inode, bytes));
        }
        files.push((make(&fs, below, &long, b"WELLKNOWN x"), b"WELLKNOWN x".to_vec()));
        fs.symlink(&caller(2), below, b"secret-link", b"../secret-target").unwrap();
        fs.rename(&caller(2), below, b"secret-name-0", directory, b"secret-name-moved", 0).unwrap();
        fs.link(&caller(2), files.last().unwrap().0, directory, b"secret-name-linked").unwrap();
    }
    fs.syncfs(&caller(3)).unwrap();
    for wanted in ["VISIBLE content", "visible-name-of-a-file", "visible-target"] {
        assert!(is_on_media(&rig, wanted.as_bytes()), "the search finds '{wanted}'");
    }
    let is_hidden = |rig: &Rig| {
        for hidden in ["WELLKNOWN", "in the clear", "secret-name", "secret-link", "secret-target", "secret-directory"] {
            assert!(!is_on_media(rig, hidden.as_bytes()), "'{hidden}' is on media");
        }
        assert!(!is_on_media(rig, &[101; 32]), "the key is on media");
    };
    is_hidden(&rig);
    // And after a checkpoint, cleaning, a crash and another mount.
    while fs.store().step(true).unwrap() {}
    let fs = rig.reopen(fs, true);
    is_hidden(&rig);
    unlock(&fs, 1);
    for (inode, bytes) in &files {
        check(&fs, *inode, bytes);
        assert_eq!(fact(&fs, *inode, "state"), "compliant");
    }
    assert_clean(&fs);
}

#[test]
fn locked_things_refuse_cleanly_and_can_be_removed() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    create_key(&fs, "main", 1);
    let top = directory(&fs, "vault", "encrypt", "yes");
    let below = fs.mkdir(&caller(2), top, b"below", 0o755).unwrap().inode;
    let bytes = text(1, 400_000);
    let file = make(&fs, below, "file", &bytes);
    let link = fs.symlink(&caller(2), below, b"link", b"../somewhere").unwrap().inode;
    assert_eq!(fs.readlink(&caller(2), link).unwrap(), b"../somewhere");
    let open = make(&fs, ROOT, "open", b"everybody may read this");
    let stale = fs.encryption().lock_key(&caller(4), "main").unwrap();
    assert_eq!((stale.inodes.contains(&file), stale.names.contains(&(below, b"file".to_vec()))), (true, true));
    let fs = rig.reopen(fs, true);
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    assert!(no_key(&fs.open(&caller(4), file, OpenFlags::default()).unwrap_err()));
    assert!(no_key(&fs.read(&caller(4), file, 0, &mut [0; 10]).unwrap_err()));
    assert!(no_key(&fs.write(&caller(4), file, 0, b"x", false).unwrap_err()));
    assert!(no_key(&fs.create(&caller(4), below, b"new", 0o644, flags).unwrap_err()));
    assert!(no_key(&fs.mkdir(&caller(4), below, b"new", 0o755).unwrap_err()));
    assert!(no_key(&fs.lookup(&caller(4), below, b"file").unwrap_err()));
    assert!(no_key(&fs.readlink(&caller(4), link).unwrap_err()));
    assert!(no_key(&fs.tmpfile(&caller(4), below, 0o600, flags).unwrap_err()));
    assert!(no_key(&fs.link(&caller(4), open, below, b"in").unwrap_err()));
    // Attributes of what is locked can be seen.
    assert_eq!(fs.getattr(&caller(4), file).unwrap().size, bytes.len() as u64);
    check(&fs, open, b"everybody may read this");
    let names = list(&fs, below);
    assert_eq!(names.iter().map(|(_, inode)| *inode).collect::<Vec<_>>(), [file, link]);
    assert!(names.iter().all(|(name, _)| name.starts_with("locked-")), "{names:?}");
    let shown = names[0].0.clone();
    assert_eq!(fs.lookup(&caller(4), below, shown.as_bytes()).unwrap().inode, file);
    assert!(no_key(&fs.rename(&caller(4), below, shown.as_bytes(), ROOT, b"out", 0).unwrap_err()));
    assert!(no_key(&fs.rename(&caller(4), below, shown.as_bytes(), ROOT, b"open", RENAME_EXCHANGE).unwrap_err()));
    assert!(no_key(&fs.rename(&caller(4), ROOT, b"open", below, shown.as_bytes(), 0).unwrap_err()));
    // Wrong secrets open nothing; the right one everything.
    assert!(matches!(fs.encryption().unlock_keys(None, &secret(9)), Err(Error::Key(CryptError::WrongSecret { .. }))));
    unlock(&fs, 1);
    assert_eq!(list(&fs, below), [("file".to_owned(), file), ("link".to_owned(), link)]);
    assert!(matches!(fs.lookup(&caller(4), below, shown.as_bytes()), Err(Error::NotFound)));
    check(&fs, file, &bytes);
    let handle = fs.open(&caller(4), file, OpenFlags::default()).unwrap();
    fs.write(&caller(4), file, 5, b"not yet saved when it is locked", false).unwrap();
    let stale = fs.encryption().lock_key(&caller(4), "main").unwrap();
    assert!(stale.inodes.contains(&file) && stale.names.contains(&(below, b"file".to_vec())), "{stale:?}");
    assert!(no_key(&fs.read(&caller(4), file, 0, &mut [0; 10]).unwrap_err()));
    assert!(no_key(&fs.write(&caller(4), file, 0, b"x", false).unwrap_err()));
    fs.release(&caller(4), file, handle).unwrap();
    unlock(&fs, 1);
    let mut changed = bytes.clone();
    changed[5..36].copy_from_slice(b"not yet saved when it is locked");
    check(&fs, file, &changed);
    // Its owner gets rid of all of it without the key.
    fs.encryption().lock_key(&caller(4), "main").unwrap();
    for (name, _) in list(&fs, below) {
        fs.unlink(&caller(5), below, name.as_bytes()).unwrap();
    }
    let (name, _) = list(&fs, top).remove(0);
    fs.rmdir(&caller(5), top, name.as_bytes()).unwrap();
    fs.rmdir(&caller(5), ROOT, b"vault").unwrap();
    fs.syncfs(&caller(5)).unwrap();
    while fs.step(&caller(5), 100).unwrap() {}
    assert_clean(&fs);
}

/// Every nonce on media, with what is encrypted under it: one that comes again must be for the same bytes (a record that moved).
fn note_nonces(fs: &FileSystem, nonces: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut found = Vec::new();
    let (from, to) = (Key::blob(0), Key::blob(u64::MAX));
    fs.store()
        .for_each_key(from, to, |key, bytes| {
            let value = BlobValue::decode(bytes).unwrap();
            assert_eq!(value.encoding.is_encrypted(), value.key != 0);
            if value.key != 0 {
                found.push(key.object);
            }
        })
        .unwrap();
    for blob in found {
        let handle = fs.store().view(Io::BLOCKING, |view| view.blob(blob)).unwrap();
        let mut stored = vec![0; handle.value.address.length as usize];
        fs.store().read_stored(Io::BLOCKING, vec![(&handle, &mut stored)]).unwrap();
        let before = nonces.insert(stored[8..32].to_vec(), stored[32..].to_vec());
        assert!(before.is_none_or(|before| before == stored[32..]), "a nonce was used twice");
    }
}

/// P-54, P-8: random changes of files and policies, keys locked and unlocked, crashes, against the bytes they should leave.
#[test]
fn any_change_of_an_encrypted_file_leaves_the_right_bytes_and_exact_accounts() {
    for seed in 0..12u64 {
        let (rig, fs) = Rig::new(2, DEVICE_BYTES);
        let mut fs = fs;
        let mut random = Random(seed + 977);
        let mut nonces = BTreeMap::new();
        create_key(&fs, "main", 1);
        create_key(&fs, "other", 2);
        let top = directory(&fs, "d", "encrypt", "yes");
        let mut files: Vec<(u64, Vec<u8>)> =
            (0..3).map(|at| (make(&fs, top, &format!("f{at}"), b""), Vec::new())).collect();
        for step in 0..160 {
            let at = random.next(3) as usize;
            let inode = files[at].0;
            let offset = random.next(500_000);
            let length = [1 + random.next(200), 4096, 1 + random.next(60_000), RECORD as u64][random.next(4) as usize];
            match random.next(11) {
                kind @ 0..8 => {
                    edit(&fs, &mut files, at, Edit { kind, offset, length }, &mut random, |length| text(step, length))
                }
                8 => {
                    let whose = if random.next(2) == 0 { top } else { inode };
                    match random.next(3) {
                        0 => set(&fs, whose, "compress", ["none", "zstd"][random.next(2) as usize]),
                        _ => set(&fs, whose, "encrypt", ["no", "yes", "other"][random.next(3) as usize]),
                    }
                    for _ in 0..random.next(4) {
                        fs.reconciler().reconcile_step(&caller(7), 1 + random.next(400_000)).unwrap();
                    }
                }
                9 => {
                    let name = ["main", "other"][random.next(2) as usize];
                    fs.encryption().lock_key(&caller(4), name).unwrap();
                    for _ in 0..random.next(3) {
                        fs.reconciler().reconcile_step(&caller(7), 1 + random.next(400_000)).unwrap();
                    }
                    unlock(&fs, if name == "main" { 1 } else { 2 });
                }
                _ => {
                    fs.syncfs(&caller(4)).unwrap();
                    note_nonces(&fs, &mut nonces);
                    if random.next(2) == 0 {
                        while fs.store().step(true).unwrap() {}
                        fs = rig.reopen(fs, random.next(2) == 0);
                        (1..3).for_each(|number| unlock(&fs, number));
                    }
                }
            }
        }
        for (inode, bytes) in &files {
            check(&fs, *inode, bytes);
        }
        fs.syncfs(&caller(4)).unwrap();
        assert_clean(&fs);
        reconcile(&fs);
        for (at, (inode, bytes)) in files.iter().enumerate() {
            check(&fs, *inode, bytes);
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "seed {seed}");
            assert_eq!(fs.lookup(&caller(4), top, format!("f{at}").as_bytes()).unwrap().inode, *inode);
        }
        assert_eq!(fact(&fs, top, "state"), "compliant", "seed {seed}");
        note_nonces(&fs, &mut nonces);
        let fs = rig.reopen(fs, true);
        assert_clean(&fs);
        (1..3).for_each(|number| unlock(&fs, number));
        for at in 0..3 {
            fs.unlink(&caller(5), top, format!("f{at}").as_bytes()).unwrap();
        }
        fs.rmdir(&caller(5), ROOT, b"d").unwrap();
        fs.syncfs(&caller(5)).unwrap();
        while fs.step(&caller(5), 100).unwrap() {}
        while fs.store().step(true).unwrap() {}
        assert_clean(&fs);
    }
}

/// P-54: with a crash at any point of the work.
#[test]
fn what_exists_is_encrypted_and_decrypted_in_the_background() {
    let (rig, mut fs) = Rig::new(3, DEVICE_BYTES);
    create_key(&fs, "main", 1);
    create_key(&fs, "other", 2);
    let top = fs.mkdir(&caller(2), ROOT, b"d", 0o755).unwrap().inode;
    let below = fs.mkdir(&caller(2), top, b"below", 0o755).unwrap().inode;
    let mut files: Vec<(u64, Vec<u8>)> = (0..6)
        .map(|number| {
            let bytes = text(number, 3_000 + number * 90_000);
            (make(&fs, below, &format!("f{number}"), &bytes), bytes)
        })
        .collect();
    let link = fs.symlink(&caller(2), below, b"link", b"the/target").unwrap().inode;
    // Shared with a file that is never to be encrypted.
    let copy = make(&fs, ROOT, "copy", b"");
    fs.copy_range(&caller(3), files[4].0, 0, copy, 0, 1 << 20).unwrap();
    fs.fallocate(&caller(3), files[5].0, 4096, 8192, PUNCH_HOLE | KEEP_SIZE).unwrap();
    files[5].1[4096..12288].fill(0);
    fs.syncfs(&caller(3)).unwrap();
    let modified: Vec<_> = files.iter().map(|(inode, _)| fs.getattr(&caller(3), *inode).unwrap().mtime).collect();
    for (round, encrypt) in ["yes", "other", "no", "other", "main", "no"].into_iter().enumerate() {
        set(&fs, top, "encrypt", encrypt);
        fs.syncfs(&caller(3)).unwrap();
        assert!(fact(&fs, files[3].0, "state").starts_with("pending"), "{encrypt}");
        assert!(fact(&fs, below, "state").ends_with("names"), "{encrypt}");
        for _ in 0..=round {
            fs.reconciler().reconcile_step(&caller(7), 50_000).unwrap();
        }
        fs = rig.reopen(fs, true);
        (1..3).for_each(|number| unlock(&fs, number));
        reconcile(&fs);
        for (number, (inode, bytes)) in files.iter().enumerate() {
            check(&fs, *inode, bytes);
            assert_eq!(fact(&fs, *inode, "state"), "compliant", "{encrypt} {number}");
            let wanted = match encrypt {
                "no" => 0,
                "other" => 2,
                _ => 1,
            };
            for blob in blobs(&fs, *inode) {
                let handle = fs.store().view(Io::BLOCKING, |view| view.blob(blob)).unwrap();
                assert_eq!(handle.value.key, wanted, "{encrypt} {number}");
            }
            assert_eq!(fs.getattr(&caller(3), *inode).unwrap().mtime, modified[number], "times stay");
        }
        check(&fs, copy, &files[4].1);
        assert_eq!(fs.readlink(&caller(3), link).unwrap(), b"the/target");
        assert_eq!(list(&fs, below).len(), 7);
        assert_eq!(fs.lookup(&caller(3), below, b"f3").unwrap().inode, files[3].0);
        let moved = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes;
        fs.reconciler().reconcile(&caller(4), top).unwrap();
        reconcile(&fs);
        assert_eq!(
            fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().moved_bytes,
            moved,
            "done is done: {encrypt}"
        );
        assert_clean(&fs);
    }
    // With the key locked the work waits, and goes on when it is unlocked.
    set(&fs, top, "encrypt", "other");
    reconcile(&fs);
    set(&fs, top, "encrypt", "main");
    fs.encryption().lock_key(&caller(4), "other").unwrap();
    while fs.reconciler().reconcile_step(&caller(7), 1 << 20).unwrap() {}
    let blocked = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().blocked;
    assert!(blocked.len() == 1 && blocked[0].why.contains("key"), "{blocked:?}");
    unlock(&fs, 2);
    reconcile(&fs);
    files.iter().for_each(|(inode, bytes)| check(&fs, *inode, bytes));
    assert!(files.iter().all(|(inode, _)| fact(&fs, *inode, "state") == "compliant"));
    assert_clean(&fs);
}

fn change_blob(fs: &FileSystem, blob: u64, change: impl Fn(&mut BlobValue)) {
    let changed = fs.store().update(Io::BLOCKING, |transaction| {
        let mut value = BlobValue::decode(&transaction.get(&Key::blob(blob))?.unwrap()).unwrap();
        change(&mut value);
        transaction.put(Key::blob(blob), &value.encode());
        Ok::<_, stere_store::Error>(())
    });
    changed.unwrap();
}

fn value_of(fs: &FileSystem, blob: u64) -> BlobValue {
    (*fs.store().view(Io::BLOCKING, |view| view.blob(blob)).unwrap().value).clone()
}

/// P-55: with all checksums right.
#[test]
fn records_that_were_swapped_or_changed_are_errors_for_themselves_alone() {
    let (rig, fs) = Rig::new(1, DEVICE_BYTES);
    create_key(&fs, "main", 1);
    create_key(&fs, "other", 2);
    let top = directory(&fs, "d", "encrypt", "yes");
    let bytes = text(3, 4 * RECORD);
    let (one, two) = (make(&fs, top, "a", &bytes), make(&fs, top, "b", &bytes));
    let beside = make(&fs, top, "c", &bytes);
    fs.syncfs(&caller(3)).unwrap();
    let (of_one, of_two) = (blobs(&fs, one), blobs(&fs, two));
    let swap = |a: u64, b: u64| {
        let (first, second) = (value_of(&fs, a), value_of(&fs, b));
        let as_other = |value: &mut BlobValue, other: &BlobValue| {
            (value.address, value.checksums) = (other.address, other.checksums.clone());
        };
        change_blob(&fs, a, |value| as_other(value, &second));
        change_blob(&fs, b, |value| as_other(value, &first));
    };
    // Between files, within a file, and said to be of another key.
    swap(of_one[0], of_two[0]);
    swap(of_one[1], of_one[2]);
    change_blob(&fs, of_two[3], |value| value.key = 2);
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, false);
    (1..3).for_each(|number| unlock(&fs, number));
    for (inode, wrong) in [(one, &[0, 1, 2][..]), (two, &[0, 3])] {
        let mut out = vec![0; RECORD];
        for at in 0..4 {
            let read = fs.read(&caller(4), inode, (at * RECORD) as u64, &mut out);
            match wrong.contains(&at) {
                true => assert!(matches!(read, Err(Error::Damaged(text)) if text.contains("authenticate")), "{at}"),
                false => assert!(read.unwrap() == RECORD && out == bytes[at * RECORD..][..RECORD]),
            }
        }
    }
    check(&fs, beside, &bytes);
    // A name that was changed is shown without being read, and can be removed.
    let sequence = 16;
    let changed = fs.store().update(Io::BLOCKING, |transaction| {
        let mut bytes = transaction.get(&Key::dirent(top, sequence))?.unwrap().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        transaction.put(Key::dirent(top, sequence), &bytes);
        Ok::<_, stere_store::Error>(())
    });
    changed.unwrap();
    assert_eq!(list(&fs, top)[0].0, "locked-0000000000000010");
    assert_eq!(list(&fs, top)[2].0, "c");
}

#[test]
fn what_is_encrypted_is_copied_and_never_shared() {
    let (_rig, fs) = Rig::new(2, DEVICE_BYTES);
    create_key(&fs, "main", 1);
    let top = directory(&fs, "d", "encrypt", "yes");
    let bytes = text(1, 3 * RECORD + 77);
    let source = make(&fs, top, "source", &bytes);
    let outside = make(&fs, ROOT, "outside", &bytes);
    for (from, directory) in [(source, top), (source, ROOT), (outside, top)] {
        let copy = make(&fs, directory, &format!("copy{from}"), b"");
        assert_eq!(fs.copy_range(&caller(3), from, 0, copy, 0, 1 << 20).unwrap(), bytes.len() as u64);
        check(&fs, copy, &bytes);
        assert!(blobs(&fs, copy).iter().all(|blob| !blobs(&fs, from).contains(blob)));
        let wanted = u16::from(directory == top);
        assert!(blobs(&fs, copy).iter().all(|blob| value_of(&fs, *blob).key == wanted));
    }
    for mode in [COLLAPSE_RANGE, INSERT_RANGE] {
        let refused = fs.fallocate(&caller(3), source, 0, 4096, mode).unwrap_err();
        assert_eq!(refused.errno(), libc::EOPNOTSUPP);
    }
    check(&fs, source, &bytes);
    assert_clean(&fs);
}

/// The stricter of its names holds: nothing that was encrypted is written in the clear because it got another name.
#[test]
fn a_file_with_several_names_stays_encrypted() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    create_key(&fs, "main", 1);
    let (top, open) = (directory(&fs, "d", "encrypt", "yes"), directory(&fs, "open", "encrypt", "no"));
    let file = make(&fs, top, "file", b"first");
    fs.link(&caller(3), file, open, b"outside").unwrap();
    fs.write(&caller(3), file, 0, b"WELLKNOWN", false).unwrap();
    fs.syncfs(&caller(3)).unwrap();
    fs.rename(&caller(3), open, b"outside", ROOT, b"elsewhere", 0).unwrap();
    fs.write(&caller(3), file, 100_000, b"WELLKNOWN", false).unwrap();
    reconcile(&fs);
    fs.unlink(&caller(3), top, b"file").unwrap();
    fs.write(&caller(3), file, 200_000, b"WELLKNOWN", false).unwrap();
    fs.syncfs(&caller(3)).unwrap();
    assert!(!is_on_media(&rig, b"WELLKNOWN"));
    assert_eq!((fact(&fs, file, "encrypt"), fact(&fs, file, "state")), ("yes".into(), "compliant".into()));
    // And one that gets a name where more is asked for is encrypted.
    let plain = make(&fs, open, "plain", b"content");
    fs.link(&caller(3), plain, top, b"inside").unwrap();
    assert!(fact(&fs, plain, "state").starts_with("pending"));
    reconcile(&fs);
    assert!(blobs(&fs, plain).iter().all(|blob| value_of(&fs, *blob).key == 1));
    assert_clean(&fs);
}

#[test]
fn names_of_any_length_are_found_and_not_made_twice() {
    let (rig, fs) = Rig::new(1, DEVICE_BYTES);
    create_key(&fs, "main", 1);
    let top = fs.mkdir(&caller(2), ROOT, b"d", 0o755).unwrap().inode;
    let names: Vec<String> =
        (1..=255).step_by(2).map(|length| format!("{length:03}").repeat(85)[..length].into()).collect();
    // Half of them before, half after encryption is asked for.
    let (before, after) = names.split_at(names.len() / 2);
    let mut inodes = BTreeMap::new();
    for name in before {
        inodes.insert(name.clone(), make(&fs, top, name, b""));
    }
    set(&fs, top, "encrypt", "yes");
    for name in after {
        inodes.insert(name.clone(), make(&fs, top, name, b""));
    }
    let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
    let all_are_there = |fs: &FileSystem| {
        for (name, inode) in &inodes {
            assert_eq!(fs.lookup(&caller(3), top, name.as_bytes()).unwrap().inode, *inode);
            assert!(matches!(fs.create(&caller(3), top, name.as_bytes(), 0o644, flags), Err(Error::Exists)));
        }
        assert_eq!(list(fs, top).len(), inodes.len());
    };
    all_are_there(&fs);
    reconcile(&fs);
    all_are_there(&fs);
    let fs = rig.reopen(fs, true);
    unlock(&fs, 1);
    all_are_there(&fs);
    assert!(matches!(fs.lookup(&caller(3), top, b"not there"), Err(Error::NotFound)));
    assert_clean(&fs);
}

#[test]
fn keys_are_rewrapped_and_removed() {
    let (rig, fs) = Rig::new(2, DEVICE_BYTES);
    let bad = fs.setxattr(&caller(3), ROOT, b"user.stere.encrypt", b"yes", SetMode::Any, false).unwrap_err();
    assert_eq!(bad.errno(), libc::ENOKEY);
    create_key(&fs, "main", 1);
    let bad = fs.setxattr(&caller(3), ROOT, b"user.stere.encrypt", b"nobody", SetMode::Any, false).unwrap_err();
    assert_eq!(bad.errno(), libc::EINVAL);
    let top = directory(&fs, "d", "encrypt", "main");
    assert_eq!((fact(&fs, top, "encrypt"), fact(&fs, top, "effective.encrypt")), ("main".into(), "main".into()));
    let file = make(&fs, top, "file", b"content");
    assert_eq!(fact(&fs, file, "source.encrypt"), "inherited from /d");
    let seed = WrappingSeed { salt: [50; 16], nonce: [51; 24] };
    let passphrase = || Secret::Passphrase(Zeroizing::new(b"open sesame".to_vec()));
    fs.encryption().wrap_key(&caller(3), "main", None, &passphrase(), COST, &seed).unwrap();
    fs.encryption().wrap_key(&caller(3), "main", Some(&secret(1)), &secret(3), COST, &seed).unwrap();
    let fs = rig.reopen(fs, true);
    assert!(fs.encryption().unlock_keys(Some("main"), &secret(1)).is_err(), "the old key file opens nothing");
    fs.encryption().unlock_keys(Some("main"), &passphrase()).unwrap();
    check(&fs, file, b"content");
    fs.encryption().lock_key(&caller(3), "main").unwrap();
    fs.encryption().unlock_keys(Some("main"), &secret(3)).unwrap();
    let refused = fs.encryption().remove_key(&caller(3), "main", false).unwrap_err();
    assert!(refused.to_string().contains("1 records and 1 names, and 1 policies"), "{refused}");
    fs.encryption().remove_key(&caller(3), "main", true).unwrap();
    let fs = rig.reopen(fs, true);
    assert!(fs.encryption().keys().is_empty() && fs.encryption().unlock_keys(None, &secret(3)).unwrap().0.is_empty());
    let error = fs.open(&caller(3), file, OpenFlags::default()).unwrap_err();
    assert!(matches!(error, Error::Key(CryptError::NoSuchKey(1))) && error.errno() == libc::ENOKEY);
    let (name, _) = list(&fs, top).remove(0);
    fs.unlink(&caller(3), top, name.as_bytes()).unwrap();
    create_key(&fs, "main", 4);
    assert_eq!(fs.encryption().keys()[0].number, 2, "a number is never used again");
    assert_clean(&fs);
}

/// A rotten record of a key is that key's loss alone.
#[test]
fn a_rotten_key_is_not_there() {
    let (rig, fs) = Rig::new(1, DEVICE_BYTES);
    create_key(&fs, "main", 1);
    create_key(&fs, "other", 2);
    let (one, two) = (directory(&fs, "one", "encrypt", "main"), directory(&fs, "two", "encrypt", "other"));
    let (lost, kept) = (make(&fs, one, "file", b"lost"), make(&fs, two, "file", b"kept"));
    let changed = fs.store().update(Io::BLOCKING, |transaction| {
        let mut bytes = transaction.get(&Key::encryption_key(1))?.unwrap().to_vec();
        bytes[90] ^= 1;
        transaction.put(Key::encryption_key(1), &bytes);
        Ok::<_, stere_store::Error>(())
    });
    changed.unwrap();
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    unlock(&fs, 2);
    check(&fs, kept, b"kept");
    let error = fs.read(&caller(3), lost, 0, &mut [0; 4]).unwrap_err();
    assert!(matches!(error, Error::Key(CryptError::NoSuchKey(1))), "{error}");
}
