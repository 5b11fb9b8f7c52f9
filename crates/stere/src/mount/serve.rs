//! The process of a mount: owns the pool, the file system and the session; ends when it is unmounted or told to stop.
//!
//! Three threads work beside the session: `work.rs` makes changes durable and cleans, `repair.rs` catches devices up, rebuilds
//! and scrubs, and one answers the control socket; `public.rs` answers those who only use the mount.

use std::ops::ControlFlow;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stere_device::Access;
use stere_fuse::{Forgetter, Session, Unmount, Unmounter};
use stere_multihost::Guard;
use stere_naming::{FileSystem, Io};
use stere_pool::{Assembly, OpenOptions, WhyLeftOut};
use zeroize::Zeroize;

use super::background::{Outcome, Ready};
use super::backup::{self, Backups};
use super::library::Library;
use super::notify::notify;
use super::{Job, follow, public, repair, tertiary, work};
use crate::clock;
use crate::control::{self, About, Answer, Request};
use crate::devices::Target;
use crate::error::{DONE, Error, Result, refused};
use crate::registry::{Registry, check_name};
use crate::report::{self, Facts, RecoveryFacts};
use crate::running::Running;
use crate::running::change::Outcome as Changed;
use crate::{claim, class, keys, layout, lose, metrics, mountinfo, people, plugins, quota, reconcile, rules, usage};

/// How long files may stay open after a signal before the mount is broken off.
const OPEN_FILES_PATIENCE: Duration = Duration::from_secs(10);

/// What the threads of the process share.
pub struct Daemon {
    pub about: About,
    facts: Facts,
    unmounter: Unmounter,
    pub forgetter: Forgetter,
    pub running: Arc<Running>,
    pub filesystem: Arc<FileSystem>,
    pub library: Library,
    pub backups: Backups,
    pub stop: AtomicBool,
    /// Clients that wait until everything is durable.
    ending: Mutex<Vec<UnixStream>>,
}

impl Daemon {
    fn new(
        job: &Job,
        facts: Facts,
        session: &Session,
        running: Arc<Running>,
        filesystem: Arc<FileSystem>,
    ) -> Result<Daemon> {
        let ended_at_once = || Error::Refused("the mount ended at once; see the log".into());
        let about = About {
            process: std::process::id(),
            pool: running.pool.clone(),
            pool_id: running.id.clone(),
            mountpoint: job.mountpoint.clone(),
            device: mountinfo::find(&job.mountpoint).map(|mount| mount.device),
            read_only: running.read_only,
        };
        Ok(Daemon {
            about,
            facts,
            unmounter: session.unmounter().ok_or_else(ended_at_once)?,
            forgetter: session.forgetter().ok_or_else(ended_at_once)?,
            running,
            filesystem,
            library: Library::new(&job.options.fuse, session.turns()),
            backups: Backups::default(),
            stop: AtomicBool::new(false),
            ending: Mutex::new(Vec::new()),
        })
    }

    /// Takes the mount down, as far as that goes.
    pub fn take_down(&self) {
        if let Err(error) = self.unmounter.unmount(Unmount::Lazy) {
            tracing::error!(%error, "the mount cannot be ended");
        }
    }
}

/// Mounts and serves until the mount ends.
pub fn serve(registry: &Registry, job: Job) -> Result<u8> {
    let mut ready = Ready::from_environment();
    let background = ready.is_background();
    match serve_until_the_end(registry, job, &mut ready) {
        Err(error) if background => {
            let (message, exit_code) = (error.to_string(), error.exit_code());
            tracing::error!("{message}");
            ready.tell(&Outcome::Failed { message, exit_code });
            // Told to the parent, or already in the log.
            Ok(exit_code)
        }
        other => other,
    }
}

