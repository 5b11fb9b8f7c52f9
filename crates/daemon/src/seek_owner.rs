//! Who owns a pool whose log is shared, as the log's beats tell; and standing by: an owner's process of this machine when there is none.
//!
//! One thread looks at the log, so that whoever asks never waits for it. Invariant: an owner's process is begun only while nobody beats;
//! whether it becomes the owner is decided by the log. Read next: `serve_client.rs`, `crates/multihost/src/log_claim.rs`.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_client::Announcement;
use stere_format::{MachineEntry, MachineState, OwnerBeat, PoolId};
use stere_multihost::{Multihost, SILENCE_MS, Seen, Silence, boot_ms};
use stere_shared_log::SharedLog;

use crate::daemon::lock;
use crate::mount_request::MountRequest;
use crate::options::Options;
use stere_machine::admission;
use stere_machine::devices::Target;
use stere_machine::error::{Error, Result, refused};
use stere_machine::mountinfo;
use stere_machine::registry::Registry;
use stere_machine::shared_log;

/// Between two looks at the log.
const LOOK: Duration = Duration::from_millis(250);
/// Between two owner's processes, where the first ends at once.
const AGAIN: Duration = Duration::from_secs(2);
/// How long an owner's process of this machine may take to close the pool.
const CLOSE_MAX: Duration = Duration::from_secs(60);
/// A mount that finds an owner which beats within so long is a client at once.
pub const BEAT_SEEN_MAX: Duration = Duration::from_millis(1500);
/// An owner that beats no more than this is one that nobody has to reckon with.
pub const SILENT_MAX: Duration = Duration::from_millis(SILENCE_MS);

/// Opens the log of the pool that a mount is asked for; none where it is not shared.
pub fn log_of(target: &Target) -> Result<Option<(Arc<dyn SharedLog>, PoolId)>> {
    let Target::Remembered(record) = target else { return Ok(None) };
    shared_log::open_of(record)
}

/// Whether somebody owns the pool now, as far as can be seen within so long. A busy owner may beat less often than each second.
pub fn has_owner(log: &dyn SharedLog, within: Duration) -> bool {
    let mut silence = Silence::new(boot_ms);
    let mut first: Option<Seen> = None;
    let begun = Instant::now();
    while begun.elapsed() < within {
        match silence.look(log) {
            Ok((seen @ Seen::Owner(_), _)) => match &first {
                Some(before) if *before != seen => return true,
                _ => first = Some(seen),
            },
            // Whoever opens the pool is told more.
            _ => return false,
        }
        std::thread::sleep(LOOK / 2);
    }
    false
}

/// An owner, and the key that the registry has for its machine, if it is admitted.
#[derive(Clone)]
struct Found {
    beat: OwnerBeat,
    key: Option<[u8; 32]>,
}

struct Seeking {
    log: Arc<dyn SharedLog>,
    owner: Mutex<Option<Found>>,
    /// Why the last look failed.
    trouble: Mutex<Option<String>>,
    /// That an owner's process of this machine failed since there was an owner.
    failure: Mutex<Option<String>>,
    /// Whether this machine can own the pool, and whether somebody wants it to from now on.
    stands_by: bool,
    is_wanted: AtomicBool,
    is_over: AtomicBool,
}

/// Looks for the owner of a pool until it is dropped.
pub struct OwnerSeeker {
    seeking: Arc<Seeking>,
    thread: Option<JoinHandle<()>>,
}

