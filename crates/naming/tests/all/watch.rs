//! Provenance and audit without a mount (P-92, P-93): what is noted of whom, across mounts, bounded, and nothing where nobody asked.

use crate::support;

use std::sync::Arc;

use stere_format::AuditEvent;
use stere_naming::{Caller, Error, FileSystem, Io, OpenFlags, Options, ROOT, SetMode};
use stere_policy::{Process, Processes};
use support::{Rig, caller};

const READ: OpenFlags = OpenFlags { write: false, truncate: false, exclusive: false, read: true };
const WRITE: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };

/// Threads belong to the process of their hundreds.
#[derive(Debug)]
struct Made;

impl Processes for Made {
    fn process(&self, thread: u32) -> Option<Process> {
        let number = thread / 100 * 100;
        let command = format!("tool\0-{number}\0").into_bytes();
        Some(Process { number, started: 9, executable: b"/bin/tool".to_vec(), command })
    }
}

fn rig() -> (Rig, FileSystem) {
    let (mut rig, fs) = Rig::new(1, 64 << 20);
    rig.options = Options { processes: Some(Arc::new(Made)), ..Options::default() };
    let fs = rig.reopen(fs, false);
    (rig, fs)
}

fn by(process: u32, seconds: i64) -> Caller<'static> {
    Caller { process, ..caller(seconds) }
}

fn say(fs: &FileSystem, inode: u64, key: &str, value: &str) {
    fs.setxattr(&caller(2), inode, format!("user.stere.{key}").as_bytes(), value.as_bytes(), SetMode::Any, false)
        .unwrap();
}

/// A process reads these files and makes one.
fn make(fs: &FileSystem, process: u32, inputs: &[u64], name: &[u8]) -> u64 {
    for input in inputs {
        let handle = fs.open(&by(process, 5), *input, READ).unwrap();
        fs.release(&by(0, 5), *input, handle).unwrap();
    }
    let (made, handle) = fs.create(&by(process + 1, 6), ROOT, name, 0o644, WRITE).unwrap();
    for offset in 0..3 {
        // By another thread of the process.
        fs.write(&by(process + 2, 6), made.inode, offset, b"x", false).unwrap();
    }
    fs.release(&by(0, 7), made.inode, handle).unwrap();
    made.inode
}

fn inputs(fs: &FileSystem, inode: u64) -> Vec<Vec<u64>> {
    fs.audit().written(Io::BLOCKING, inode).unwrap().into_iter().map(|(_, record)| record.inputs).collect()
}

fn events(fs: &FileSystem) -> Vec<(AuditEvent, u8, String, String)> {
    let (records, next) = fs.audit().audited(Io::BLOCKING, 0, 1000).unwrap();
    assert_eq!(next, None);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    records.iter().map(|(_, one)| (one.event, one.refused, text(&one.path), text(&one.new_path))).collect()
}

/// P-92.
#[test]
fn who_wrote_a_file_and_from_what_is_known_after_the_next_mount() {
    let (rig, fs) = rig();
    make(&fs, 100, &[], b"before");
    say(&fs, ROOT, "provenance", "yes");
    let source = make(&fs, 200, &[], b"source");
    let object = make(&fs, 300, &[source], b"object");
    let program = make(&fs, 400, &[object, source], b"program");
    assert_eq!(inputs(&fs, program), [[object, source]]);
    fs.syncfs(&caller(8)).unwrap();
    let fs = rig.crash(fs, |_| false);
    assert_eq!((inputs(&fs, source), inputs(&fs, object)), (vec![vec![]], vec![vec![source]]));
    let written = fs.audit().written(Io::BLOCKING, program).unwrap();
    let (_, record) = &written[0];
    assert_eq!((record.by.process, record.by.uid, record.time.seconds), (400, 0, 6));
    assert_eq!((&record.by.executable[..], &record.command[..]), (&b"/bin/tool"[..], &b"tool\0-400\0"[..]));
    assert_eq!(record.path, b"/program");
    let made: Vec<u64> = fs.audit().made_from(Io::BLOCKING, source).unwrap().iter().map(|(_, one)| one.inode).collect();
    assert_eq!(made, [object, program]);
    // Numbers go on.
    let again = make(&fs, 500, &[program], b"again");
    assert_eq!(fs.audit().written(Io::BLOCKING, again).unwrap()[0].0, written[0].0 + 1);
    stere_naming::check(fs.store()).unwrap();
}