fn serve_until_the_end(registry: &Registry, job: Job, ready: &mut Ready) -> Result<u8> {
    limit_memory();
    unblock_signals();
    let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Error::System)?;
    let (assembly, guard, opened, duration) = open(registry, &job, ready)?;
    let degraded = !assembly.missing().is_empty();
    let (warnings, recovery) = (opened.warnings.clone(), opened.recovery.clone());
    let warnings_of_absent = opened.warnings_of_absent.clone();
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let running = start_running(registry, &job, assembly, guard, opened);
    let filesystem = open_filesystem(&running, &job)?;
    let pool = running.pool.clone();
    let metrics = job.options.metrics.map(metrics::listen).transpose()?;
    let listener = control::listen(registry, &pool)?;
    if ready.is_abandoned() {
        control::remove(registry, &pool);
        return refused("the command that began this mount was interrupted");
    }
    let session = mount(&running, &filesystem, &job)?;
    let facts = Facts {
        mountpoint: Some(job.mountpoint.display().to_string()),
        warnings: warnings.clone(),
        warnings_of_absent,
        recovery: RecoveryFacts::new(&recovery, duration.as_millis() as u64),
    };
    let daemon = Arc::new(Daemon::new(&job, facts, &session, running, filesystem)?);
    let workers = Workers::start(&daemon, &session, &job)?;
    start_control(daemon.clone(), listener)?;
    let is_private = !job.options.fuse.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root());
    let socket = public::start(&daemon, is_private);
    if let Some(server) = metrics {
        let daemon = daemon.clone();
        metrics::serve(server, move || report::gather(&daemon.running, &daemon.facts, Some(&daemon.filesystem)))?;
    }
    start_signals(daemon.clone(), signals)?;
    end_when_taken_over(&daemon);
    ready.tell(&Outcome::Ready { degraded, warnings });
    notify("READY=1");
    tracing::info!(pool, mountpoint = %job.mountpoint.display(), ?duration, ?recovery, "ready");
    let ended = session.wait(|| daemon.library.end(&daemon.running.gate));
    drop(socket);
    notify("STOPPING=1");
    let worked = workers.end(&daemon);
    let outcome = end(&daemon, ended, worked);
    daemon.running.give_up_claim();
    control::remove(registry, &pool);
    answer_waiting_clients(&daemon, &outcome);
    outcome.map(|()| DONE)
}

/// The pool as it runs, with what the options of the mount say of it.
fn start_running(
    registry: &Registry,
    job: &Job,
    assembly: Assembly,
    guard: Guard,
    opened: stere_pool::Opened,
) -> Arc<Running> {
    let running = Arc::new(Running::new(registry, &assembly, Some(guard), opened));
    running.store.set_health_limits(job.options.health_limits);
    running.store.tier.recalls.set_recall_mode(job.options.recall);
    running.store.tier.recalls.set_prefetch(job.options.prefetch);
    running.gate.set_timeout(job.options.recall_timeout);
    running.remember();
    fill_other_halves_anew(&running, &assembly);
    // The assembly ends here: it holds the devices open, and one that goes offline must be let go.
    running
}

/// The file system on the pool, unlocked as far as the options say.
fn open_filesystem(running: &Running, job: &Job) -> Result<Arc<FileSystem>> {
    let naming_options = stere_naming::Options {
        access_times: job.options.access_times,
        files: stere_file::Options {
            dirty_bytes_max: (job.options.memory_bytes as u64 / 16).clamp(4 << 20, 64 << 20),
            dirty_steps_max: work::STEPS_PER_COMMIT,
            encryption_salt: Some(keys::random()),
            plugin_loader: plugins::loader(),
            coders: stere_file::Coders::of_processors(),
            ..stere_file::Options::default()
        },
        rules_bytes_max: (job.options.memory_bytes / 32).clamp(2 << 20, 64 << 20),
        people: people::system(),
        processes: people::processes::system(),
        refused_programs: job.options.recall_deny.clone(),
    };
    let filesystem = Arc::new(FileSystem::new(running.store.clone(), naming_options)?);
    keys::unlock_by_files(&filesystem, &job.options.key_files)?;
    filesystem.reconciler().pause_reconcile(running.is_reconcile_paused());
    Ok(filesystem)
}

fn mount(running: &Running, filesystem: &Arc<FileSystem>, job: &Job) -> Result<Session> {
    let mut fuse = job.options.fuse.clone();
    fuse.source = running.pool.clone();
    fuse.read_only = running.read_only;
    Ok(stere_fuse::mount(filesystem.clone(), running.store.clone(), &job.mountpoint, &fuse)?)
}

