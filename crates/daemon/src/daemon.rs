//! What the threads of the process of a mount share, how they are started, and what ends the mount when one fails.

use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use stere_fuse::{Forgetter, IoProfiles, Session, Unmount, Unmounter};
use stere_naming::FileSystem;

use crate::backups::Backups;
use crate::junctions::Junctions;
use crate::library::Library;
use crate::mount_request::MountRequest;
use crate::public::Questions;
use stere_control::message::About;
use stere_machine::error::{Error, Result};
use stere_machine::mountinfo;
use stere_machine::registry::Registry;
use stere_online::report::Facts;
use stere_online::running::Running;

/// Without background work nothing would be durable unless it is synced, so the mount must not go on.
pub struct UnmountOnPanic(pub Arc<Daemon>);

impl Drop for UnmountOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.take_down();
        }
    }
}

/// What the threads of the process share.
pub struct Daemon {
    pub about: About,
    pub(crate) facts: Facts,
    /// Pools that are mounted in this mount; none for the process of an owner, which has no mount of anybody's.
    pub(crate) junctions: Option<Arc<Junctions>>,
    pub(crate) unmounter: Unmounter,
    pub forgetter: Forgetter,
    pub running: Arc<Running>,
    pub filesystem: Arc<FileSystem>,
    pub library: Library,
    pub backups: Backups,
    pub questions: Arc<Questions>,
    pub io_profiles: Arc<IoProfiles>,
    /// What the mount may take.
    pub memory_bytes: u64,
    pub stop: AtomicBool,
    /// Clients that wait until everything is durable.
    pub(crate) ending: Mutex<Vec<UnixStream>>,
}

impl Daemon {
    pub(crate) fn new(
        registry: &Registry,
        request: &MountRequest,
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
            mountpoint: request.mountpoint.clone(),
            device: mountinfo::find(&request.mountpoint).map(|mount| mount.device),
            read_only: running.read_only,
            through: None,
            junctions: Vec::new(),
        };
        let has_mount = !request.options.owner_process;
        let junctions = has_mount.then(|| Arc::new(Junctions::new(registry, request, &running.pool)));
        let unmounter = session.unmounter().ok_or_else(ended_at_once)?;
        junctions.iter().for_each(|junctions| junctions.set_unmounter(&unmounter));
        Ok(Daemon {
            about,
            facts,
            junctions,
            unmounter,
            forgetter: session.forgetter().ok_or_else(ended_at_once)?,
            running,
            filesystem,
            library: Library::new(&request.options.fuse, session.turns()),
            backups: Backups::default(),
            questions: Arc::default(),
            io_profiles: session.io_profiles(),
            memory_bytes: request.options.memory_bytes as u64,
            stop: AtomicBool::new(false),
            ending: Mutex::new(Vec::new()),
        })
    }

    /// Who answers, and what is mounted in this mount.
    pub(crate) fn about(&self) -> About {
        let junctions = self.junctions.as_ref().map(|junctions| junctions.report()).unwrap_or_default();
        let mountpoint = self.unmounter.place_now();
        About { junctions, mountpoint, ..self.about.clone() }
    }

    /// Takes the mount down, as far as that goes.
    pub fn take_down(&self) {
        if let Err(error) = self.unmounter.unmount(Unmount::Lazy) {
            tracing::error!(%error, "the mount cannot be ended");
        }
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop).map_err(Error::System)
}
