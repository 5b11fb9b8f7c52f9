//! Backups in histories: a disk that files are copied to, which is cut off, full, away and rots (P-104, P-105, P-106).
//!
//! What a mount does in a thread is done here in one step: all files are met, what changed is copied. The oracle: after a run that came to
//! its end there lies what the model has, and nothing else; whatever request was the last, each copy is one of a content that was to
//! be there when some run since then began; what rots is found, and never given back; nothing is written to what is in the disk's
//! place, and nothing that is encrypted is there. Nothing of the pool ever fails by any of this: that is judged as in any other history.
//! Read next: `disk.rs`, `docs/design/backup.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path as DiskPath, PathBuf};
use std::sync::Arc;

use stere_backup::{Destination, Facts, Kind as Copied, Newcomer, Run, Stamp};
use stere_naming::{Attributes, Error, Found};

use crate::area::{Area, further};
use crate::disk::SimDisk;
use crate::history::{Budget, History, Stop};
use crate::model::{Kind, Model, ROOT};
use crate::operation::{Operation, Path};
use crate::pool::{PoolUnderTest, caller, timestamp};
use crate::random::Random;
use crate::{
    encryption,
    execute::{self, names},
    policy_lists,
};

const ATTRIBUTE: &[u8] = b"user.stere.backup";
const ID: [u8; 16] = [5; 16];
/// Earlier states that stay.
const KEEP: usize = 3;
/// What changed so short before it was read may change once more at the same moment.
const YOUNG_SECONDS: i64 = 2;
const SEARCH: &str = "(type=file or type=symlink or type=directory) and backup=yes";

/// What is wrong with the disk in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskTrouble {
    None,
    /// It is cut off at this request.
    Cut(u32),
    Full,
    Away,
}

/// What a history knows of its backup.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    disk: Option<SimDisk>,
    /// Contents that a copy of a path may have: of the last run that came to its end, and of all since.
    may_be: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// What rotted since a run came to its end.
    rotten: BTreeSet<PathBuf>,
}

impl Backups {
    /// P-105: each copy is as it was written, and of a content that was to be there.
    fn judge_copies(&mut self, disk: &SimDisk) -> Result<(), Stop> {
        let wrong = |error: stere_backup::Error| Stop::Failure(format!("a destination that is there again: {error}"));
        let mut destination = Destination::open_on(Arc::new(disk.clone()), root(), Some(&ID)).map_err(wrong)?;
        let found = destination.check(&|| false).map_err(wrong)?;
        let rotten = std::mem::take(&mut self.rotten);
        let is_rotten = |path: &[u8]| rotten.contains(&root().join(std::ffi::OsStr::from_bytes(path)));
        if let Some((path, why)) = found.bad.iter().find(|(path, _)| !is_rotten(path)) {
            return Err(Stop::Failure(format!("{} at a backup: {why}", String::from_utf8_lossy(path))));
        }
        // What a run replaced is there no more; what is told is copied anew by the next.
        self.rotten = rotten.into_iter().filter(|path| disk.content(path).is_some()).collect();
        for (path, _) in destination.list(None).map_err(wrong)? {
            let copy = disk.content(&place(&path));
            let may_be = self.may_be.get(&path).is_some_and(|known| known.iter().any(|one| Some(one) == copy.as_ref()));
            if !may_be && !self.rotten.contains(&place(&path)) {
                let path = String::from_utf8_lossy(&path);
                return Err(Stop::Failure(format!("the copy of {path} is nothing that was to be there")));
            }
        }
        Ok(())
    }
}

/// What came of a run.
#[derive(Debug, Default)]
struct Ran {
    /// Paths that were not copied, and why.
    failed: Vec<(Vec<u8>, String)>,
    copied: u64,
}

fn root() -> &'static DiskPath {
    DiskPath::new("/backup")
}

/// Puts runs of a backup into a history.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(11);
    for _ in 0..random.between(2, 5) {
        if random.chance(1, 4) {
            let path = Path { directory: 0, name: random.below(4) as u8 };
            operations.insert(at, Operation::ChooseForBackup { path, is_chosen: random.chance(1, 2) });
            at += 1;
        }
        let trouble = match random.below(8) {
            0..3 => DiskTrouble::Cut(random.between(1, 90) as u32),
            3 => DiskTrouble::Full,
            4 => DiskTrouble::Away,
            _ => DiskTrouble::None,
        };
        operations.insert(at, Operation::Backup { trouble });
        at = further(at + 1, 8, operations, random);
        if random.chance(1, 3) {
            operations.insert(at, Operation::ProveBackup { rots: random.chance(1, 2) });
            at = further(at + 1, 8, operations, random);
        }
    }
    operations.insert(at, Operation::Backup { trouble: DiskTrouble::None });
    operations.insert(at + 1, Operation::ProveBackup { rots: true });
}