/// The threads that work beside the session until it ends.
struct Workers {
    commits: JoinHandle<()>,
    others: [JoinHandle<()>; 4],
}

impl Workers {
    fn start(daemon: &Arc<Daemon>, session: &Session, job: &Job) -> Result<Workers> {
        let counter = || requests_of_all(daemon, session.request_counter());
        let commits = work::start(daemon.clone(), counter(), job.options.commit, daemon.running.read_only)?;
        let repairer = repair::start(daemon.clone(), counter(), &job.options)?;
        let carrier = tertiary::start(daemon.clone(), counter(), &job.options)?;
        let keeper = backup::start(daemon.clone(), daemon.running.read_only)?;
        let follower = follow::start(daemon.clone(), daemon.running.read_only)?;
        daemon.running.tertiary.set_turns(session.turns());
        let notifier = session.notifier();
        daemon.running.tertiary.set_forget(Box::new(move |inode| {
            // Not to have it cached is no error.
            drop(notifier.as_ref().map(|notifier| notifier.invalidate_inode(inode, -1, 0)));
        }));
        let waked = Arc::downgrade(daemon);
        daemon.filesystem.units().wake_on_recalls(Box::new(move || {
            waked.upgrade().into_iter().for_each(|daemon| daemon.running.tertiary.wake());
        }));
        Ok(Workers { commits, others: [repairer, carrier, keeper, follower] })
    }

    /// Tells them to stop and waits for all. Says whether none panicked.
    fn end(self, daemon: &Daemon) -> bool {
        daemon.stop.store(true, Ordering::Release);
        self.commits.thread().unpark();
        daemon.running.mending.wake();
        daemon.running.tertiary.wake();
        daemon.backups.wake();
        self.others[3].thread().unpark();
        let commits = self.commits.join();
        let others = self.others.map(JoinHandle::join);
        commits.is_ok() && others.iter().all(|ended| ended.is_ok())
    }
}

/// Requests of the kernel and of those who go past it. Unchanged for a while: the mount is idle.
fn requests_of_all(
    daemon: &Arc<Daemon>,
    of_kernel: impl Fn() -> u64 + Send + Sync + 'static,
) -> impl Fn() -> u64 + Send + Sync + 'static {
    let daemon = daemon.clone();
    move || of_kernel() + daemon.library.served()
}

/// Opens the devices and the pool on them; also tells how long recovery took.
fn open(registry: &Registry, job: &Job, ready: &mut Ready) -> Result<(Assembly, Guard, stere_pool::Opened, Duration)> {
    if let Target::Remembered(record) = &job.target {
        refuse_twice(registry, &record.name)?;
    }
    let access = if job.options.fuse.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let (wait, prefer) = (job.options.wait, job.options.prefer.as_deref());
    let mut is_told = false;
    let mut goes_on = |missing: &str| {
        if !std::mem::replace(&mut is_told, true) {
            ready.tell_waiting(&format!(
                "waiting up to {} s for {missing}; interrupt to stop, or mount with -o wait=0 to go on without",
                wait.as_secs()
            ));
        }
        !ready.is_abandoned()
    };
    let (assembly, guard) =
        claim::assemble_while(registry, &job.target, access, (wait, prefer), job.options.multihost, &mut goes_on)?;
    check_name(&assembly.newest.pool_name)?;
    refuse_twice(registry, &assembly.newest.pool_name)?;
    let options = OpenOptions {
        memory_bytes: job.options.memory_bytes,
        read_only: job.options.fuse.read_only,
        degraded: job.options.degraded,
        epoch_nonce: crate::device::epoch_nonce(),
        ..OpenOptions::default()
    };
    let start = Instant::now();
    let path_of =
        |entry: &stere_format::DeviceEntry| registry.place_of(&assembly.newest.pool_name, &entry.id.to_string());
    let opened = assembly.open(&options, &path_of)?;
    Ok((assembly, guard, opened, start.elapsed()))
}

