//! Pools that are mounted in this mount: each is a process of its own, begun and ended here as the junctions of the pool say.
//!
//! Invariants: a pool that a junction leads to is mounted below this mount, or `status` tells why not; this mount is ended only after
//! those in it. Nothing is asked of the pool with the lock held. Read next: `crates/namespace/src/junctions.rs` (what a junction is),
//! `seek_owner.rs` (the process of an owner, which is begun alike).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_control::connection::{self, Connection};
use stere_control::junction::{JunctionLine, JunctionReport};
use stere_control::message::{About, Answer, Request};
use stere_device::Access;
use stere_fuse::Unmounter;
use stere_machine::devices::{assemble_with, record_of};
use stere_machine::error::{Error, Result, refused};
use stere_machine::mountinfo;
use stere_machine::registry::{PoolRecord, Registry};
use stere_machine::shared_log::without_secrets;
use stere_pool::AssembleOptions;

use crate::daemon::{lock, spawn};
use crate::from_afar::is_everywhere;
use crate::mount_request::MountRequest;

#[cfg(test)]
mod tests;

/// Between two looks at the junctions of the pool.
const LOOK: Duration = Duration::from_secs(2);
/// Between two attempts to mount the same pool.
const AGAIN: Duration = Duration::from_secs(3);
/// A process has so long to end after it was told to.
const END_MAX: Duration = Duration::from_secs(60);
/// And so long after a signal, when files in it may be open.
const SIGNAL_MAX: Duration = Duration::from_secs(15);
/// Options that are of one pool, or of one mount.
const OWN_OPTIONS: [&str; 8] = ["take", "owner_process", "exact", "listen", "metrics", "prefer", "keyfile", "silent"];

/// How the mounts in this one are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// As `stere umount` was told to.
    Asked { lazy: bool, force: bool },
    /// By the signal that this process got.
    Signal,
}

/// What a junction's pool needs next.
#[derive(Default)]
enum Doing {
    #[default]
    Nothing,
    /// The pool is made known on this machine, by a thread.
    Importing(JoinHandle<Result<()>>),
    /// The process of its mount, which may not be mounted yet.
    Serving(Child),
}

/// Where the pool of a junction is seen on this machine.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// Where it belongs.
    Mounted,
    /// The same, and its process has died.
    Dead,
    /// Somewhere else, or only beginning or ending: why it is not where it belongs.
    Elsewhere(String),
    Nowhere,
}

/// A pool that is to be mounted here.
struct Mounted {
    line: JunctionLine,
    doing: Doing,
    tried: Option<Instant>,
    is_mounted: bool,
    why: Option<String>,
}

/// Mounts what the junctions of a pool lead to.
pub struct Junctions {
    registry: Registry,
    /// Where this mount was made.
    mountpoint: PathBuf,
    /// Knows where it is now.
    unmounter: OnceLock<Unmounter>,
    /// The pool of this mount. The logs of the others are in the same engine as its log.
    pool: String,
    options: Vec<String>,
    by_pool: Mutex<BTreeMap<String, Mounted>>,
    /// Processes of mounts that are none any more, until they have ended.
    leaving: Mutex<Vec<Child>>,
    /// Nothing is mounted while this mount ends.
    is_ending: AtomicBool,
}

/// Options of a mount that are handed to the mounts in it.
fn handed_on(texts: &[String]) -> Vec<String> {
    let words = texts.iter().flat_map(|text| text.split(',')).filter(|word| !word.is_empty());
    let is_own = |word: &&str| OWN_OPTIONS.contains(&word.split_once('=').map_or(*word, |(key, _)| key));
    words.filter(|word| !is_own(word)).map(str::to_owned).collect()
}

impl Junctions {
    /// For a mount of this pool.
    pub fn new(registry: &Registry, request: &MountRequest, pool: &str) -> Junctions {
        Junctions {
            registry: registry.clone(),
            mountpoint: request.mountpoint.clone(),
            unmounter: OnceLock::new(),
            pool: pool.to_owned(),
            options: handed_on(&request.option_texts),
            by_pool: Mutex::default(),
            leaving: Mutex::default(),
            is_ending: AtomicBool::new(false),
        }
    }

