//! The thread that brings destinations of backups up to date: when it is time, when somebody asks, and when one is back that was away.
//!
//! It reads through the file system like a process of root, but unnoticed, and waits for nobody. Only it writes destinations.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use stere_backup::{Destination, ExtendedAttributes, Facts, Kind, Newcomer, Run, Staged, Stamp};
use stere_jobs::{Budget, Job, MachineJob, Progress, Ran};
use stere_naming::{Attributes, BackupValue, FileSystem, Found, Io, ROOT};
use stere_policy::show_moment;

use crate::daemon::Daemon;
use crate::options::Options;
use crate::worker::{self, Served, Worker};
use stere_control::backup::Outcome;
use stere_machine::clock;
use stere_machine::error::{Error, Result};

/// How long a destination that is away, or in use, is left alone.
const AWAY: Duration = Duration::from_secs(5);

/// The same for one that failed in another way, as when it is full.
const FAILED: Duration = Duration::from_secs(60);

/// How often a file that is changed while it is read is read again.
const TRIES: usize = 3;

/// What changed so short before everything was made durable may change once more at the same moment of the clock, or be less after a crash.
const YOUNG_SECONDS: i64 = 2;

/// Files that are named in a report.
const NAMED_MAX: usize = 1000;

/// What the names of attributes begin with that say policy.
const OWN_ATTRIBUTES: &[u8] = b"user.stere.";

/// Starts the thread.
pub fn start(daemon: Arc<Daemon>, served: Served, options: &Options) -> Result<JoinHandle<()>> {
    let settings = worker::settings(options);
    worker::start("backup", daemon, move |daemon| {
        let mut worker = Worker::new(daemon.clone(), stere_jobs::Worker::Backups, settings, served);
        let rest = |rest| {
            let told = daemon.backups.lock();
            drop(daemon.backups.wake.wait_timeout(told, rest));
        };
        while let Some(job) = worker.next(rest) {
            let outcome = step(&mut worker, job);
            worker.ended(job.0, &outcome);
        }
    })
}

fn step(worker: &mut Worker, job: (Job, Budget)) -> Result<Progress> {
    match worker.run(job, Duration::ZERO)? {
        Ran::Done(progress, _) => Ok(progress),
        Ran::OfMachine(MachineJob::BackUp) => look(&worker.daemon).map(|()| Progress::NOTHING),
        Ran::OfMachine(job @ (MachineJob::LookAfterDevices | MachineJob::Scrub)) => {
            unreachable!("the thread that repairs does {job:?}")
        }
    }
}

/// Brings each destination up to date for which it is time.
fn look(daemon: &Daemon) -> Result<()> {
    let backups = daemon.filesystem.backups().list(Io::BLOCKING)?;
    for (number, value) in backups {
        let begun = clock::now().seconds;
        if daemon.stop.load(Ordering::Acquire) || !daemon.backups.take(&value, begun) {
            continue;
        }
        let mut outcome = Outcome::default();
        let again = match bring_up_to_date(daemon, &value, &mut outcome) {
            Ok(()) => {
                note_done(daemon, number, &value, begun);
                None
            }
            Err(error) => {
                tracing::warn!(destination = value.name, %error, "a backup did not happen");
                outcome.problem = Some(error.to_string());
                use stere_backup::Error::{Away, Busy};
                Some(if matches!(error, Error::Backup(Away(_) | Busy(_))) { AWAY } else { FAILED })
            }
        };
        daemon.backups.ended(&value.name, outcome, again);
    }
    Ok(())
}

/// Notes when the run began, unless the destination was removed or replaced meanwhile.
fn note_done(daemon: &Daemon, number: u64, value: &BackupValue, begun: i64) {
    let is_there = |all: Vec<(u64, BackupValue)>| all.contains(&(number, value.clone()));
    let noted = daemon.filesystem.backups().list(Io::BLOCKING).and_then(|all| match is_there(all) {
        true => {
            let value = BackupValue { done_seconds: begun, ..value.clone() };
            daemon.filesystem.backups().put_backup(&clock::own_caller(Io::BLOCKING), Some(number), &value)
        }
        false => Ok(()),
    });
    if let Err(error) = noted {
        tracing::warn!(%error, "when a backup was complete cannot be noted; it is made again");
    }
}