impl OwnerSeeker {
    /// `starter` begins an owner's process where this machine stands by.
    pub fn start(log: Arc<dyn SharedLog>, starter: Option<Starter>) -> Result<OwnerSeeker> {
        let seeking = Arc::new(Seeking {
            log,
            owner: Mutex::default(),
            trouble: Mutex::default(),
            failure: Mutex::default(),
            stands_by: starter.is_some(),
            is_wanted: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let of_thread = seeking.clone();
        let look = move || of_thread.keep_looking(starter);
        let thread = std::thread::Builder::new().name("seek-owner".into()).spawn(look).map_err(Error::System)?;
        Ok(OwnerSeeker { seeking, thread: Some(thread) })
    }

    /// What a client asks again and again.
    pub fn find(&self) -> impl Fn() -> Option<Announcement> + Send + Sync + 'static {
        let seeking = self.seeking.clone();
        move || {
            let Found { beat, key } = lock(&seeking.owner).clone()?;
            let (address, secret, key) = (beat.address, beat.secret, key?);
            (!address.is_empty()).then_some(Announcement { address, secret, key, epoch: beat.epoch.into() })
        }
    }

    /// Has this machine take the pool, whoever has it.
    pub fn take(&self) -> impl Fn() -> Result<()> + Send + Sync + 'static {
        let seeking = self.seeking.clone();
        move || {
            if !seeking.stands_by {
                return refused("this mount cannot own the pool (-o nostandby, or read only): mount it with --standby");
            }
            seeking.is_wanted.store(true, Ordering::Release);
            Ok(())
        }
    }

    /// The host of the owner, for messages.
    pub fn host(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let seeking = self.seeking.clone();
        move || lock(&seeking.owner).as_ref().map(|owner| owner.beat.host.clone())
    }

    /// Why the log cannot be read, or this machine does not become the owner, if so.
    pub fn trouble(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let seeking = self.seeking.clone();
        move || lock(&seeking.trouble).clone().or_else(|| lock(&seeking.failure).clone())
    }
}

impl Drop for OwnerSeeker {
    fn drop(&mut self) {
        self.seeking.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that looks for the owner panicked");
            }
        }
    }
}

impl Seeking {
    /// The owner's key is looked up once for each owner.
    fn with_key(&self, beat: OwnerBeat, is_told: &mut bool) -> Found {
        let known =
            lock(&self.owner).as_ref().filter(|known| known.beat.owner == beat.owner).and_then(|known| known.key);
        if known.is_some() {
            return Found { beat, key: known };
        }
        let is_it = |entry: &MachineEntry| entry.machine == beat.machine && entry.state == MachineState::Admitted;
        let entries = admission::read(&*self.log).map(|machines| machines.entries);
        let key = entries.ok().and_then(|entries| entries.into_iter().find(is_it)).map(|entry| entry.public_key);
        // Whoever opens a pool registers before it announces itself.
        let is_strange = key.is_none() && !beat.address.is_empty();
        if is_strange && !std::mem::replace(is_told, true) {
            tracing::warn!(
                host = beat.host,
                "the owner is not among the admitted machines of the registry, or that cannot be read: it is not believed"
            );
        }
        Found { beat, key }
    }

    fn keep_looking(&self, mut starter: Option<Starter>) {
        let mut silence = Silence::new(boot_ms);
        let mut is_told = false;
        while !self.is_over.load(Ordering::Acquire) {
            let looked = silence.look(&*self.log);
            *lock(&self.trouble) = looked.as_ref().err().map(ToString::to_string);
            if let Ok((seen, silent_ms)) = looked {
                let is_free = match &seen {
                    Seen::Nobody => true,
                    Seen::Owner(_) => silent_ms >= SILENCE_MS,
                };
                let silent = match (&seen, silence.end()) {
                    (Seen::Owner(beat), Some(next)) => {
                        let owner = u128::from_be_bytes(beat.owner);
                        Some(format!("silent={owner:032x}.{}.{next}.{silent_ms}", beat.sequence))
                    }
                    _ => None,
                };
                let owner = match seen {
                    Seen::Owner(beat) => Some(self.with_key(beat, &mut is_told)),
                    Seen::Nobody => None,
                };
                if !is_free {
                    *lock(&self.failure) = None;
                }
                *lock(&self.owner) = owner;
                if let Some(starter) = starter.as_mut()
                    && starter.child.is_none()
                {
                    starter.takes |= self.is_wanted.swap(false, Ordering::AcqRel);
                }
                if let Some(starter) = starter.as_mut().filter(|starter| is_free || starter.takes) {
                    starter.start_if_none(silent);
                }
            }
            if let Some(status) = starter.as_mut().and_then(Starter::note_end) {
                let failure = "this machine tried to become the owner and failed; its log tells why";
                *lock(&self.failure) = (!status.success()).then(|| failure.to_owned());
                // It found an owner, or a log that takes nothing: whoever lives has time to beat before another one tries.
                silence = Silence::new(boot_ms);
            }
            std::thread::park_timeout(LOOK);
        }
        if let Some(starter) = starter {
            starter.end();
        }
    }
}