fn refuse_twice(registry: &Registry, pool: &str) -> Result<()> {
    match control::about(registry, pool) {
        None => Ok(()),
        Some(about) if mountinfo::find(&about.mountpoint).is_none_or(|mount| !mount.is_stere()) => refused(format!(
            "the pool '{pool}' was unmounted from {}, and its daemon (process {}) still serves it to others, or is ending; `stere umount {pool}` tells who has it",
            about.mountpoint.display(),
            about.process
        )),
        Some(about) => refused(format!(
            "a pool named '{pool}' is already mounted on {0}; use it there, or unmount it with `stere umount {0}`",
            about.mountpoint.display()
        )),
    }
}

/// What was written only to the half that was not chosen is given up: its devices join the other half, empty.
fn fill_other_halves_anew(running: &Running, assembly: &Assembly) {
    if running.read_only {
        return;
    }
    for one in assembly.left_out.iter().filter(|one| one.why == WhyLeftOut::OtherHistory) {
        let Some(entry) = assembly.entries.iter().find(|entry| entry.id == one.member.superblock.device) else {
            continue;
        };
        let (path, device) = (one.member.path.clone(), one.member.device.clone());
        match running.fill_anew(entry, path, device) {
            Ok(_) => tracing::warn!(device = entry.name, "written to without the others, not chosen: filled anew"),
            Err(error) => tracing::error!(%error, device = entry.name, "the device stays left out"),
        }
    }
    running.remember();
}

/// Makes the last changes durable.
fn end(daemon: &Daemon, ended: std::result::Result<(), stere_fuse::Error>, worked: bool) -> Result<()> {
    match ended {
        // There was nothing to make durable.
        Err(stere_fuse::Error::Close(_)) if daemon.running.read_only => {}
        other => other?,
    }
    if !worked {
        return refused(
            "the background work panicked, so the mount was taken down; everything that was synced is safe: mount again, and please report the panic message in the log",
        );
    }
    if let Some(cause) = daemon.running.store.failure() {
        return refused(format!(
            "the pool had stopped writing ({cause}): what was not synced before that is lost; check the devices, then mount the pool again"
        ));
    }
    daemon.running.remember();
    if let Err(error) = daemon.running.keep_scrub_cursor() {
        tracing::warn!(%error, "the next scrub begins where it was noted before");
    }
    if !daemon.running.read_only {
        tertiary::keep_heat(daemon);
        tertiary::copy_metadata_at_end(daemon);
    }
    daemon.running.store.close()?;
    daemon.running.gate.close_media();
    tracing::info!(pool = daemon.about.pool, "unmounted, everything is durable");
    Ok(())
}

fn answer_waiting_clients(daemon: &Daemon, outcome: &Result<()>) {
    let answer = match outcome {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Failed { message: error.to_string(), ended: true },
    };
    for mut stream in lock(&daemon.ending).drain(..) {
        control::send(&mut stream, &answer);
    }
}

fn failed(why: &dyn std::fmt::Display) -> Answer {
    Answer::Failed { message: why.to_string(), ended: false }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop).map_err(Error::System)
}

fn start_control(daemon: Arc<Daemon>, listener: UnixListener) -> Result<()> {
    spawn("control", move || {
        for stream in listener.incoming().flatten() {
            let daemon = daemon.clone();
            // A client more or less: those that cannot be served see the connection close.
            drop(spawn("client", move || converse(&daemon, stream)));
        }
    })
}

fn converse(daemon: &Arc<Daemon>, stream: UnixStream) {
    let Ok(mut reader) = stream.try_clone().map(std::io::BufReader::new) else { return };
    let mut stream = stream;
    let mut line = String::new();
    while std::io::BufRead::read_line(&mut reader, &mut line).is_ok_and(|length| length > 0) {
        let answer = match serde_json::from_str(&line) {
            Ok(Request::Unmount { lazy, force }) => unmount(daemon, &stream, lazy, force),
            Ok(Request::Lose { devices }) => Some(lose(daemon, &mut stream, &devices)),
            Ok(Request::TestRules { directory, rules }) => {
                let mut send = |answer| control::try_send(&mut stream, &answer);
                let told = rules::forecast(&daemon.filesystem, directory, &rules, &mut send);
                Some(told.unwrap_or_else(|error| failed(&error)))
            }
            Ok(request) => Some(answer(daemon, request)),
            Err(error) => Some(failed(&format!("the request is not understood: {error}"))),
        };
        if let Some(answer) = answer {
            control::send(&mut stream, &answer);
        }
        // There may be a secret in it.
        line.zeroize();
    }
}