/// A file that has to be copied.
struct Wanted {
    path: Vec<u8>,
    inode: u64,
    kind: Kind,
    size: u64,
}

fn bring_up_to_date(daemon: &Daemon, value: &BackupValue, outcome: &mut Outcome) -> Result<()> {
    let root = Path::new(std::ffi::OsStr::from_bytes(&value.path));
    let destination = Destination::open(root, Some(&value.id))?;
    let moment = show_moment(clock::now().seconds).replace(' ', "_").replace(':', "-");
    let mut run = Run::begin(destination, &moment, usize::from(value.keep))?;
    // A crash leaves nothing else of what was changed before this moment, so its time of change tells what it holds.
    let durable_at = clock::now().seconds;
    daemon.filesystem.syncfs(&clock::own_caller(Io::BLOCKING))?;
    let wanted = meet_all(daemon, value, &mut run, outcome)?;
    let newcomers = wanted.iter().filter(|one| one.kind == Kind::File);
    run.keep_at_hand(newcomers.map(|Wanted { path, inode, size, .. }| Newcomer { path, inode: *inode, size: *size }))?;
    run.take_away()?;
    outcome.taken_files = run.taken;
    for one in wanted {
        if daemon.stop.load(Ordering::Acquire) {
            return Err(stere_backup::Error::Stopped.into());
        }
        match copy(daemon, &mut run, &one, durable_at) {
            Ok(None) => {}
            Ok(Some(why)) => failed(outcome, &one.path, why),
            Err(Error::Backup(error)) if !error.is_of_destination() => failed(outcome, &one.path, error.to_string()),
            Err(Error::Naming(error)) => failed(outcome, &one.path, error.to_string()),
            Err(error) => return Err(error),
        }
        (outcome.copied_files, outcome.copied_bytes, outcome.renamed_files) = (run.files, run.bytes, run.renamed);
        daemon.backups.progress(&value.name, outcome);
    }
    run.place()?;
    for (path, error) in std::mem::take(&mut run.failed) {
        failed(outcome, &path, error.to_string());
    }
    run.finish()?;
    Ok(())
}

fn failed(outcome: &mut Outcome, path: &[u8], why: impl Into<String>) {
    outcome.failed_files += 1;
    if outcome.failed.len() < NAMED_MAX {
        outcome.failed.push((format!("/{}", String::from_utf8_lossy(path)), why.into()));
    }
}

/// All chosen files: tells the run of each, and gives those that have to be looked at.
fn meet_all(daemon: &Daemon, value: &BackupValue, run: &mut Run, outcome: &mut Outcome) -> Result<Vec<Wanted>> {
    let filesystem = &daemon.filesystem;
    let caller = clock::own_caller(Io::BLOCKING);
    let only = if value.only.is_empty() { String::new() } else { format!(" and ({})", value.only) };
    let text = format!("(type=file or type=symlink or type=directory) and backup=yes{only}");
    let wrong =
        |error| Error::Refused(format!("what is to be copied is not understood: {error}; remove and add it anew"));
    let search = filesystem.search().parse_search(&text).map_err(wrong)?;
    let mut find = filesystem.search().find(&caller, ROOT, b"", search)?;
    let mut wanted = Vec::new();
    while let Some(found) = find.step(&caller)? {
        if daemon.stop.load(Ordering::Acquire) {
            return Err(stere_backup::Error::Stopped.into());
        }
        for Found { path, attributes, .. } in found {
            // The top has no name that it could come back under.
            if path.is_empty() {
                continue;
            }
            match filesystem.backups().is_encrypted(&caller, attributes.inode) {
                Ok(true) => {
                    failed(outcome, &path, "it is encrypted, and would lie there in the clear");
                    continue;
                }
                Ok(false) => {}
                // It was removed just now, or cannot be read: what is there of it stays until that is known.
                Err(error) => {
                    run.meet(&path, &facts(&attributes));
                    failed(outcome, &path, error.to_string());
                    continue;
                }
            }
            let facts = facts(&attributes);
            outcome.files += u64::from(facts.kind() != Kind::Directory);
            if run.meet(&path, &facts) {
                let (inode, size) = (attributes.inode, attributes.size);
                wanted.push(Wanted { path, inode, kind: facts.kind(), size });
            }
        }
    }
    Ok(wanted)
}

