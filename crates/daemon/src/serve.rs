//! The process of a mount: owns the pool, the file system and the session; ends when it is unmounted or told to stop.
//!
//! A thread for each worker of the crate `jobs` works beside the session (`worker.rs`), and one answers the control socket;
//! `public.rs` answers those who only use the mount.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stere_device::Access;
use stere_format::PoolId;
use stere_fuse::Session;
use stere_multihost::Guard;
use stere_naming::FileSystem;
use stere_owner::{OwnerOptions, ReadMembers};
use stere_pool::{Assembly, OpenOptions, WhyLeftOut};
use stere_store::SharedLog;

use crate::answer::keys;
use crate::background::{Outcome, Ready};
use crate::client_control::{self, ClientControl};
use crate::client_keys::ClientKeys;
use crate::client_media::ClientMedia;
use crate::client_plugins::ClientPlugins;
use crate::clients::{self, Clients};
use crate::control_socket::{answer_waiting, start_control};
use crate::daemon::Daemon;
use crate::ending::{close_soon, end_when_lost, start_signals, unblock_signals};
use crate::junctions::Junctions;
use crate::mount_request::MountRequest;
use crate::nodes::{Codecs, PoolNodes};
use crate::notify::notify;
use crate::seek_owner::{self, OwnerSeeker, Starter};
use crate::serve_client::{self, ClientMount};
use crate::worker::Served;
use crate::{admit, backup, follow, give_way, learn_places, metrics, public, repair, tertiary, work};
use crate::{client_names, client_questions};
use stere_control::connection;
use stere_control::message::{About, Answer, Request};
use stere_control::status::RecoveryFacts;
use stere_machine::devices::Target;
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::{Registry, check_name};
use stere_machine::{admission, claim, mountinfo, plugins, random, shared_log};
use stere_online::report::{self, Facts};
use stere_online::running::Running;

