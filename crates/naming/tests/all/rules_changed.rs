//! Rules that ask for size, owner and mode hold from when a file is closed or they are changed (P-52).

use crate::support;

use stere_naming::{FileSystem, ROOT, SetAttributes, SetMode};
use support::edits::fact;
use support::files::{assert_clean, create, make, mkdir};
use support::{Rig, caller, reconcile};

/// What the background does, as far as files that changed are concerned; which paths it found to be looked at.
fn step(fs: &FileSystem) -> Vec<String> {
    while fs.step(&caller(9), 100).unwrap() {}
    let pending = fs.reconciler().reconcile_status(stere_naming::Io::BLOCKING).unwrap().pending;
    reconcile(fs);
    pending.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
}

#[test]
fn rules_are_asked_again_when_a_file_is_closed_or_changed() {
    let (_rig, fs) = Rig::new(4, 96 << 20);
    let place = mkdir(&fs, ROOT, "place");
    let rules = b"*.dat size>100K: copies=3; mode&100: compress=lz4; owner=7: copies=1";
    fs.setxattr(&caller(3), place, b"user.stere.rules", rules, SetMode::Any, false).unwrap();
    let small = make(&fs, place, "small.dat", &[1; 5000]);
    let other = make(&fs, place, "other.txt", &vec![2; 300_000]);
    let plain = make(&fs, ROOT, "plain.dat", &vec![3; 300_000]);
    step(&fs);
    let copies = |inode| fact(&fs, inode, "effective.copies");
    assert_eq!((copies(small), copies(other), copies(plain)), ("2".into(), "2".into(), "2".into()));
    // Written and closed: nothing before, exactly this file after.
    let (large, handle) = create(&fs, place, "large.dat");
    fs.write(&caller(4), large, 0, &vec![4; 200_000], false).unwrap();
    fs.release(&caller(4), large, handle).unwrap();
    assert_eq!(step(&fs), ["/place/large.dat"]);
    assert_eq!(
        (copies(large), fact(&fs, large, "survives"), fact(&fs, large, "state")),
        ("3".into(), "2".into(), "compliant".into())
    );
    // Cut, given to somebody, made executable: once each.
    let set = |inode, set: SetAttributes| {
        fs.setattr(&caller(5), inode, &set).unwrap();
    };
    set(large, SetAttributes { size: Some(50), ..SetAttributes::default() });
    assert_eq!((step(&fs), copies(large)), (vec!["/place/large.dat".to_owned()], "2".into()));
    set(small, SetAttributes { uid: Some(7), ..SetAttributes::default() });
    assert_eq!((step(&fs), copies(small)), (vec!["/place/small.dat".to_owned()], "1".into()));
    set(other, SetAttributes { mode: Some(0o755), ..SetAttributes::default() });
    assert_eq!(
        (step(&fs), fact(&fs, other, "effective.compress")),
        (vec!["/place/other.txt".to_owned()], "lz4".into())
    );
    // What changes nothing for the rules is noted by nobody.
    set(other, SetAttributes { mode: Some(0o700), ..SetAttributes::default() });
    set(plain, SetAttributes { mode: Some(0o755), uid: Some(7), ..SetAttributes::default() });
    assert_eq!(step(&fs), [""; 0]);
    assert_clean(&fs);
}