fn answer(daemon: &Daemon, request: Request) -> Answer {
    match request {
        Request::About | Request::Unmount { .. } | Request::Lose { .. } | Request::TestRules { .. } => {
            Answer::About(daemon.about.clone())
        }
        Request::Layout { inode, from } => match layout::gather(&daemon.filesystem, &daemon.running, inode, from) {
            Ok(layout) => Answer::Layout(layout),
            Err(error) => failed(&error),
        },
        Request::Usage { inode } => match usage::gather(&daemon.filesystem, inode) {
            Ok(report) => Answer::Usage(Box::new(report)),
            Err(error) => failed(&error),
        },
        Request::Reconcile { order } => match reconcile::serve(&daemon.filesystem, &daemon.running, order) {
            Ok(report) => Answer::Reconcile(report),
            Err(error) => failed(&error),
        },
        Request::Keys { order } => keys::serve(&daemon.filesystem, &daemon.running, &daemon.forgetter, order)
            .unwrap_or_else(|error| failed(&error)),
        Request::Plugins { order } => plugins::serve(&daemon.filesystem, order).unwrap_or_else(|error| failed(&error)),
        Request::Backups { order } => crate::backup::serve(&daemon.filesystem, &daemon.backups, &daemon.about, order)
            .unwrap_or_else(|error| failed(&error)),
        Request::Digests { order } => {
            crate::digest::serve(&daemon.filesystem, order).unwrap_or_else(|error| failed(&error))
        }
        Request::Classes { order } => class::serve(&daemon.filesystem, order).unwrap_or_else(|error| failed(&error)),
        Request::Accounts { order } => quota::serve(&daemon.filesystem, order).unwrap_or_else(|error| failed(&error)),
        Request::Rules { order } => rules::serve(&daemon.filesystem, order).unwrap_or_else(|error| failed(&error)),
        Request::Status => {
            Answer::Status(Box::new(report::gather(&daemon.running, &daemon.facts, Some(&daemon.filesystem))))
        }
        Request::Change { change, dry_run } => match daemon.running.change(&change, dry_run) {
            Ok(Changed::Forecast(forecast)) => Answer::Forecast(forecast),
            Ok(Changed::Done(said)) => {
                tracing::info!(?change, "{said}");
                reconcile::try_again(&daemon.filesystem, &daemon.running);
                match reconcile::use_devices(&daemon.filesystem, &change) {
                    Ok(()) => Answer::Changed { said },
                    Err(error) => failed(&error),
                }
            }
            Err(error) => failed(&error),
        },
        Request::Tier { order } => match crate::tier::serve(&daemon.filesystem, &daemon.running, &order) {
            Ok(told) => Answer::Tier(told),
            Err(error) => failed(&error),
        },
        Request::Scrub { order } => match daemon.running.scrub_order(order) {
            Ok(report) => Answer::Scrub(report),
            Err(error) => failed(&error),
        },
        // Nothing changes, so nothing waits to be written.
        Request::Flush { .. } if daemon.running.read_only => Answer::Done,
        Request::Flush { wait: true } => match daemon.filesystem.syncfs(&clock::own_caller(Io::BLOCKING)) {
            Ok(()) => Answer::Done,
            Err(error) => failed(&error),
        },
        Request::Flush { wait: false } => {
            let filesystem = daemon.filesystem.clone();
            let flush = move || {
                if let Err(error) = filesystem.syncfs(&clock::own_caller(Io::BLOCKING)) {
                    tracing::error!(%error, "a flush failed");
                }
            };
            match spawn("flush", flush) {
                Ok(()) => Answer::Done,
                Err(error) => failed(&error),
            }
        }
    }
}