/// Mounts and serves until the mount ends.
pub fn serve(registry: &Registry, request: MountRequest) -> Result<u8> {
    let mut ready = Ready::from_environment();
    let background = ready.is_background();
    match serve_until_the_end(registry, request, &mut ready) {
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

fn serve_until_the_end(registry: &Registry, request: MountRequest, ready: &mut Ready) -> Result<u8> {
    limit_memory();
    unblock_signals();
    admit::wait_until_admitted(registry, &request, ready)?;
    let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Error::System)?;
    if let Some(outcome) = serve_as_client(registry, &request, ready) {
        return outcome;
    }
    if request.options.maps_ids() {
        return refused(
            "users= and groups= are of a machine that mounts through the pool's owner, and this one would own the pool: mount it with --standby, or first where ids are those of the pool",
        );
    }
    let (assembly, guard, opened, duration) = match open(registry, &request, ready) {
        // Somebody was faster, or his first beats were not seen.
        Err(error) if is_anothers(&error) && !request.options.owner_process => {
            let Some((log, id)) = seek_owner::log_of(&request.target)? else { return Err(error) };
            return serve_client_of(registry, &request, log, id, ready);
        }
        opened => opened?,
    };
    refuse_half_owner(registry, &request, &assembly, &opened)?;
    let degraded = !assembly.missing().is_empty();
    let (warnings, recovery) = (opened.warnings.clone(), opened.recovery.clone());
    let warnings_of_absent = opened.warnings_of_absent.clone();
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let running = start_running(registry, &request, assembly, guard, opened);
    let filesystem = open_filesystem(&running, &request)?;
    let pool = match request.options.owner_process {
        true => connection::owner_name(&running.pool),
        false => running.pool.clone(),
    };
    let is_after_another = !recovery.clean;
    let metrics = request.options.metrics.map(metrics::listen).transpose()?;
    let listener = connection::listen(registry, &pool)?;
    if ready.is_abandoned() {
        connection::remove(registry, &pool);
        return refused("the command that began this mount was interrupted");
    }
    let mut session = mount(&running, &filesystem, &request)?;
    let facts = Facts {
        mountpoint: Some(request.mountpoint.display().to_string()),
        warnings: warnings.clone(),
        warnings_of_absent,
        recovery: RecoveryFacts::new(&recovery, duration.as_millis() as u64),
    };
    let daemon = Arc::new(Daemon::new(registry, &request, facts, &session, running.clone(), filesystem)?);
    let workers = Workers::start(&daemon, &session, &request)?;
    start_control(daemon.clone(), listener)?;
    let counting = daemon.clone();
    crate::daemon::spawn("io", move || crate::answer::io::count_until_the_end(&counting))?;
    let socket = public::start(&daemon, is_private(&request));
    if let Some(server) = metrics {
        let daemon = daemon.clone();
        let gather = move || report::gather(&daemon.running, &daemon.facts, Some(&daemon.filesystem));
        metrics::serve(server, move || metrics::render(&gather()))?;
    }
    start_signals(daemon.clone(), signals)?;
    if request.options.owner_process {
        // Another machine may reach what this one does not.
        running.store.devices.wait_for_none(None);
    }
    end_when_lost(&daemon)?;
    let gives_way = give_way::watch(&daemon)?;
    follow_junctions(&daemon)?;
    // Commands are answered by then: a client that was served asks for the state of the pool.
    serve_clients(registry, &daemon, &mut session, &request, is_after_another)?;
    ready.tell(&Outcome::Ready { degraded, warnings });
    notify("READY=1");
    tracing::info!(pool, mountpoint = %request.mountpoint.display(), ?duration, ?recovery, "ready");
    let ended = session.wait(|| daemon.library.end(&daemon.running.gate));
    drop(socket);
    notify("STOPPING=1");
    close_soon(&daemon);
    let worked = workers.end(&daemon);
    let outcome = end(&daemon, ended, worked);
    daemon.running.give_up_claim();
    connection::remove(registry, &pool);
    answer_waiting(&daemon.ending, &outcome);
    match outcome {
        Ok(()) if gives_way.load(Ordering::Acquire) => Err(give_way::begin_anew()),
        outcome => outcome.map(|()| DONE),
    }
}

/// Pools that are mounted in this one.
fn follow_junctions(daemon: &Arc<Daemon>) -> Result<()> {
    let Some(junctions) = &daemon.junctions else { return Ok(()) };
    let daemon = Arc::downgrade(daemon);
    Junctions::follow(junctions, move || {
        let daemon = daemon.upgrade().filter(|daemon| !daemon.stop.load(Ordering::Acquire))?;
        Some(crate::answer::junctions::list(&daemon.filesystem))
    })
}

/// Whether nobody but root and the user who mounts may use the mount.
fn is_private(request: &MountRequest) -> bool {
    !request.options.fuse.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root())
}

/// Whoever cannot write because it was never told where all devices are leaves the pool to others; its clients wait and are told why.
fn refuse_half_owner(
    registry: &Registry,
    request: &MountRequest,
    assembly: &Assembly,
    opened: &stere_pool::Opened,
) -> Result<()> {
    let is_wanted = request.options.fuse.read_only || !opened.read_only;
    if is_wanted || !request.options.owner_process {
        return Ok(());
    }
    let pool = &assembly.newest.pool_name;
    let is_unknown = |id: String| registry.path_of(pool, &id).is_none_or(|path| path.is_empty());
    let unknown = assembly.missing().into_iter().find(|entry| is_unknown(entry.id.to_string()));
    unknown.map_or(Ok(()), |entry| {
        refused(format!(
            "this machine was never told where device '{}' of the pool '{pool}' is, and cannot own the pool without it: name its place with `stere pool import`",
            entry.name
        ))
    })
}

/// The pool as it runs, with what the options of the mount say of it.
fn start_running(
    registry: &Registry,
    request: &MountRequest,
    assembly: Assembly,
    guard: Guard,
    opened: stere_pool::Opened,
) -> Arc<Running> {
    let running = Arc::new(stere_online::media::take_over(registry, &assembly, Some(guard), opened));
    running.store.health.set_health_limits(request.options.health_limits);
    running.store.tier.recalls.set_recall_mode(request.options.recall);
    running.store.tier.recalls.set_prefetch(request.options.prefetch);
    running.gate.set_timeout(request.options.recall_timeout);
    running.remember();
    fill_other_halves_anew(&running, &assembly);
    // The assembly ends here: it holds the devices open, and one that goes offline must be let go.
    running
}