fn facts(file: &Attributes) -> Facts {
    let stamp = Stamp { inode: file.inode, changed: (file.ctime.seconds, file.ctime.nanoseconds) };
    let modified = (file.mtime.seconds, file.mtime.nanoseconds);
    Facts { mode: file.mode, uid: file.uid, gid: file.gid, modified, stamp }
}

/// What somebody noted at a file. What stere is told by attributes is policy, which belongs to the pool and not to the copy.
fn attributes_of(filesystem: &FileSystem, inode: u64) -> Result<ExtendedAttributes> {
    let caller = clock::own_caller(Io::BLOCKING);
    let mut found = Vec::new();
    for name in filesystem.listxattr(&caller, inode)? {
        if !name.starts_with(OWN_ATTRIBUTES) {
            let value = filesystem.getxattr(&caller, inode, &name)?;
            found.push((name, value));
        }
    }
    Ok(found)
}

/// Copies a file as it was at one moment; tells why if that cannot be.
fn copy(daemon: &Daemon, run: &mut Run, one: &Wanted, durable_at: i64) -> Result<Option<String>> {
    let (filesystem, caller) = (&daemon.filesystem, || clock::own_caller(Io::BLOCKING));
    if one.kind == Kind::File && filesystem.tiers().tier_file(&caller(), one.inode)?.residency() != "online" {
        return Ok(Some("it is on media only; `stere tier stage` brings it back".into()));
    }
    for _ in 0..TRIES {
        let before = filesystem.getattr(&caller(), one.inode)?;
        if before.nlink == 0 {
            return Ok(Some("it was removed meanwhile".into()));
        }
        if facts(&before).kind() != one.kind {
            return Ok(Some("it was replaced meanwhile".into()));
        }
        let attributes = attributes_of(filesystem, one.inode)?;
        let staged = stage(daemon, run, one)?;
        let after = filesystem.getattr(&caller(), one.inode)?;
        if facts(&after) != facts(&before) || after.size != before.size {
            staged.iter().for_each(|staged| run.discard(staged));
            continue;
        }
        let mut facts = facts(&after);
        if durable_at - after.ctime.seconds < YOUNG_SECONDS {
            facts.stamp = Stamp::default();
        }
        match staged {
            Some(staged) => run.accept(&one.path, &facts, attributes, staged)?,
            None => run.accept_directory(&one.path, &facts, attributes)?,
        }
        return Ok(None);
    }
    Ok(Some("it was changed while it was read, each time; its earlier copy stays".into()))
}

/// Copies content to where it waits, of a symbolic link its target; a directory has none.
fn stage(daemon: &Daemon, run: &mut Run, one: &Wanted) -> Result<Option<Staged>> {
    let (filesystem, caller) = (&daemon.filesystem, || clock::own_caller(Io::BLOCKING));
    Ok(match one.kind {
        Kind::Directory => None,
        Kind::Link => Some(run.stage_link(&filesystem.readlink(&caller(), one.inode)?)?),
        Kind::File => {
            let read = |offset, buffer: &mut [u8]| {
                if daemon.stop.load(Ordering::Acquire) {
                    return Err(Error::from(stere_backup::Error::Stopped));
                }
                Ok(filesystem.backups().read_for_backup(&caller(), one.inode, offset, buffer)?)
            };
            match run.stage_at_hand(&one.path, read)? {
                Some(staged) => Some(staged),
                None => Some(run.stage(read)?),
            }
        }
    })
}
