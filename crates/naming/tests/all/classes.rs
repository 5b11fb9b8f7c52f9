//! Classes that the pool defines: what they mean, who is looked at when one changes, and that a crash forgets nothing (P-57).

use crate::support;

use stere_naming::{FileSystem, Io, ROOT, SetMode};
use support::edits::{fact, set};
use support::files::{make, mkdir};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;

fn try_set(fs: &FileSystem, inode: u64, key: &str, value: &str) -> Result<(), stere_naming::Error> {
    let name = format!("user.stere.{key}");
    fs.setxattr(&caller(3), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false)
}

fn effective(fs: &FileSystem, inode: u64) -> String {
    ["class", "copies", "compress"].map(|key| fact(fs, inode, &format!("effective.{key}"))).join(" ")
}

fn settings(words: &str) -> Vec<(String, String)> {
    let pairs = words.split_whitespace().map(|word| word.split_once('=').unwrap());
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn create(fs: &FileSystem, name: &str, words: &str) {
    fs.policy().create_class(&caller(3), name, &settings(words)).unwrap();
}

fn change(fs: &FileSystem, name: &str, words: &str) -> bool {
    fs.policy().change_class(&caller(4), name, &settings(words)).unwrap()
}

fn pending(fs: &FileSystem) -> Vec<String> {
    let mut paths = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().pending;
    paths.sort();
    paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
}

fn assert_clean(fs: &FileSystem) {
    fs.syncfs(&caller(9)).unwrap();
    let findings = stere_naming::check(fs.store()).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn a_class_is_used_by_attributes_and_rules_and_says_only_what_it_sets() {
    let (rig, fs) = Rig::new(4, DEVICE_BYTES);
    assert_eq!(try_set(&fs, ROOT, "class", "photos").unwrap_err().errno(), libc::EINVAL);
    create(&fs, "photos", "copies=3 compress=lz4");
    create(&fs, "squeezed", "compress=zstd");
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "class", "photos");
    let inner = mkdir(&fs, top, "inner");
    set(&fs, inner, "class", "squeezed");
    let ruled = mkdir(&fs, ROOT, "ruled");
    set(&fs, ruled, "rules", "*.jpg: class=photos; *.log: class=squeezed");
    let files = [
        (make(&fs, top, "a", b"a"), "photos 3 lz4"),
        (make(&fs, inner, "b", b"b"), "squeezed 2 zstd"),
        (make(&fs, ruled, "c.jpg", b"c"), "photos 3 lz4"),
        (make(&fs, ruled, "d.log", b"d"), "squeezed 2 zstd"),
        (make(&fs, ruled, "e", b"e"), "normal 2 none"),
    ];
    fs.syncfs(&caller(5)).unwrap();
    let fs = rig.reopen(fs, true);
    for (inode, expected) in files {
        assert_eq!(effective(&fs, inode), expected);
    }
    assert_eq!(fact(&fs, top, "class"), "photos");
    assert_eq!(fact(&fs, files[0].0, "source.compress"), "inherited from /top");
    assert_eq!(fact(&fs, files[2].0, "source.compress"), "rule of /ruled: *.jpg: class=photos");
    for (key, value) in [("class", "gold"), ("class", "#16"), ("rules", "*: class=gold"), ("rules", "*: class=#16")] {
        assert_eq!(try_set(&fs, top, key, value).unwrap_err().errno(), libc::EINVAL, "{key}={value}");
    }
    assert!(fs.policy().load_rules(&caller(3), "*: class=gold").unwrap_err().to_string().contains("gold"));
    reconcile(&fs);
    assert_clean(&fs);
}

#[test]
fn a_change_queues_exactly_whom_it_concerns() {
    let (_rig, fs) = Rig::new(4, DEVICE_BYTES);
    create(&fs, "photos", "copies=3");
    let [one, two, other] = ["one", "two", "other"].map(|name| mkdir(&fs, ROOT, name));
    let deep = mkdir(&fs, other, "deep");
    set(&fs, one, "class", "photos");
    set(&fs, two, "rules", "*.jpg: class=photos");
    set(&fs, other, "class", "precious");
    let single = make(&fs, deep, "single", &[1; 50_000]);
    set(&fs, single, "class", "photos");
    let (a, b, c) =
        (make(&fs, one, "a", &[2; 50_000]), make(&fs, two, "b.jpg", &[3; 50_000]), make(&fs, deep, "c", &[4; 50_000]));
    fs.syncfs(&caller(3)).unwrap();
    reconcile(&fs);
    let moved = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap();
    assert!(change(&fs, "photos", "copies=2 compress=zstd"));
    assert_eq!(pending(&fs), ["/one", "/other/deep/single", "/two"]);
    reconcile(&fs);
    for inode in [single, a, b] {
        assert_eq!(effective(&fs, inode), "photos 2 zstd");
        assert_eq!((fact(&fs, inode, "state"), fact(&fs, inode, "survives")), ("compliant".into(), "1".into()));
        assert!(fact(&fs, inode, "stored").parse::<u64>().unwrap() < 5000);
    }
    assert_eq!(effective(&fs, c), "precious 3 none");
    let after = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap();
    assert_eq!(after.files - moved.files, 3, "nobody else was looked at");
    assert!(!change(&fs, "photos", "copies=2"), "it is so already");
    assert_eq!(pending(&fs), Vec::<String>::new());
    // Who no longer has it is not concerned, nor who is gone.
    set(&fs, single, "class", "");
    set(&fs, one, "class", "scratch");
    fs.unlink(&caller(5), two, b"b.jpg").unwrap();
    fs.rmdir(&caller(5), ROOT, b"two").unwrap();
    reconcile(&fs);
    assert!(change(&fs, "photos", "redundancy=10"));
    assert_eq!(pending(&fs), Vec::<String>::new());
    let photos =
        fs.classes().list_classes(Io::BLOCKING).unwrap().into_iter().find(|class| class.name == "photos").unwrap();
    assert_eq!((photos.members, photos.rules), (0, 0));
    assert_eq!(photos.settings, [("redundancy", "10".to_owned()), ("compress", "zstd".to_owned())]);
    // Another directory in its place, and rules that go.
    let three = mkdir(&fs, ROOT, "three");
    set(&fs, three, "rules", "*: class=photos");
    let four = mkdir(&fs, ROOT, "four");
    fs.rename(&caller(5), ROOT, b"four", ROOT, b"three", 0).unwrap();
    set(&fs, four, "rules", "*: class=photos; *.c: copies=1");
    set(&fs, four, "rules", "*.c: copies=1");
    reconcile(&fs);
    assert!(change(&fs, "photos", "redundancy=9"));
    assert_eq!(pending(&fs), Vec::<String>::new());
    assert_clean(&fs);
}

#[test]
fn built_in_classes_and_those_of_the_pools_rules_concern_whom_they_concern() {
    let (rig, fs) = Rig::new(4, DEVICE_BYTES);
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "class", "scratch");
    let (file, plain) = (make(&fs, top, "f", &[1; 50_000]), make(&fs, ROOT, "plain", &[2; 50_000]));
    reconcile(&fs);
    assert!(change(&fs, "scratch", "copies=2"));
    assert_eq!(pending(&fs), ["/top"]);
    assert!(change(&fs, "normal", "parity=2+1"));
    assert_eq!(pending(&fs), ["/", "/top"], "what says nothing is normal");
    reconcile(&fs);
    assert_eq!((fact(&fs, file, "effective.copies"), fact(&fs, plain, "effective.parity")), ("2".into(), "2+1".into()));
    assert_eq!(fact(&fs, plain, "state"), "compliant");
    let fs = rig.reopen(fs, true);
    assert_eq!((fact(&fs, file, "effective.copies"), fact(&fs, plain, "effective.parity")), ("2".into(), "2+1".into()));
    // Without a value it is as it was built in.
    assert!(change(&fs, "scratch", "copies=") && change(&fs, "normal", "parity="));
    reconcile(&fs);
    assert_eq!((fact(&fs, file, "effective.copies"), fact(&fs, plain, "effective.copies")), ("1".into(), "2".into()));
    create(&fs, "letters", "copies=3");
    fs.policy().load_rules(&caller(4), "*.tex: class=letters").unwrap();
    let letter = make(&fs, ROOT, "a.tex", &[3; 50_000]);
    reconcile(&fs);
    assert!(change(&fs, "letters", "copies=4"));
    assert_eq!(pending(&fs), ["/"]);
    reconcile(&fs);
    assert_eq!(fact(&fs, letter, "survives"), "3");
    for bad in ["copies=0", "colour=red", "class=normal", "encrypt=secret", "compress=gzip"] {
        let error = fs.policy().change_class(&caller(4), "letters", &settings(bad)).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{bad}");
    }
    for name in ["", "a b", "#20", "letters", "normal"] {
        assert_eq!(
            fs.policy().create_class(&caller(4), name, &settings("copies=2")).unwrap_err().errno(),
            libc::EINVAL,
            "{name}"
        );
    }
    assert!(fs.policy().create_class(&caller(4), "empty", &[]).is_err());
    assert!(fs.policy().change_class(&caller(4), "gold", &settings("copies=2")).is_err());
    assert_clean(&fs);
}

