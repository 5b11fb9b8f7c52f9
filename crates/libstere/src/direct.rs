//! A pool that is not mounted, open in this process: the layers of the daemon without its front end.
//!
//! Who may open the devices may do everything, so permissions are not checked; limits, retention, seals and keys hold as in a
//! mount. The devices are locked while the pool is open. What needs a decision (missing devices, histories that parted) is
//! refused and left to `stere mount`.
//! Invariant: the last of the pool and its files closes the pool, after all changes are durable.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stere_device::{Access, FileOptions};
use stere_format::FileKind;
use stere_multihost::{Guard, Multihost, claimant};
use stere_naming::{Caller, FileSystem, Handle, Io, OpenFlags, ROOT, Timestamp};
use stere_pool::{AssembleOptions, Assembly, Candidate, Degraded};
use stere_store::RecallMode;

use crate::error::Error;
use crate::file::{File, Options, Piece};

const TICK: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_secs(1);
/// So often changes become durable that nobody syncs.
const COMMIT: Duration = Duration::from_secs(5);
const STEPS_PER_COMMIT: u64 = 5;
/// Pieces of work of the file system in one step.
const PIECES: usize = 1024;
/// What one call reads or writes at a time.
const PART_BYTES: usize = 1 << 20;
/// Threads that one call reads with.
const READERS_MAX: usize = 16;
/// So often a pool may change hands while it is opened.
const CLAIM_TRIES: usize = 3;

/// How a pool is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    pub read_only: bool,
    /// What caches may take.
    pub memory_bytes: usize,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions { read_only: false, memory_bytes: 256 << 20 }
    }
}

fn caller() -> Caller<'static> {
    // A clock before 1970 is a clock that was never set.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() };
    // SAFETY: both take nothing and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    Caller { uid, gid, groups: &[], umask: 0, now, io: Io::BLOCKING, process: std::process::id(), request: None }
}

/// The open pool.
struct Open {
    /// Before the devices, which its heartbeats are on.
    claim: Option<Guard>,
    filesystem: Arc<FileSystem>,
    read_only: bool,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Open {
    fn close(&mut self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Release);
        let Some(worker) = self.worker.take() else { return Ok(()) };
        worker.thread().unpark();
        if worker.join().is_err() {
            // Memory may hold half a change: what is durable is what can be trusted.
            return Err(Error::ReadOnly("its background work panicked".into()));
        }
        if !self.read_only {
            self.filesystem.close(&caller())?;
        }
        let closed = self.filesystem.store().close();
        drop(self.claim.take());
        Ok(closed?)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "a pool was not closed in order; what was synced is safe");
        }
    }
}

/// A pool that is open in this process.
pub struct Pool {
    open: Arc<Open>,
}

/// Refuses two paths to one device.
fn check_distinct(paths: &[PathBuf]) -> Result<(), Error> {
    let identity = |path: &Path| std::fs::metadata(path).map(|facts| (facts.dev(), facts.ino(), facts.rdev())).ok();
    for (index, first) in paths.iter().enumerate() {
        let of_first = identity(first);
        if let Some(second) = paths[index + 1..].iter().find(|path| of_first.is_some() && identity(path) == of_first) {
            let (first, second) = (first.display().to_string(), second.display().to_string());
            return Err(stere_pool::Error::SameDevice { first, second }.into());
        }
    }
    Ok(())
}

/// Opens the devices, judges them, and keeps other machines away from them.
fn claim_devices(paths: &[PathBuf], is_reader: bool) -> Result<(Assembly, Guard), Error> {
    let access = if is_reader { Access::ReadOnly } else { Access::ReadWrite };
    for _ in 0..CLAIM_TRIES {
        let mut candidates = Vec::with_capacity(paths.len());
        for path in paths {
            let options = FileOptions { access, ..FileOptions::default() };
            let opened = stere_nbd::open(path, &options);
            let device = opened.map_err(|source| Error::Device { device: path.clone(), source })?;
            candidates.push(Candidate { path: path.display().to_string(), device });
        }
        let assembly = Assembly::with(candidates, &AssembleOptions::default())?;
        let claim = Guard::claim(&assembly, claimant(None), Multihost::Auto, is_reader, &mut |_| {})?;
        // Another machine may have closed the pool between the two.
        if !assembly.is_outdated() {
            return Ok((assembly, claim));
        }
    }
    Err(Error::ReadOnly("another machine used the pool while it was opened here".into()))
}