    /// This mount is there.
    pub fn set_unmounter(&self, unmounter: &Unmounter) {
        self.unmounter.get_or_init(|| unmounter.clone());
    }

    /// Follows the junctions, which `ask` gives, as long as the mount lives.
    pub fn follow(
        junctions: &Arc<Junctions>,
        ask: impl Fn() -> Option<Result<Vec<JunctionLine>>> + Send + 'static,
    ) -> Result<()> {
        let junctions: Weak<Junctions> = Arc::downgrade(junctions);
        spawn("junctions", move || {
            // None where the mount is over.
            while let Some(told) = ask() {
                let Some(junctions) = junctions.upgrade() else { return };
                match told {
                    Ok(lines) => junctions.take(lines),
                    Err(error) => tracing::debug!(%error, "the junctions of the pool are not known"),
                }
                junctions.step_all();
                drop(junctions);
                std::thread::sleep(LOOK);
            }
        })
    }

    /// What is said of each on this machine.
    pub fn report(&self) -> Vec<JunctionReport> {
        let by_pool = lock(&self.by_pool);
        let report = |mounted: &Mounted| JunctionReport {
            path: mounted.line.path.clone(),
            pool: mounted.line.pool.clone(),
            is_mounted: mounted.is_mounted,
            why: mounted.why.clone(),
        };
        by_pool.values().map(report).collect()
    }

    /// Takes note of what the pool says. What is no junction any more is unmounted, and so is what did not go with its directory.
    fn take(&self, lines: Vec<JunctionLine>) {
        let mut left = Vec::new();
        let mut by_pool = lock(&self.by_pool);
        let gone: Vec<String> =
            by_pool.keys().filter(|pool| !lines.iter().any(|line| line.pool_id == **pool)).cloned().collect();
        for mounted in gone.iter().filter_map(|pool| by_pool.remove(pool)).collect::<Vec<_>>() {
            left.push(mounted.line);
            if let Doing::Serving(child) = mounted.doing {
                lock(&self.leaving).push(child);
            }
        }
        for line in lines {
            let mounted = by_pool.entry(line.pool_id.clone()).or_insert_with(|| Mounted {
                line: line.clone(),
                doing: Doing::Nothing,
                tried: None,
                is_mounted: false,
                why: Some("it is being mounted".to_owned()),
            });
            let before = std::mem::replace(&mut mounted.line, line);
            left.extend((before.path != mounted.line.path).then_some(before));
        }
        drop(by_pool);
        for line in left {
            tracing::info!(pool = line.pool, path = line.path, "this pool is not mounted there any more");
            if let Err(error) = self.unmount(&line, (true, false)) {
                tracing::warn!(%error, pool = line.pool, "it stays mounted");
            }
        }
    }

    /// The engine's password changes for all pools in it.
    fn hand_log_on(&self, line: &JunctionLine) -> Result<()> {
        let (Some(log), Some(record)) = (self.registry.get(&self.pool)?.log, self.registry.find(&line.pool)?) else {
            return Ok(());
        };
        let is_changed =
            record.log.as_ref().is_some_and(|own| *own != log && without_secrets(own) == without_secrets(&log));
        match record.id == line.pool_id && is_changed {
            true => self.registry.save(&PoolRecord { log: Some(log), ..record }),
            false => Ok(()),
        }
    }

    fn step_all(&self) {
        lock(&self.leaving).retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let pools: Vec<String> = lock(&self.by_pool).keys().cloned().collect();
        for pool in pools {
            // Looked at without the lock: a mount may answer late.
            let Some(line) = lock(&self.by_pool).get(&pool).map(|mounted| mounted.line.clone()) else { continue };
            if let Err(error) = self.hand_log_on(&line) {
                tracing::warn!(%error, pool = line.pool, "the address of its log is not handed on");
            }
            let seen = self.look(&line);
            if seen == Seen::Dead {
                let place = self.place_of(&line);
                tracing::info!(pool = line.pool, place = %place.display(), "taking away the mount of a process that has died");
                if let Err(error) = mountinfo::unmount(&place, true) {
                    tracing::warn!(%error, pool = line.pool, "a dead mount stays");
                }
            }
            let mut by_pool = lock(&self.by_pool);
            let Some(mounted) = by_pool.get_mut(&pool) else { continue };
            if self.is_ending.load(Ordering::Acquire) {
                return;
            }
            let is_mounted = seen == Seen::Mounted;
            if is_mounted != mounted.is_mounted {
                tracing::info!(pool = line.pool, path = line.path, is_mounted, "a pool in this one");
            }
            mounted.is_mounted = is_mounted;
            self.step(mounted, seen);
        }
    }