/// So long nobody changes anything after an owner that was lost, unless all its clients have told what they have.
const GRACE: Duration = Duration::from_secs(4);

/// Other machines are served where the log is shared, and told where.
fn serve_clients(
    registry: &Registry,
    daemon: &Arc<Daemon>,
    session: &mut Session,
    request: &MountRequest,
    is_after_another: bool,
) -> Result<()> {
    let running = &daemon.running;
    if running.read_only {
        return Ok(());
    }
    let told = running.with_log_claim(|claim| (claim.secret(), claim.tail().epoch(), claim.tail().log().clone()));
    let Some((secret, epoch, log)) = told else { return Ok(()) };
    let key = admit::admitted(registry, &*log, &running.pool)?.key;
    let members: ReadMembers = Box::new(move || admission::read(&*log).ok().map(|machines| machines.entries));
    let pool = running.id.parse::<PoolId>().map_err(|_| Error::Refused("the pool has no id".into()))?.0;
    let address = request.options.listen.unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
    let grace = if is_after_another { GRACE } else { Duration::ZERO };
    let (epoch, commands) = (epoch.into(), clients::commands(daemon));
    let options = OwnerOptions { address, pool, secret, epoch, grace, key, members, commands };
    let clients = Clients::start(session, options)?;
    let mut address = clients.address();
    if address.ip().is_unspecified() {
        let log = match &request.target {
            Target::Remembered(record) => record.log.as_deref(),
            Target::Devices(_) => None,
        };
        address.set_ip(shared_log::own_address(log));
    }
    tracing::info!(%address, "other machines are served");
    running.with_log_claim(|claim| claim.announce(&address.to_string()));
    Ok(())
}

/// A mount of a pool that another machine owns, or that this one shall own only when nobody else does. None where this process is to own it.
fn serve_as_client(registry: &Registry, request: &MountRequest, ready: &mut Ready) -> Option<Result<u8>> {
    if request.options.owner_process {
        return None;
    }
    let takes = request.options.multihost == stere_multihost::Multihost::Take;
    let (log, id) = match seek_owner::log_of(&request.target) {
        Ok(Some(log)) => log,
        Ok(None) if request.options.standby == Some(true) || takes => {
            return Some(refused(
                "only a pool whose log is in an engine can be taken over; `stere pool move-log` moves it there",
            ));
        }
        Ok(None) => return None,
        Err(error) => return Some(Err(error)),
    };
    // A mount that cannot own the pool is refused where nobody does: that must be true.
    let within = if request.options.maps_ids() { seek_owner::SILENT_MAX } else { seek_owner::BEAT_SEEN_MAX };
    let is_client = request.options.standby.is_some() || (!takes && seek_owner::has_owner(&*log, within));
    is_client.then(|| serve_client_of(registry, request, log, id, ready))
}

