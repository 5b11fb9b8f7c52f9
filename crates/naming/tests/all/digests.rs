//! Digests of whole contents (P-144): told only of what a file holds, whatever is done to it, moved or crashed; none of what is encrypted.

use crate::support;

use stere_naming::{DigestKind, Error, FileSystem, KeySeed, PassphraseCost, ROOT, Secret, SetMode, WrappingSeed};
use support::edits::{Edit, Random, edit, set};
use support::files::{assert_clean, check, make, mkdir};
use support::{Rig, caller, reconcile};
use zeroize::Zeroizing;

/// Not a good one, but other contents of a test have another one.
fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut sums = [0x9e37_79b9_7f4a_7c15u64, 3, 5, 7];
    for (at, byte) in bytes.iter().enumerate() {
        let sum = &mut sums[at % 4];
        *sum = (*sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5);
    }
    sums[3] ^= bytes.len() as u64;
    let mut out = [0; 32];
    out.chunks_mut(8).zip(sums).for_each(|(out, sum)| out.copy_from_slice(&sum.to_le_bytes()));
    out
}

fn hex(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn told(fs: &FileSystem, inode: u64, name: &str) -> Option<String> {
    match fs.getxattr(&caller(9), inode, format!("user.stere.{name}").as_bytes()) {
        Ok(value) => Some(String::from_utf8(value).unwrap()),
        Err(Error::NoAttribute) => None,
        Err(error) => panic!("{error:?}"),
    }
}

fn content(fs: &FileSystem, inode: u64) -> Vec<u8> {
    let mut bytes = vec![0; fs.getattr(&caller(9), inode).unwrap().size as usize];
    assert_eq!(fs.read(&caller(9), inode, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn store(fs: &FileSystem, inode: u64, token: u64, bytes: &[u8]) -> bool {
    fs.digests().store_digest(&caller(3), inode, token, DigestKind::Sha256, digest(bytes)).unwrap()
}

fn digested(fs: &FileSystem, inode: u64, bytes: &[u8]) {
    let token = fs.digests().begin_digest(&caller(3), inode).unwrap();
    assert!(store(fs, inode, token, bytes));
}

/// P-144: moving, renaming, attributes and times leave it, each change of content takes it away.
#[test]
fn a_digest_stays_while_the_content_does() {
    let (rig, fs) = Rig::new(3, 64 << 20);
    let bytes = Random(1).noise(700_000);
    let inode = make(&fs, ROOT, "f", &bytes);
    assert_eq!(told(&fs, inode, "sha256"), None);
    digested(&fs, inode, &bytes);
    let token = fs.digests().begin_digest(&caller(3), inode).unwrap();
    assert!(fs.digests().store_digest(&caller(3), inode, token, DigestKind::Blake3, [7; 32]).unwrap());
    let is_there = |fs: &FileSystem| {
        assert_eq!(told(fs, inode, "sha256"), Some(hex(digest(&bytes))));
        assert_eq!(told(fs, inode, "blake3"), Some(hex([7; 32])));
    };
    is_there(&fs);
    let d = mkdir(&fs, ROOT, "d");
    fs.rename(&caller(4), ROOT, b"f", d, b"g", 0).unwrap();
    fs.setxattr(&caller(4), inode, b"user.color", b"red", SetMode::Any, false).unwrap();
    set(&fs, inode, "copies", "3");
    reconcile(&fs);
    set(&fs, inode, "compress", "zstd");
    reconcile(&fs);
    is_there(&fs);
    // A twin of it shares its blobs from now on.
    let twin = make(&fs, d, "twin", &bytes);
    set(&fs, twin, "copies", "3");
    set(&fs, twin, "compress", "zstd");
    set(&fs, d, "dedup", "yes");
    reconcile(&fs);
    is_there(&fs);
    let fs = rig.reopen(fs, true);
    is_there(&fs);
    // Never listed, and settable by nobody.
    assert!(fs.listxattr(&caller(4), inode).unwrap().iter().all(|name| !name.ends_with(b"sha256")));
    let refused = fs.setxattr(&caller(4), inode, b"user.stere.sha256", b"00", SetMode::Any, false);
    assert!(matches!(refused, Err(error) if error.errno() == libc::EOPNOTSUPP));
    // A copy by reference has its own, that is none.
    let copy = make(&fs, ROOT, "copy", b"");
    assert_eq!(fs.copy_range(&caller(4), inode, 0, copy, 0, 700_000).unwrap(), 700_000);
    assert_eq!(told(&fs, copy, "sha256"), None);
    is_there(&fs);
    // The same byte once more is a change too, as long as it is in memory and afterwards.
    fs.write(&caller(5), inode, 9, &bytes[9..10], false).unwrap();
    assert_eq!((told(&fs, inode, "sha256"), told(&fs, inode, "blake3")), (None, None));
    fs.syncfs(&caller(5)).unwrap();
    assert_eq!(told(&fs, inode, "sha256"), None);
    assert_clean(&fs);
    // With the last name the digest goes.
    digested(&fs, inode, &bytes);
    fs.unlink(&caller(5), d, b"g").unwrap();
    while fs.step(&caller(5), 100).unwrap() {}
    fs.syncfs(&caller(6)).unwrap();
    assert_clean(&fs);
}

/// P-144: random changes, crashes, and digests begun before them.
#[test]
fn what_is_told_is_what_is_read_whatever_happens() {
    for seed in 0..12 {
        let random = &mut Random(seed);
        let (rig, mut fs) = Rig::new(2, 64 << 20);
        let mut files: Vec<(u64, Vec<u8>)> =
            (0..3).map(|at| (make(&fs, ROOT, &format!("f{at}"), b""), Vec::new())).collect();
        fs.syncfs(&caller(2)).unwrap();
        let mut begun: Option<(usize, u64, Vec<u8>, bool)> = None;
        let (mut stored, mut refused) = (0, 0);
        for step in 0..150 {
            let at = random.next(3) as usize;
            match random.next(8) {
                0..3 => {
                    let kind = random.next(8);
                    let length = [1 + random.next(200), 4096, 1 + random.next(60_000)][random.next(3) as usize];
                    let edited = Edit { kind, offset: random.next(300_000), length };
                    edit(&fs, &mut files, at, edited, random, |length| vec![step as u8; length]);
                    // A hole where nothing is, or a copy of nothing, changes nothing.
                    let touched = if kind == 7 { (at + 1) % 3 } else { at };
                    if let Some((_, _, _, is_touched)) = begun.as_mut().filter(|(begun, ..)| *begun == touched) {
                        *is_touched = true;
                    }
                }
                3 => {
                    begun = Some((
                        at,
                        fs.digests().begin_digest(&caller(3), files[at].0).unwrap(),
                        files[at].1.clone(),
                        false,
                    ))
                }
                4 => {
                    if let Some((at, token, bytes, is_touched)) = begun.take() {
                        let is_stored = store(&fs, files[at].0, token, &bytes);
                        assert!(is_stored || is_touched, "seed {seed} step {step}: nobody changed it");
                        assert!(!is_stored || bytes == files[at].1, "seed {seed} step {step}: it was changed");
                        (stored, refused) = (stored + u32::from(is_stored), refused + u32::from(!is_stored));
                    }
                }
                5 => fs.syncfs(&caller(4)).unwrap(),
                6 => while fs.step(&caller(4), 100).unwrap() {},
                _ => {
                    let power_loss = random.next(2) == 0;
                    fs = rig.reopen(fs, power_loss);
                    files.iter_mut().for_each(|(inode, bytes)| *bytes = content(&fs, *inode));
                    if let Some((at, token, bytes, _)) = begun.take() {
                        assert!(!store(&fs, files[at].0, token, &bytes), "tokens do not survive");
                    }
                }
            }
            for (inode, bytes) in &files {
                if let Some(told) = told(&fs, *inode, "sha256") {
                    assert_eq!(told, hex(digest(bytes)), "seed {seed} step {step} inode {inode}");
                }
            }
        }
        assert!(stored > 0 || refused > 0, "seed {seed} tries");
        files.iter().for_each(|(inode, bytes)| check(&fs, *inode, bytes));
        fs.syncfs(&caller(4)).unwrap();
        assert_clean(&fs);
    }
}

/// P-144: nothing on media tells what is encrypted.
#[test]
fn what_is_encrypted_has_no_digest_and_loses_what_it_had() {
    let (_rig, fs) = Rig::new(2, 96 << 20);
    let secret = Secret::KeyFile(Zeroizing::new(vec![1; 32]));
    let wrapping = WrappingSeed { salt: [1; 16], nonce: [2; 24] };
    let seed = KeySeed { key: Zeroizing::new([3; 32]), wrapping };
    let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
    fs.encryption().create_key(&caller(2), "k", &secret, cost, &seed).unwrap();
    let bytes = Random(5).noise(300_000);
    let inode = make(&fs, ROOT, "f", &bytes);
    digested(&fs, inode, &bytes);
    let token = fs.digests().begin_digest(&caller(3), inode).unwrap();
    set(&fs, inode, "encrypt", "yes");
    assert!(fs.digests().store_digest(&caller(3), inode, token, DigestKind::Sha256, digest(&bytes)).is_err());
    assert!(
        matches!(fs.digests().begin_digest(&caller(3), inode), Err(Error::Invalid(text)) if text.contains("encrypted"))
    );
    reconcile(&fs);
    assert_eq!(told(&fs, inode, "sha256"), None, "it went with the content in the clear");
    // What is still encrypted in part has none either, whatever its policy says.
    set(&fs, inode, "encrypt", "no");
    assert!(fs.digests().begin_digest(&caller(3), inode).is_err());
    reconcile(&fs);
    digested(&fs, inode, &bytes);
    fs.encryption().lock_key(&caller(3), "k").unwrap();
    assert_eq!(told(&fs, inode, "sha256"), Some(hex(digest(&bytes))));
    assert_clean(&fs);
}