impl Pool {
    /// Opens the pool on these devices, all of which must be there.
    pub fn open<P: AsRef<Path>>(devices: &[P], options: PoolOptions) -> Result<Pool, Error> {
        let paths: Vec<PathBuf> = devices.iter().map(|path| path.as_ref().to_owned()).collect();
        check_distinct(&paths)?;
        let (assembly, claim) = claim_devices(&paths, options.read_only)?;
        let mut nonce = [0; 4];
        let mut salt = [0; 16];
        getrandom::fill(&mut nonce).and(getrandom::fill(&mut salt)).map_err(|error| Error::System {
            action: "get random bytes",
            source: std::io::Error::other(error.to_string()),
        })?;
        let open = stere_pool::OpenOptions {
            memory_bytes: options.memory_bytes,
            read_only: options.read_only,
            degraded: Degraded::Never,
            epoch_nonce: u32::from_le_bytes(nonce),
            ..stere_pool::OpenOptions::default()
        };
        let opened = assembly.open(&open, &|_| None)?;
        if opened.read_only && !options.read_only {
            return Err(Error::ReadOnly(opened.warnings.join("; ")));
        }
        let store = Arc::new(opened.store);
        // No volume is open here, and nobody could bring one.
        store.tier.recalls.set_recall_mode(RecallMode::Deny);
        let files = stere_file::Options {
            dirty_bytes_max: (options.memory_bytes as u64 / 16).clamp(4 << 20, 64 << 20),
            dirty_steps_max: STEPS_PER_COMMIT,
            encryption_salt: Some(salt),
            coders: stere_file::Coders::of_processors(),
            ..stere_file::Options::default()
        };
        let naming = stere_naming::Options {
            files,
            people: stere_people::system(),
            processes: stere_people::processes::system(),
            ..stere_naming::Options::default()
        };
        let filesystem = Arc::new(FileSystem::new(store, naming)?);
        let stop = Arc::new(AtomicBool::new(false));
        let worker = start(filesystem.clone(), stop.clone(), options.read_only)?;
        let store_of_claim = Arc::downgrade(filesystem.store());
        claim.on_lost(Box::new(move |cause| {
            if let Some(store) = store_of_claim.upgrade() {
                store.stop_writing(cause);
            }
        }));
        let open = Open { claim: Some(claim), filesystem, read_only: options.read_only, stop, worker: Some(worker) };
        Ok(Pool { open: Arc::new(open) })
    }

    /// Opens a file by its path in the pool. Symbolic links are not followed.
    pub fn file(&self, path: impl AsRef<Path>, options: Options) -> Result<File, Error> {
        options.check()?;
        if options.write && self.open.read_only {
            return Err(Error::ReadOnly("it was opened for reading only".into()));
        }
        let (filesystem, caller) = (&self.open.filesystem, caller());
        let names: Vec<&[u8]> = path.as_ref().components().filter_map(name_of).collect();
        let Some((last, directories)) = names.split_last() else {
            return Err(stere_naming::Error::IsADirectory.into());
        };
        let mut directory = ROOT;
        for name in directories {
            directory = filesystem.lookup(&caller, directory, name)?.inode;
        }
        let flags = OpenFlags { write: options.write, truncate: options.truncate, exclusive: false, read: true };
        let found = filesystem.lookup(&caller, directory, last);
        let (inode, handle) = match found {
            Err(stere_naming::Error::NotFound) if options.create => {
                let (attributes, handle) = filesystem.create(&caller, directory, last, options.mode & 0o7777, flags)?;
                (attributes.inode, handle)
            }
            found => {
                let attributes = found?;
                match attributes.kind() {
                    Some(FileKind::File) => (attributes.inode, filesystem.open(&caller, attributes.inode, flags)?),
                    Some(FileKind::Directory) => return Err(stere_naming::Error::IsADirectory.into()),
                    _ => return Err(Error::Usage("only regular files are opened; symbolic links are not followed")),
                }
            }
        };
        let file = DirectFile { open: self.open.clone(), inode, handle, options, is_released: false };
        Ok(File::direct(file))
    }

    /// Makes all changes durable and lets go of the devices; files must be closed before.
    pub fn close(self) -> Result<(), Error> {
        match Arc::try_unwrap(self.open) {
            Ok(mut open) => open.close(),
            // The last file closes it.
            Err(_) => Err(Error::FilesOpen),
        }
    }

    pub(crate) fn has_files(&self) -> bool {
        Arc::strong_count(&self.open) > 1
    }
}