fn serve_client_of(
    registry: &Registry,
    request: &MountRequest,
    log: Arc<dyn stere_shared_log::SharedLog>,
    id: PoolId,
    ready: &mut Ready,
) -> Result<u8> {
    let Target::Remembered(record) = &request.target else { return refused("a pool is mounted by its name here") };
    let pool = &record.name;
    refuse_twice(registry, request, pool)?;
    let listener = connection::listen(registry, pool)?;
    let registered = admit::admitted(registry, &*log, pool)?;
    let stands_by = request.options.standby.unwrap_or(!request.options.fuse.read_only);
    let metrics = request.options.metrics.map(metrics::listen).transpose()?;
    let starter = stands_by.then(|| Starter::new(registry, request, pool)).transpose()?;
    let seeker = OwnerSeeker::start(log, starter)?;
    let (keys, plugins) = (ClientKeys::new(), ClientPlugins::new());
    let codecs = Codecs { keys: keys.clone(), plugins: plugins.clone() };
    let nodes = PoolNodes::start(registry, pool, &record.id, request.options.fuse.read_only, codecs)?;
    let mount = ClientMount {
        find: Box::new(seeker.find()),
        pool: pool.clone(),
        pool_id: id.0,
        machine_id: registered.entry.machine,
        key: registered.key,
        users: request.options.users.clone(),
        groups: request.options.group_ids(),
        mountpoint: request.mountpoint.clone(),
        options: request.options.fuse.clone(),
        content: (Some(nodes.reading()), nodes.writing()),
    };
    let (mut control, mut socket) = (None, None);
    let junctions = Arc::new(Junctions::new(registry, request, pool));
    let is_private = is_private(request);
    let outcome = serve_client::serve(mount, &junctions, |link, unmounter| {
        junctions.set_unmounter(&unmounter);
        let about = About {
            process: std::process::id(),
            pool: pool.clone(),
            pool_id: record.id.clone(),
            mountpoint: request.mountpoint.clone(),
            device: mountinfo::find(&request.mountpoint).map(|mount| mount.device),
            read_only: request.options.fuse.read_only,
            through: None,
            junctions: Vec::new(),
        };
        let (registry, ending, link) = (registry.clone(), Default::default(), link.clone());
        let (junctions, take) = (junctions.clone(), Box::new(seeker.take()));
        let (host, log_trouble) = (Box::new(seeker.host()), Box::new(seeker.trouble()));
        let media = Arc::<ClientMedia>::default();
        let answering = ClientControl {
            registry,
            about,
            unmounter,
            host,
            log_trouble,
            link,
            keys: keys.clone(),
            media: media.clone(),
            junctions,
            take,
            ending,
        };
        let answering = Arc::new(answering);
        if let Err(error) = answering.start(listener) {
            tracing::error!(%error, "commands are not answered");
        }
        socket = client_questions::start(&answering, &request.mountpoint, is_private);
        if let Err(error) = client_names::start(&answering, &request.options) {
            tracing::error!(%error, "names are not looked up");
        }
        if let Err(error) = client_control::follow_junctions(&answering) {
            tracing::error!(%error, "pools in this one are not mounted");
        }
        if let Err(error) = learn_places::start(&answering) {
            tracing::error!(%error, "devices that this machine does not know are not looked for");
        }
        if let Err(error) = keys.start(&answering, &request.options.key_files) {
            tracing::error!(%error, "content of encrypted files is read and written by the owner");
        }
        if let Err(error) = media.start(&answering) {
            tracing::error!(%error, "media of this machine are not served");
        }
        if let Err(error) = plugins.start(&answering) {
            tracing::error!(%error, "content of files with plugins is read and written by the owner");
        }
        if let Some(Err(error)) = metrics.map(|server| serve_metrics(server, &answering)) {
            tracing::error!(%error, "metrics are not served");
        }
        control = Some(answering);
        ready.tell(&Outcome::Ready { degraded: false, warnings: Vec::new() });
        notify("READY=1");
    });
    notify("STOPPING=1");
    drop(socket);
    // An owner's process of this machine closes the pool in order.
    drop(seeker);
    connection::remove(registry, pool);
    control.iter().for_each(|control| answer_waiting(&control.ending, &outcome));
    outcome
}

/// What the owner says of the pool, and whether it does.
fn serve_metrics(server: tiny_http::Server, control: &Arc<ClientControl>) -> Result<()> {
    let (control, pool) = (Arc::downgrade(control), control.about.pool.clone());
    metrics::serve(server, move || {
        let answer = control.upgrade().map(|control| control.ask_for(Request::Status));
        let report = match &answer {
            Some(Ok(Answer::Status(report))) => Some(&**report),
            _ => None,
        };
        metrics::render_through(&pool, report)
    })
}