/// Begins and ends the owner's process of this machine.
pub struct Starter {
    command: Vec<std::ffi::OsString>,
    state: std::path::PathBuf,
    child: Option<Child>,
    last: Option<Instant>,
    /// The first process takes the pool from whoever has it.
    takes: bool,
}

impl Starter {
    /// Of a mount that stands by: the same pool and options, at a place of its own.
    pub fn new(registry: &Registry, request: &MountRequest, pool: &str) -> Result<Starter> {
        assert!(!pool.contains('/'), "the name of a pool is a part of paths");
        let place = registry.run_directory()?.join(format!("{pool}.owned"));
        mountinfo::take_away_dead(&place)?;
        std::fs::create_dir_all(&place).map_err(Error::System)?;
        let program = std::env::current_exe().map_err(Error::System)?;
        let mut command: Vec<std::ffi::OsString> = vec![program.into(), "mount".into(), "--foreground".into()];
        // Programs wait: nodes that are not there at once are caught up later.
        command.extend(["-o".into(), "wait=1s".into()]);
        let words = request.option_texts.iter().flat_map(|text| text.split(','));
        let is_of_mount =
            |word: &str| matches!(word, "take" | "standby" | "nostandby" | "exact" | "") || Options::is_of_client(word);
        for word in words.filter(|word| !is_of_mount(word)) {
            command.extend(["-o".into(), word.into()]);
        }
        command.extend(["-o".into(), "owner_process".into(), pool.into(), place.into()]);
        Ok(Starter {
            command,
            state: registry.state().to_owned(),
            child: None,
            last: None,
            takes: request.options.multihost == Multihost::Take,
        })
    }

    fn start_if_none(&mut self, silent: Option<String>) {
        let is_too_soon = self.last.is_some_and(|last| last.elapsed() < AGAIN);
        if self.child.is_some() || is_too_soon {
            return;
        }
        self.last = Some(Instant::now());
        assert!(self.command.len() > 2, "a program, its command, and more");
        let mut command = Command::new(&self.command[0]);
        let how = if std::mem::take(&mut self.takes) { Some("take".to_owned()) } else { silent };
        command.arg("mount").args(how.iter().flat_map(|how| ["-o", how.as_str()])).args(&self.command[2..]);
        command.env("STERE_STATE", &self.state).current_dir("/").stdin(Stdio::null());
        match command.spawn() {
            Ok(child) => {
                tracing::info!(process = child.id(), "nobody owns the pool: this machine takes it over");
                self.child = Some(child);
            }
            Err(error) => tracing::error!(%error, "the owner's process cannot be started"),
        }
    }

    /// Takes note of a process that has ended.
    fn note_end(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())?;
        tracing::info!(%status, "the owner's process of this machine has ended");
        self.child = None;
        Some(status)
    }

    /// The pool is closed in order, so that others take it over at once.
    fn end(self) {
        let Some(mut child) = self.child else { return };
        // SAFETY: a signal to a child that was not waited for.
        let _told = unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        let begun = Instant::now();
        while begun.elapsed() < CLOSE_MAX && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK / 4);
        }
        if matches!(child.try_wait(), Ok(None)) {
            tracing::warn!(process = child.id(), "the owner's process has not ended; it goes on");
        }
    }
}