/// P-92.
#[test]
fn what_is_read_after_the_first_write_counts_and_a_file_is_not_its_own_input() {
    let (_rig, fs) = rig();
    say(&fs, ROOT, "provenance", "yes");
    let (one, two) = (make(&fs, 100, &[], b"one"), make(&fs, 200, &[], b"two"));
    let both = OpenFlags { read: true, ..WRITE };
    let (out, handle) = fs.create(&by(300, 5), ROOT, b"out", 0o644, both).unwrap();
    for input in [one, two] {
        let opened = fs.open(&by(301, 5), input, READ).unwrap();
        fs.write(&by(301, 5), out.inode, 0, b"x", false).unwrap();
        fs.release(&by(0, 5), input, opened).unwrap();
    }
    let own = fs.open(&by(301, 5), out.inode, READ).unwrap();
    fs.release(&by(0, 6), out.inode, own).unwrap();
    fs.release(&by(0, 6), out.inode, handle).unwrap();
    assert_eq!(inputs(&fs, out.inode), [[one, two]]);
    // Another process did not read them; it comes with a record of its own, and cutting by a path is writing.
    let size = stere_naming::SetAttributes { size: Some(0), ..Default::default() };
    fs.setattr(&by(900, 7), out.inode, &size).unwrap();
    assert_eq!(inputs(&fs, out.inode), [vec![one, two], vec![]]);
}

/// P-92: nothing is noted where nobody asked, nor where a nearer policy says no; rules and classes can ask.
#[test]
fn only_what_is_chosen_is_noted() {
    let (_rig, fs) = rig();
    let quiet = make(&fs, 100, &[], b"quiet");
    assert!(fs.audit().written(Io::BLOCKING, quiet).unwrap().is_empty());
    fs.policy().create_class(&caller(2), "watched", &[("provenance".into(), "yes".into())]).unwrap();
    say(&fs, ROOT, "rules", "*.out: provenance=yes; *.log: class=watched");
    let (out, log, other) = (make(&fs, 200, &[], b"a.out"), make(&fs, 300, &[], b"a.log"), make(&fs, 400, &[], b"a"));
    for (inode, count) in [(out, 1), (log, 1), (other, 0)] {
        assert_eq!(fs.audit().written(Io::BLOCKING, inode).unwrap().len(), count);
    }
    assert_eq!(fs.getxattr(&caller(3), out, b"user.stere.effective.provenance").unwrap(), b"yes");
    let source = fs.getxattr(&caller(3), log, b"user.stere.source.provenance").unwrap();
    assert!(String::from_utf8(source).unwrap().starts_with("rule of /"));
    say(&fs, out, "provenance", "no");
    assert!(matches!(
        fs.setxattr(&caller(3), out, b"user.stere.audit", b"maybe", SetMode::Any, false),
        Err(Error::Policy(_))
    ));
    assert!(fs.audit().audited(Io::BLOCKING, 0, 10).unwrap().0.is_empty());
}

/// P-92, P-93: what is noted of new files follows rules and classes as they change, with the path, also where the directory
/// says nothing of it, or says other things.
#[test]
fn a_new_file_is_noted_by_rules_alone() {
    let (_rig, fs) = rig();
    fs.policy().create_class(&caller(2), "later", &[("compress".into(), "lz4".into())]).unwrap();
    say(&fs, ROOT, "rules", "*.later: class=later");
    say(&fs, ROOT, "dedup", "yes");
    let before = make(&fs, 100, &[], b"a.later");
    assert!(fs.audit().written(Io::BLOCKING, before).unwrap().is_empty());
    fs.policy().change_class(&caller(2), "later", &[("audit".into(), "yes".into())]).unwrap();
    make(&fs, 200, &[], b"b.later");
    let made: Vec<_> = events(&fs).into_iter().map(|(event, _, path, _)| (event, path)).collect();
    assert_eq!(made, [AuditEvent::Create, AuditEvent::Write].map(|event| (event, "/b.later".to_owned())));
    say(&fs, ROOT, "rules", "*.out: provenance=yes");
    let out = make(&fs, 300, &[], b"a.out");
    assert_eq!(fs.audit().written(Io::BLOCKING, out).unwrap()[0].1.path, b"/a.out");
}