/// Sends files as they are found; the answer is what it comes to.
fn lose(daemon: &Daemon, stream: &mut UnixStream, devices: &[String]) -> Answer {
    let mut send = |files| match control::try_send(stream, &Answer::LostFiles { files }) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    match lose::gather(&daemon.running.store, &daemon.about.pool, devices, &mut send) {
        Ok(report) => Answer::Loss(report),
        Err(error) => failed(&error),
    }
}

/// Unmounts; who asked is answered when everything is durable, or now if it cannot be.
fn unmount(daemon: &Arc<Daemon>, stream: &UnixStream, lazy: bool, force: bool) -> Option<Answer> {
    if force || lazy {
        // Whoever waits for a volume is told that it does not come.
        daemon.running.gate.close();
    }
    let how = match (force, lazy) {
        (true, _) => Unmount::Force,
        (false, true) => Unmount::Lazy,
        (false, false) => Unmount::Normal,
    };
    let client = match stream.try_clone() {
        Ok(client) => client,
        Err(error) => return Some(failed(&error)),
    };
    let number = std::os::fd::AsRawFd::as_raw_fd(&client);
    lock(&daemon.ending).push(client);
    match daemon.unmounter.unmount(how) {
        Ok(()) => {
            if force {
                end_soon(daemon);
            }
            None
        }
        Err(error) => {
            lock(&daemon.ending).retain(|client| std::os::fd::AsRawFd::as_raw_fd(client) != number);
            Some(failed(&error))
        }
    }
}

/// SIGTERM, SIGINT and SIGHUP end the mount in order. Who still has files open gets a little time.
fn start_signals(daemon: Arc<Daemon>, mut signals: signal_hook::iterator::Signals) -> Result<()> {
    spawn("signals", move || {
        for signal in signals.forever() {
            tracing::info!(signal, "told to stop");
            let unmounter = &daemon.unmounter;
            if unmounter.unmount(Unmount::Normal).is_err() {
                tracing::warn!("files are open: the mount leaves the name space now and ends when they are closed");
                if let Err(error) = unmounter.unmount(Unmount::Lazy) {
                    tracing::error!(%error, "the mount cannot be ended");
                }
            }
            // Also where it could be unmounted: other mounts of it may keep it.
            end_soon(&daemon);
        }
    })
}

/// Another machine took the pool while this process stood still: nothing may be written any more, and what is read may be wrong.
fn end_when_taken_over(daemon: &Arc<Daemon>) {
    let daemon_of_claim = Arc::downgrade(daemon);
    daemon.running.on_claim_lost(Box::new(move |cause| {
        if let Some(daemon) = daemon_of_claim.upgrade() {
            daemon.running.store.stop_writing(cause);
            daemon.take_down();
        }
    }));
}

/// Ends the process after a while, if the mount has not ended by then. Without a thread it ends when nobody uses it any more.
fn end_soon(daemon: &Arc<Daemon>) {
    let daemon = daemon.clone();
    drop(spawn("patience", move || {
        std::thread::sleep(OPEN_FILES_PATIENCE);
        if !daemon.stop.load(Ordering::Acquire) {
            tracing::warn!("the mount is still in use: writing what is there and ending");
            end_by_force(&daemon);
        }
    }));
}

/// A lazy mount cannot be unmounted any more, so the process makes everything durable and ends.
fn end_by_force(daemon: &Daemon) {
    daemon.running.gate.close();
    let synced = daemon.filesystem.syncfs(&clock::own_caller(Io::BLOCKING));
    let answer = match synced {
        Ok(()) => Answer::Done,
        Err(error) => {
            tracing::error!(%error, "the last changes could not be made durable");
            Answer::Failed { message: error.to_string(), ended: true }
        }
    };
    for mut stream in lock(&daemon.ending).drain(..) {
        control::send(&mut stream, &answer);
    }
    std::process::exit(i32::from(crate::error::ERROR));
}

/// Whoever started us may have blocked the signals that end a mount; a blocked one would wait for ever.
fn unblock_signals() {
    // SAFETY: the set is initialised by sigemptyset before it is used, and lives on this stack.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// Keeps the allocator from holding on to more than the budget: few arenas, and large blocks go back at once.
fn limit_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain settings of the allocator, before other threads are started.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 32 << 20);
    }
}