impl PoolUnderTest {
    fn copy_all(
        &self,
        mut run: Run,
        wanted: &[(Vec<u8>, Attributes)],
        ran: &mut Ran,
    ) -> Result<(), stere_backup::Error> {
        let is_file = |file: &&(Vec<u8>, Attributes)| facts(&file.1).kind() == Copied::File;
        let newcomers = wanted.iter().filter(is_file);
        run.keep_at_hand(newcomers.map(|(path, file)| Newcomer { path, inode: file.inode, size: file.size }))?;
        run.take_away()?;
        for (path, file) in wanted {
            match self.copy_one(&mut run, path, file) {
                Ok(()) => {}
                Err(error) if !error.is_of_destination() => ran.failed.push((path.clone(), error.to_string())),
                Err(error) => return Err(error),
            }
        }
        run.place()?;
        ran.failed.extend(std::mem::take(&mut run.failed).into_iter().map(|(path, error)| (path, error.to_string())));
        ran.copied = run.files;
        run.finish().map(drop)
    }

    fn copy_one(&self, run: &mut Run, path: &[u8], file: &Attributes) -> Result<(), stere_backup::Error> {
        let (files, user) = (&self.mounted().files, caller(&self.machine));
        let wrong = |error: Error| stere_backup::Error::Damaged(PathBuf::from("the pool"), error.to_string());
        let mut facts = facts(file);
        if timestamp(&self.machine).seconds - file.ctime.seconds < YOUNG_SECONDS {
            facts.stamp = Stamp::default();
        }
        let read = |offset: u64, out: &mut [u8]| {
            files.backups().read_for_backup(&user, file.inode, offset, out).map_err(wrong)
        };
        let staged = match facts.kind() {
            Copied::Directory => return run.accept_directory(path, &facts, Vec::new()),
            Copied::Link => run.stage_link(&files.readlink(&user, file.inode).map_err(wrong)?)?,
            Copied::File => match run.stage_at_hand(path, read)? {
                Some(staged) => staged,
                None => run.stage(read)?,
            },
        };
        run.accept(path, &facts, Vec::new(), staged)
    }
}

/// Whether this history makes backups now: of what cannot be read nothing could be told.
fn makes_backups(history: &History) -> bool {
    let is_readable =
        history.plan.budget != Budget::Beyond && !history.plan.may_fill && policy_lists::is_undisturbed(history);
    history.plan.pool.areas.has(Area::Backups) && is_readable
}

fn disk(history: &mut History) -> Result<SimDisk, Stop> {
    if let Some(disk) = &history.backups.disk {
        return Ok(disk.clone());
    }
    let disk = SimDisk::with(&[root(), DiskPath::new("/out")]);
    Destination::create_on(&disk, root(), &ID, "simulated")
        .map_err(|error| Stop::Failure(format!("making a destination: {error}")))?;
    history.backups.disk = Some(disk.clone());
    names::put_policy(history, ROOT, ATTRIBUTE, b"yes")?;
    history.sync_all()?;
    Ok(disk)
}

/// A file is to be copied, or is not.
pub(crate) fn choose_for_backup(history: &mut History, path: Path, is_chosen: bool) -> Result<(), Stop> {
    let Some(inode) = execute::inode_of(history, path)?.filter(|_| history.plan.pool.areas.has(Area::Backups)) else {
        return Ok(());
    };
    if history.model.nodes[&inode].content().is_none() {
        return Ok(());
    }
    encryption::wish_encryption(history, inode, usize::from(path.name))?;
    names::put_policy(history, inode, ATTRIBUTE, if is_chosen { b"yes" } else { b"no" })
}

/// All that is to be copied: paths, and the inode and content there.
fn chosen(model: &Model) -> BTreeMap<Vec<u8>, (u64, Vec<u8>)> {
    let (mut found, mut left) = (BTreeMap::new(), vec![(ROOT, Vec::new())]);
    while let Some((directory, above)) = left.pop() {
        let Kind::Directory(names) = model.nodes[&directory].kind.clone() else { continue };
        for (name, inode) in names {
            let path = if above.is_empty() { name } else { [&above[..], b"/", &name].concat() };
            let node = &model.nodes[&inode];
            let is_chosen = node.attributes.get(ATTRIBUTE).is_none_or(|value| value != b"no");
            match &node.kind {
                Kind::Directory(_) => left.push((inode, path)),
                Kind::File(content) if is_chosen => {
                    found.insert(path, (inode, content.read(0, u64::MAX)));
                }
                Kind::Symlink(target) => drop(found.insert(path, (inode, target.clone()))),
                _ => {}
            }
        }
    }
    found
}