    fn look(&self, line: &JunctionLine) -> Seen {
        let place = self.place_of(line);
        let about = connection::about(&self.registry, &line.pool);
        match (is_mounted(&place, &line.pool), about) {
            (true, Some(about)) if about.pool_id == line.pool_id && about.mountpoint == place => Seen::Mounted,
            (true, None) => Seen::Dead,
            (false, None) => Seen::Nowhere,
            (_, Some(about)) => Seen::Elsewhere(elsewhere(line, &place, &about)),
        }
    }

    /// Where the pool of a junction is in the directories of this machine.
    fn place_of(&self, line: &JunctionLine) -> PathBuf {
        let mountpoint = self.unmounter.get().map_or_else(|| self.mountpoint.clone(), Unmounter::place_now);
        mountpoint.join(line.path.trim_start_matches('/'))
    }

    /// One step towards a pool that is mounted.
    fn step(&self, mounted: &mut Mounted, seen: Seen) {
        mounted.doing = match std::mem::take(&mut mounted.doing) {
            Doing::Importing(thread) if thread.is_finished() => {
                let imported =
                    thread.join().unwrap_or_else(|_| refused("its import panicked; see the log of this mount"));
                if let Err(error) = imported {
                    tracing::warn!(%error, pool = mounted.line.pool, "a pool in this one is not known here");
                    mounted.why = Some(error.to_string());
                }
                Doing::Nothing
            }
            Doing::Serving(mut child) => match child.try_wait() {
                Ok(Some(status)) => {
                    if !status.success() {
                        tracing::warn!(pool = mounted.line.pool, %status, "the mount of a pool in this one has ended");
                        mounted.why = Some("its mount has ended; the log of the mount above it tells why".to_owned());
                    }
                    Doing::Nothing
                }
                _ => Doing::Serving(child),
            },
            doing => doing,
        };
        match seen {
            Seen::Mounted => mounted.why = None,
            // Its own process says why it cannot be mounted, when it ends.
            _ if !matches!(mounted.doing, Doing::Nothing) => {}
            Seen::Elsewhere(why) => mounted.why = Some(why),
            Seen::Dead | Seen::Nowhere => {
                if mounted.tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
                    return;
                }
                mounted.tried = Some(Instant::now());
                match self.begin(&mounted.line) {
                    Ok(doing) => mounted.doing = doing,
                    Err(error) => mounted.why = Some(error.to_string()),
                }
            }
        }
    }

    /// Begins to make the pool known, or to mount it where it is known.
    fn begin(&self, line: &JunctionLine) -> Result<Doing> {
        let log = self.registry.get(&self.pool)?.log;
        let Some(log) = log else {
            return refused(format!("the log of the pool '{}' is not in an engine on this machine", self.pool));
        };
        match self.registry.find(&line.pool)? {
            Some(record) if record.id != line.pool_id => refused(format!(
                "another pool is known here by the name '{0}'; forget it with `stere pool export {0}`",
                line.pool
            )),
            Some(_) => {
                let mut command = Command::new(std::env::current_exe().map_err(Error::System)?);
                command.env("STERE_STATE", self.registry.state()).current_dir("/").stdin(Stdio::null());
                command.args(["mount", "--foreground", "-o", "exact"]);
                command.args(self.options.iter().flat_map(|word| ["-o", word.as_str()]));
                command.arg(&line.pool).arg(self.place_of(line));
                Ok(Doing::Serving(command.spawn().map_err(Error::System)?))
            }
            None => {
                let (registry, line) = (self.registry.clone(), line.clone());
                let import = move || import(&registry, &line, log);
                let thread = std::thread::Builder::new().name("import".into()).spawn(import);
                Ok(Doing::Importing(thread.map_err(Error::System)?))
            }
        }
    }

    /// Ends all mounts in this one, before it is ended itself. `Err` names the first that stays: then nothing changes.
    pub fn end(&self, how: How) -> Result<()> {
        self.is_ending.store(true, Ordering::Release);
        let lines: Vec<JunctionLine> = lock(&self.by_pool).values().map(|mounted| mounted.line.clone()).collect();
        let ended = match how {
            How::Asked { lazy, force } => lines.iter().try_for_each(|line| self.unmount(line, (lazy, force))),
            How::Signal => {
                self.pass_signal_on();
                Ok(())
            }
        };
        if ended.is_err() {
            self.go_on();
        }
        ended
    }

    /// This mount goes on after all, and so do those in it.
    pub fn go_on(&self) {
        self.is_ending.store(false, Ordering::Release);
    }

    fn unmount(&self, line: &JunctionLine, (lazy, force): (bool, bool)) -> Result<()> {
        let place = self.place_of(line);
        if !is_mounted(&place, &line.pool) {
            return Ok(());
        }
        let Some(mut connection) = Connection::open(&self.registry, &line.pool) else {
            // Its process is dead.
            return mountinfo::unmount(&place, true);
        };
        connection.wait_without_limit()?;
        let answer = connection.ask(Request::Unmount { lazy, force });
        let begun = Instant::now();
        if let Err(error) | Ok(Answer::Failed { message: error, ended: false }) =
            answer.map_err(|error| error.to_string())
        {
            return refused(format!("the pool '{}' is mounted in it, on {}: {error}", line.pool, place.display()));
        }
        while begun.elapsed() < END_MAX && is_mounted(&place, &line.pool) {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn pass_signal_on(&self) {
        let each = |act: &dyn Fn(&mut Child) -> bool| {
            let mut by_pool = lock(&self.by_pool);
            let children = by_pool.values_mut().filter_map(|mounted| match &mut mounted.doing {
                Doing::Serving(child) => Some(child),
                Doing::Importing(_) | Doing::Nothing => None,
            });
            children.map(act).fold(false, |any, one| any | one)
        };
        let is_alive = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        each(&|child| {
            // SAFETY: a signal to a child that was not waited for.
            is_alive(child) && unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) } == 0
        });
        let begun = Instant::now();
        while begun.elapsed() < SIGNAL_MAX && each(&is_alive) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Why a pool that somebody serves here is not mounted where it belongs.
fn elsewhere(line: &JunctionLine, place: &Path, about: &About) -> String {
    let there = about.mountpoint.display();
    match about.pool_id == line.pool_id {
        true if about.mountpoint == *place => {
            format!("its process ({}) is beginning, or ending while somebody still uses it", about.process)
        }
        true => format!("it is mounted on {there}: unmount it there with `stere umount {there}`"),
        false => format!("another pool of this name is mounted on {there}"),
    }
}

/// Whether this pool is mounted at a place.
fn is_mounted(place: &Path, pool: &str) -> bool {
    mountinfo::find(place).is_some_and(|mount| mount.is_stere() && mount.source == pool)
}

/// Makes a pool known on this machine, as `stere pool import` does. Its log has the address that this machine has of the engine.
fn import(registry: &Registry, line: &JunctionLine, log: String) -> Result<()> {
    let places: Vec<PathBuf> = line.places.iter().map(PathBuf::from).filter(|place| is_everywhere(place)).collect();
    let assemble =
        |places: &[PathBuf]| assemble_with(places, Access::ReadOnly, &AssembleOptions::default(), Some(&log));
    // One that can be reached is enough: the owner tells of the others.
    let one = || places.iter().find_map(|place| assemble(std::slice::from_ref(place)).ok());
    let assembly = assemble(&places).or_else(|error| one().ok_or(error))?;
    let record = record_of(&assembly, None);
    if record.id != line.pool_id || record.name != line.pool {
        return refused(format!("the pool '{}' is at its places, not '{}'", record.name, line.pool));
    }
    registry.save(&PoolRecord { log: Some(log), ..record })
}