fn name_of(component: std::path::Component<'_>) -> Option<&[u8]> {
    match component {
        std::path::Component::RootDir | std::path::Component::CurDir | std::path::Component::Prefix(_) => None,
        std::path::Component::ParentDir => Some(b".."),
        std::path::Component::Normal(name) => Some(name.as_encoded_bytes()),
    }
}

/// Background work, as in a mount: old changes become durable, space is cleaned.
fn start(filesystem: Arc<FileSystem>, stop: Arc<AtomicBool>, read_only: bool) -> Result<JoinHandle<()>, Error> {
    let run = move || {
        let begun = Instant::now();
        let (mut next_step, mut next_commit) = (begun + STEP, begun + COMMIT);
        while !read_only && !stop.load(Ordering::Acquire) {
            let now = Instant::now();
            let mut outcome = Ok(());
            if now >= next_step {
                next_step = now + STEP;
                outcome = filesystem.step(&caller(), PIECES).map(drop);
            }
            if now >= next_commit {
                next_commit = now + COMMIT;
                outcome = outcome.and(filesystem.store().commit(Io::BLOCKING).map_err(Into::into));
            }
            let stepped = filesystem.store().step(false);
            if let Err(error) =
                outcome.and(stepped.as_ref().map(drop).map_err(|error| stere_naming::Error::Damaged(error.to_string())))
            {
                // Writes and syncs tell the caller.
                tracing::debug!(%error, "background work of a pool");
            }
            if !stepped.unwrap_or(false) {
                std::thread::park_timeout(TICK);
            }
        }
    };
    std::thread::Builder::new().name("stere".into()).spawn(run).map_err(Error::system("start a thread"))
}

/// A file of such a pool.
pub struct DirectFile {
    open: Arc<Open>,
    inode: u64,
    handle: Handle,
    options: Options,
    is_released: bool,
}

impl DirectFile {
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(bytes.len() / PART_BYTES + 1);
        let mut at = offset;
        for part in bytes.chunks_mut(PART_BYTES) {
            let length = part.len() as u64;
            pieces.push(Piece { offset: at, bytes: part, read: 0 });
            at = at.saturating_add(length);
        }
        self.read_many(&mut pieces)?;
        let is_whole = |piece: &&Piece<'_>| piece.read == piece.bytes.len();
        let whole = pieces.iter().take_while(is_whole).count();
        Ok(pieces.iter().take(whole + 1).map(|piece| piece.read).sum())
    }

    pub fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Error> {
        if !self.options.read {
            return Err(Error::Answer {
                errno: libc::EBADF,
                text: "the file is not open for reading; open it so".into(),
            });
        }
        let read = |piece: &mut Piece<'_>| {
            piece.read = self.open.filesystem.read(&caller(), self.inode, piece.offset, piece.bytes)?;
            Ok(())
        };
        let threads = pieces.len().min(READERS_MAX);
        if threads <= 1 {
            return pieces.iter_mut().try_for_each(read);
        }
        let count = pieces.len();
        let slots: Vec<Mutex<&mut Piece<'_>>> = pieces.iter_mut().map(Mutex::new).collect();
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(slot) = slots.get(index) else { break };
                if let Err(error) = read(&mut slot.lock().unwrap_or_else(PoisonError::into_inner)) {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    next.store(count, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // With fewer threads it takes longer.
                drop(std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        if !self.options.write {
            return Err(Error::Answer {
                errno: libc::EBADF,
                text: "the file is not open for writing; open it so".into(),
            });
        }
        let mut done = 0;
        for part in bytes.chunks(PART_BYTES) {
            let caller = caller();
            let at = offset.saturating_add(done as u64);
            match self.open.filesystem.write(&caller, self.inode, at, part, caller.uid != 0) {
                Ok(count) => {
                    assert!(count <= part.len(), "{count} bytes were written where {} were given", part.len());
                    done += count;
                    if count < part.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.open.filesystem.durability.make_durable(&caller(), &[self.inode])?;
        Ok(done)
    }

    pub fn sync(&self) -> Result<(), Error> {
        Ok(self.open.filesystem.fsync(&caller(), self.inode, false)?)
    }

    pub fn size(&self) -> Result<u64, Error> {
        Ok(self.open.filesystem.getattr(&caller(), self.inode)?.size)
    }

    pub fn close(mut self) -> Result<(), Error> {
        self.release()
    }

    fn release(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_released, true) {
            return Ok(());
        }
        Ok(self.open.filesystem.release(&caller(), self.inode, self.handle)?)
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::error!(%error, "a file was not closed in order");
        }
    }
}