/// A run, which something may be wrong with.
pub(crate) fn back_up(history: &mut History, trouble: DiskTrouble) -> Result<(), Stop> {
    if !makes_backups(history) {
        return Ok(());
    }
    history.machine.disarm();
    let disk = disk(history)?;
    // Rules and what encrypts reach what exists in the background.
    policy_lists::settle_background(history)?;
    let wanted = chosen(&history.model);
    for (path, (_, content)) in &wanted {
        history.backups.may_be.entry(path.clone()).or_default().push(content.clone());
    }
    match trouble {
        DiskTrouble::None => {}
        DiskTrouble::Cut(requests) => disk.cut_after(u64::from(requests)),
        DiskTrouble::Full => disk.set_full(true),
        DiskTrouble::Away => disk.set_away(true),
    }
    let ran = run_backup(history, &disk);
    if disk.written_elsewhere() > 0 {
        return Err(Stop::Failure("a run wrote to what is in the place of its disk".into()));
    }
    disk.power_on(&mut history.random);
    match ran? {
        Ok(ran) => judge_complete(history, &disk, &wanted, &ran)?,
        Err(stere_backup::Error::Away(_)) if trouble == DiskTrouble::Away => {}
        Err(_) if !matches!(trouble, DiskTrouble::None | DiskTrouble::Away) => history.summary.backups_cut += 1,
        Err(error) => return Err(Stop::Failure(format!("a run of a backup with {trouble:?}: {error}"))),
    }
    history.backups.judge_copies(&disk)
}

/// What a mount does: meets all files, copies what has to be copied. The inner error is one of the disk.
fn run_backup(history: &mut History, disk: &SimDisk) -> Result<Result<Ran, stere_backup::Error>, Stop> {
    let destination = match Destination::open_on(Arc::new(disk.clone()), root(), Some(&ID)) {
        Ok(destination) => destination,
        Err(error) => return Ok(Err(error)),
    };
    // A crash leaves nothing else of what was changed before, so its time of change tells what it holds.
    history.sync_all()?;
    let moment = format!("m{:020}", history.machine.now_ns());
    let mut run = match Run::begin(destination, &moment, KEEP) {
        Ok(run) => run,
        Err(error) => return Ok(Err(error)),
    };
    let mut ran = Ran::default();
    let wanted = meet_all(history, &mut run, &mut ran)?;
    Ok(history.pool.copy_all(run, &wanted, &mut ran).map(|()| ran))
}

fn meet_all(history: &mut History, run: &mut Run, ran: &mut Ran) -> Result<Vec<(Vec<u8>, Attributes)>, Stop> {
    let (files, user) = (history.mounted().files.clone(), caller(&history.machine));
    let search = files.search().parse_search(SEARCH).map_err(|error| Stop::Failure(format!("a search: {error}")))?;
    let find = files.search().find(&user, ROOT, b"", search);
    let mut find = history.must("finding what is to be copied", find)?;
    let mut wanted = Vec::new();
    loop {
        let found = find.step(&user);
        let Some(found) = history.must("finding what is to be copied", found)? else { return Ok(wanted) };
        for Found { path, attributes, .. } in found {
            if path.is_empty() {
                continue;
            }
            let is_encrypted = files.backups().is_encrypted(&user, attributes.inode);
            if history.must("looking whether a file is encrypted", is_encrypted)? {
                ran.failed.push((path, "encrypted".into()));
            } else if run.meet(&path, &facts(&attributes)) {
                wanted.push((path, attributes));
            }
        }
    }
}

/// P-104: there lies what is to be there, and nothing else; P-106: but for what is encrypted.
fn judge_complete(
    history: &mut History,
    disk: &SimDisk,
    wanted: &BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    ran: &Ran,
) -> Result<(), Stop> {
    let refused: BTreeSet<&[u8]> = ran.failed.iter().map(|(path, _)| &path[..]).collect();
    if let Some((path, why)) = ran.failed.iter().find(|_| !history.plan.may_be_encrypted()) {
        return Err(Stop::Failure(format!("{} was not copied: {why}", String::from_utf8_lossy(path))));
    }
    history.backups.may_be.clear();
    for (path, (inode, content)) in wanted {
        let copy = disk.content(&place(path));
        let is_secret = history.plan.may_be_encrypted() && is_to_be_encrypted(history, *inode, path)?;
        let shown = String::from_utf8_lossy(path);
        match copy {
            Some(_) if is_secret => {
                return Err(Stop::Failure(format!("{shown} is encrypted, and lies in the clear at a backup")));
            }
            Some(copy) if copy != *content => {
                return Err(Stop::Failure(format!("after a whole run the copy of {shown} is not what it holds")));
            }
            None if !refused.contains(&path[..]) => {
                return Err(Stop::Failure(format!("after a whole run there is no copy of {shown}")));
            }
            _ => drop(history.backups.may_be.insert(path.clone(), vec![content.clone()])),
        }
    }
    let top = root().join("current");
    let copies = disk.paths(&top);
    let extra = copies
        .iter()
        .find(|path| path.strip_prefix(&top).is_ok_and(|path| !wanted.contains_key(path.as_os_str().as_bytes())));
    if let Some(extra) = extra {
        return Err(Stop::Failure(format!("after a whole run {} is there still", extra.display())));
    }
    // What an earlier state has is not copied again.
    history.backups.rotten.retain(|path| path.starts_with(root().join("kept")));
    history.summary.backups_done += 1;
    Ok(())
}