/// P-93.
#[test]
fn what_happens_to_audited_files_is_in_order_with_what_was_refused() {
    let (rig, fs) = rig();
    say(&fs, ROOT, "audit", "yes");
    let first = make(&fs, 100, &[], b"first");
    fs.rename(&by(200, 8), ROOT, b"first", ROOT, b"second", 0).unwrap();
    make(&fs, 300, &[], b"third");
    fs.rename(&by(200, 9), ROOT, b"third", ROOT, b"second", 0).unwrap();
    say(&fs, ROOT, "retain", "30d");
    let kept = fs.lookup(&caller(10), ROOT, b"second").unwrap().inode;
    say(&fs, kept, "retain", "2100-01-01");
    assert!(matches!(fs.unlink(&by(400, 11), ROOT, b"second"), Err(Error::Retained(_))));
    assert!(fs.open(&by(400, 11), kept, WRITE).is_err());
    fs.syncfs(&caller(12)).unwrap();
    let fs = rig.crash(fs, |_| false);
    use AuditEvent::*;
    let told: Vec<_> = events(&fs);
    let told: Vec<_> =
        told.iter().map(|(event, errno, path, to)| (*event, *errno, path.as_str(), to.as_str())).collect();
    let refused = libc::EPERM as u8;
    let expected = [
        (Create, 0, "/first", ""),
        (Write, 0, "/first", ""),
        (Rename, 0, "/first", "/second"),
        (Create, 0, "/third", ""),
        (Write, 0, "/third", ""),
        (Delete, 0, "/second", ""),
        (Rename, 0, "/third", "/second"),
        (Delete, refused, "/second", ""),
        (OpenToWrite, refused, "/second", ""),
    ];
    assert_eq!(told, expected);
    let (records, _) = fs.audit().audited(Io::BLOCKING, 0, 2).unwrap();
    assert_eq!((records[0].1.inode, records[0].1.by.process), (first, 100));
}

/// P-93: the lists are bounded, and what goes takes its entries in the indexes along.
#[test]
fn lists_are_rings() {
    let (_rig, fs) = rig();
    say(&fs, ROOT, "audit", "yes");
    say(&fs, ROOT, "provenance", "yes");
    let source = make(&fs, 100, &[], b"source");
    let out = make(&fs, 200, &[source], b"out");
    let size = stere_naming::SetAttributes { size: Some(0), ..Default::default() };
    for round in 0..stere_naming::PROVENANCE_MAX {
        fs.setattr(&by(900, round as i64), source, &size).unwrap();
    }
    assert!(fs.audit().written(Io::BLOCKING, out).unwrap().is_empty());
    assert!(fs.audit().made_from(Io::BLOCKING, source).unwrap().is_empty());
    assert_eq!(fs.audit().written(Io::BLOCKING, source).unwrap().len() as u64, stere_naming::PROVENANCE_MAX);
    let (records, _) = fs.audit().audited(Io::BLOCKING, 0, usize::MAX).unwrap();
    assert_eq!(records.len() as u64, stere_naming::AUDIT_MAX);
}

/// P-93: one table over all calls that change the content of an open file: the audit sees each, done or refused.
#[test]
fn each_changing_call_is_seen() {
    let (_rig, fs) = rig();
    say(&fs, ROOT, "audit", "yes");
    let (source, handle) = fs.create(&by(100, 3), ROOT, b"source", 0o644, WRITE).unwrap();
    fs.write(&by(100, 3), source.inode, 0, &[7; 8192], false).unwrap();
    fs.release(&by(100, 3), source.inode, handle).unwrap();
    type Change = fn(&FileSystem, &Caller<'_>, u64, u64) -> Result<(), Error>;
    let changes: [(&str, Change); 4] = [
        ("write", |fs, who, _, inode| fs.write(who, inode, 0, b"x", false).map(drop)),
        ("allocate", |fs, who, _, inode| fs.fallocate(who, inode, 0, 1 << 16, 0)),
        ("copy", |fs, who, source, inode| fs.copy_range(who, source, 0, inode, 0, 4096).map(drop)),
        ("truncate", |fs, who, _, inode| {
            let cut = stere_naming::SetAttributes { size: Some(1), ..stere_naming::SetAttributes::default() };
            fs.setattr(who, inode, &cut).map(drop)
        }),
    ];
    let seen = |fs: &FileSystem, inode: u64, refused: bool| {
        let (records, _) = fs.audit().audited(Io::BLOCKING, 1, 10_000).unwrap();
        let is_meant = |record: &stere_format::AuditValue| {
            record.inode == inode && record.event == AuditEvent::Write && (record.refused != 0) == refused
        };
        records.iter().filter(|(_, record)| is_meant(record)).count()
    };
    for (number, (change, call)) in (1..).zip(changes) {
        let name = format!("file {number}");
        let (made, handle) = fs.create(&by(200, 4), ROOT, name.as_bytes(), 0o644, WRITE).unwrap();
        call(&fs, &by(200, 4), source.inode, made.inode).unwrap();
        assert_eq!(seen(&fs, made.inode, false), 1, "{change}");
        fs.setxattr(&caller(4), made.inode, b"user.stere.retain", b"1d", SetMode::Any, false).unwrap();
        assert_eq!(call(&fs, &by(300, 5), source.inode, made.inode).unwrap_err().errno(), libc::EPERM, "{change}");
        assert_eq!(seen(&fs, made.inode, true), 1, "{change} was refused");
        fs.release(&by(200, 6), made.inode, handle).unwrap();
    }
}