#[test]
fn what_had_a_deleted_class_belongs_to_its_heir() {
    let (rig, fs) = Rig::new(4, DEVICE_BYTES);
    create(&fs, "photos", "copies=3");
    create(&fs, "films", "parity=2+1");
    let top = mkdir(&fs, ROOT, "top");
    set(&fs, top, "class", "photos");
    let ruled = mkdir(&fs, ROOT, "ruled");
    set(&fs, ruled, "rules", "*: class=photos");
    let (file, by_rule) = (make(&fs, top, "f", &[1; 200_000]), make(&fs, ruled, "g", &[2; 200_000]));
    reconcile(&fs);
    for (name, into) in [("normal", "films"), ("photos", "photos"), ("photos", "gold"), ("gold", "films")] {
        assert_eq!(
            fs.policy().delete_class(&caller(4), name, into).unwrap_err().errno(),
            libc::EINVAL,
            "{name} {into}"
        );
    }
    fs.policy().delete_class(&caller(4), "photos", "films").unwrap();
    assert_eq!(pending(&fs), ["/ruled", "/top"]);
    fs.syncfs(&caller(4)).unwrap();
    let fs = rig.reopen(fs, true);
    reconcile(&fs);
    for inode in [file, by_rule] {
        assert_eq!(
            (fact(&fs, inode, "effective.class"), fact(&fs, inode, "effective.parity")),
            ("films".into(), "2+1".into())
        );
        assert_eq!(fact(&fs, inode, "state"), "compliant");
    }
    assert_eq!(fact(&fs, top, "class"), "films");
    assert!(try_set(&fs, file, "class", "photos").is_err());
    // Its name is not used again, so that rules which name it keep their meaning.
    assert!(fs.policy().create_class(&caller(5), "photos", &settings("copies=1")).is_err());
    assert!(change(&fs, "films", "copies=4"));
    assert_eq!(pending(&fs), ["/ruled", "/top"]);
    reconcile(&fs);
    assert_eq!((fact(&fs, file, "survives"), fact(&fs, by_rule, "survives")), ("3".into(), "3".into()));
    assert_clean(&fs);
}