/// Whether policy says so, of a file or of a directory above it.
fn is_to_be_encrypted(history: &mut History, inode: u64, path: &[u8]) -> Result<bool, Stop> {
    let mut at = vec![inode];
    let mut directory = ROOT;
    for name in path.split(|byte| *byte == b'/') {
        at.push(directory);
        directory = history.model.lookup(directory, name).unwrap_or(ROOT);
    }
    at.retain(|inode| !matches!(history.model.nodes[inode].kind, Kind::Symlink(_)));
    for inode in at {
        let real = history.mounted().files.getxattr(&caller(&history.machine), inode, b"user.stere.effective.encrypt");
        if history.must("what encrypts", real)? != b"no" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// P-105: what rots is found, and no other bytes are given back than were copied.
pub(crate) fn prove_backup(history: &mut History, rots: bool) -> Result<(), Stop> {
    let Some(disk) = history.backups.disk.clone().filter(|_| history.plan.pool.areas.has(Area::Backups)) else {
        return Ok(());
    };
    history.backups.judge_copies(&disk)?;
    let wrong = |error: stere_backup::Error| Stop::Failure(format!("proving a backup: {error}"));
    let rotten = if rots { disk.rot(&root().join("current"), &mut history.random) } else { Vec::new() };
    history.backups.rotten.extend(rotten.iter().cloned());
    let destination = Destination::open_on(Arc::new(disk.clone()), root(), Some(&ID)).map_err(wrong)?;
    let out = DiskPath::new("/out");
    let restored = destination.restore(None, b"", out, true, stere_backup::Preserved::ALL).map_err(wrong)?;
    for (path, _) in destination.list(None).map_err(wrong)? {
        let (name, is_rotten) = (std::ffi::OsStr::from_bytes(&path), history.backups.rotten.contains(&place(&path)));
        let given = disk.content(&out.join(name));
        let shown = String::from_utf8_lossy(&path);
        let is_told = restored.failed.iter().any(|(failed, _)| *failed == path);
        let may_be = |given: &Vec<u8>| history.backups.may_be.get(&path).is_some_and(|known| known.contains(given));
        match given {
            Some(given) if !may_be(&given) => {
                return Err(Stop::Failure(format!("{shown} came back with other bytes")));
            }
            None if !is_told => {
                return Err(Stop::Failure(format!("{shown} did not come back, and nobody was told")));
            }
            None if !is_rotten => return Err(Stop::Failure(format!("{shown} did not come back"))),
            _ => {}
        }
    }
    disk.clear(out);
    drop(destination);
    let mut destination = Destination::open_on(Arc::new(disk.clone()), root(), Some(&ID)).map_err(wrong)?;
    let found = destination.check(&|| false).map_err(wrong)?;
    let is_named =
        |path: &PathBuf| found.bad.iter().any(|(bad, _)| root().join(std::ffi::OsStr::from_bytes(bad)) == *path);
    if rotten.first().is_some_and(|path| !is_named(path)) {
        return Err(Stop::Failure(format!("{rotten:?} rotted, and was not found: {found:?}")));
    }
    for (bad, _) in found.bad {
        history.backups.rotten.insert(root().join(std::ffi::OsStr::from_bytes(&bad)));
    }
    history.summary.backups_proven += 1;
    Ok(())
}

/// Where the copy of a path lies.
fn place(path: &[u8]) -> PathBuf {
    root().join("current").join(std::ffi::OsStr::from_bytes(path))
}

fn facts(file: &Attributes) -> Facts {
    let stamp = Stamp { inode: file.inode, changed: (file.ctime.seconds, file.ctime.nanoseconds) };
    let modified = (file.mtime.seconds, file.mtime.nanoseconds);
    Facts { mode: file.mode, uid: file.uid, gid: file.gid, modified, stamp }
}