/// The file system on the pool, unlocked as far as the options say.
fn open_filesystem(running: &Running, request: &MountRequest) -> Result<Arc<FileSystem>> {
    let naming_options = stere_naming::Options {
        access_times: request.options.access_times,
        files: stere_file::Options {
            dirty_bytes_max: (request.options.memory_bytes as u64 / 16).clamp(4 << 20, 64 << 20),
            dirty_steps_max: stere_jobs::STEPS_PER_COMMIT,
            encryption_salt: Some(random::random()),
            plugin_loader: plugins::loader(),
            coders: stere_file::Coders::of_processors(),
            ..stere_file::Options::default()
        },
        rules_bytes_max: (request.options.memory_bytes / 32).clamp(2 << 20, 64 << 20),
        people: stere_people::system(),
        processes: stere_people::processes::system(),
        refused_programs: request.options.recall_deny.clone(),
    };
    let filesystem = Arc::new(FileSystem::new(running.store.clone(), naming_options)?);
    keys::unlock_by_files(&filesystem, &request.options.key_files)?;
    filesystem.reconciler().pause_reconcile(running.is_reconcile_paused());
    Ok(filesystem)
}

fn mount(running: &Running, filesystem: &Arc<FileSystem>, request: &MountRequest) -> Result<Session> {
    let mut fuse = request.options.fuse.clone();
    fuse.source = running.pool.clone();
    fuse.read_only = running.read_only;
    fuse.shared = SharedLog::of(&running.store).is_used() && !running.read_only;
    Ok(stere_fuse::mount(filesystem.clone(), running.store.clone(), &request.mountpoint, &fuse)?)
}

/// The threads that work beside the session until it ends.
struct Workers {
    commits: JoinHandle<()>,
    others: [JoinHandle<()>; 4],
}

impl Workers {
    fn start(daemon: &Arc<Daemon>, session: &Session, request: &MountRequest) -> Result<Workers> {
        let served: Served = Arc::new(requests_of_all(daemon, session.request_counter()));
        let commits = work::start(daemon.clone(), served.clone(), &request.options)?;
        let repairer = repair::start(daemon.clone(), served.clone(), &request.options)?;
        let carrier = tertiary::start(daemon.clone(), served.clone(), &request.options)?;
        let keeper = backup::start(daemon.clone(), served.clone(), &request.options)?;
        let follower = follow::start(daemon.clone(), served, &request.options)?;
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

type OpenedPool = (Assembly, Guard, stere_pool::Opened, Duration);

/// Whether another machine has the pool, or was faster.
fn is_anothers(error: &Error) -> bool {
    match error {
        Error::Pool(stere_pool::Error::InUseElsewhere { .. }) => true,
        Error::Pool(stere_pool::Error::Store(error)) => error.is_replaced(),
        _ => false,
    }
}

/// Opens the devices and the pool on them; also tells how long recovery took.
fn open(registry: &Registry, request: &MountRequest, ready: &mut Ready) -> Result<OpenedPool> {
    if let Target::Remembered(record) = &request.target {
        refuse_twice(registry, request, &record.name)?;
    }
    let access = if request.options.fuse.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let (wait, prefer) = (request.options.wait, request.options.prefer.as_deref());
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
    let (assembly, guard) = claim::assemble_while(
        registry,
        &request.target,
        access,
        (wait, prefer),
        request.options.multihost,
        &mut goes_on,
    )?;
    check_name(&assembly.newest.pool_name)?;
    refuse_twice(registry, request, &assembly.newest.pool_name)?;
    let options = OpenOptions {
        memory_bytes: request.options.memory_bytes,
        read_only: request.options.fuse.read_only,
        degraded: request.options.degraded,
        epoch_nonce: stere_machine::random::epoch_nonce(),
        device_timeout: request.options.device_timeout,
        ..OpenOptions::default()
    };
    let start = Instant::now();
    let path_of =
        |entry: &stere_format::DeviceEntry| registry.place_of(&assembly.newest.pool_name, &entry.id.to_string());
    let opened = assembly.open(&options, &path_of)?;
    guard.wait_for_lease();
    Ok((assembly, guard, opened, start.elapsed()))
}

fn refuse_twice(registry: &Registry, request: &MountRequest, pool: &str) -> Result<()> {
    let name = connection::owner_name(pool);
    let pool = if request.options.owner_process { &name } else { pool };
    match connection::about(registry, pool) {
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

/// Keeps the allocator from holding on to more than the budget: few arenas, and large blocks go back at once.
fn limit_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain settings of the allocator, before other threads are started.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 32 << 20);
    }
}