#[test]
fn a_crash_at_any_point_leaves_the_old_class_or_the_new_one_and_the_work() {
    for seed in 0..40u64 {
        let (rig, fs) = Rig::new(4, DEVICE_BYTES);
        create(&fs, "photos", "copies=2");
        let top = mkdir(&fs, ROOT, "top");
        set(&fs, top, "class", "photos");
        let file = make(&fs, top, "f", &[seed as u8; 300_000]);
        fs.syncfs(&caller(3)).unwrap();
        reconcile(&fs);
        change(&fs, "photos", "copies=3");
        for _ in 0..seed % 4 {
            fs.reconciler().reconcile_step(&caller(7), 1 + seed * 10_000).unwrap();
        }
        let is_durable = seed % 3 == 0;
        if is_durable {
            fs.store().commit(Io::BLOCKING).unwrap();
        }
        let pattern = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let fs = rig.crash(fs, |write| (pattern >> (write % 61)) & 1 == 1);
        let copies = fact(&fs, file, "effective.copies");
        assert!(copies == "3" || (copies == "2" && !is_durable), "seed {seed}: {copies}");
        // Nobody asks for it again.
        reconcile(&fs);
        assert_eq!(fact(&fs, file, "state"), "compliant", "seed {seed}");
        assert_eq!(fact(&fs, file, "survives"), if copies == "3" { "2" } else { "1" }, "seed {seed}");
        let mut bytes = vec![0; 300_000];
        fs.read(&caller(8), file, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == seed as u8));
        assert_clean(&fs);
    }
}

#[test]
fn many_members_are_one_walk() {
    let (_rig, fs) = Rig::new(3, DEVICE_BYTES);
    create(&fs, "photos", "copies=3");
    for number in 0..1100 {
        let file = make(&fs, ROOT, &format!("f{number}"), b"");
        set(&fs, file, "class", "photos");
    }
    reconcile(&fs);
    assert!(change(&fs, "photos", "copies=2"));
    assert_eq!(pending(&fs), ["/"]);
    assert_clean(&fs);
}
