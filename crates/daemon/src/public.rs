//! Answers to those who may use the mount and no more: one thread a question, few at a time, in all and of each user.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stere_client_wire::meet::{self, Socket};

use crate::answer::{capabilities, find, watch};
use crate::daemon::{Daemon, spawn};
use crate::library;
use crate::receiver::{Client, Heard, Receiver};
use stere_control::public::{self, Peer, PublicAnswer, Question};
use stere_machine::error::{Error, Result, refused};
use stere_machine::mountinfo;

/// Questions answered at a time; those beyond that are told to come again.
const QUESTIONS_MAX: usize = 32;
const QUESTIONS_OF_USER_MAX: usize = 12;

/// What programs of the library are told where another machine owns the pool.
pub const NO_LIBRARY: &str =
    "the library works on the machine that owns the pool; read and write through the mount here";

/// A client that reads no answer for so long is given up.
pub const READER_PATIENCE: Duration = Duration::from_secs(600);

/// How many questions of each user are under way.
#[derive(Debug)]
pub struct Questions {
    max: usize,
    of_users: Mutex<BTreeMap<u32, usize>>,
}

impl Default for Questions {
    fn default() -> Questions {
        Questions { max: QUESTIONS_MAX, of_users: Mutex::default() }
    }
}

impl Questions {
    /// Of a machine that asks an owner, which takes no more conversations of it: some are left for commands.
    pub fn of_client() -> Questions {
        Questions { max: QUESTIONS_MAX * 3 / 4, of_users: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, usize>> {
        self.of_users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(self: &Arc<Questions>, uid: u32) -> Result<Turn> {
        let mut of_users = self.lock();
        let all: usize = of_users.values().sum();
        let own = of_users.entry(uid).or_default();
        if *own >= QUESTIONS_OF_USER_MAX || all >= self.max {
            return refused("too many questions are under way in this pool; try again when one has ended");
        }
        *own += 1;
        Ok(Turn { questions: self.clone(), uid })
    }
}

/// A question that is under way.
pub struct Turn {
    questions: Arc<Questions>,
    uid: u32,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut of_users = self.questions.lock();
        let own = of_users.entry(self.uid).or_default();
        assert!(*own > 0, "a question of user {} ends twice", self.uid);
        *own -= 1;
        if *own == 0 {
            of_users.remove(&self.uid);
        }
    }
}

/// Hears one client; called in a thread of its own.
pub type Hear = Arc<dyn Fn(Client, Option<OwnedFd>) + Send + Sync>;

/// Begins to answer, until the mount ends; gives what takes the socket away. Without it everything else goes on.
pub fn start(daemon: &Arc<Daemon>, is_private: bool) -> Option<Socket> {
    let (answering, looking) = (daemon.clone(), daemon.clone());
    let hear: Hear = Arc::new(move |client, memory| converse(&answering, client, memory));
    listen(&daemon.about.mountpoint, is_private, move || looking.stop.load(Ordering::Acquire), hear)
}

/// Makes the socket of a mount, and has `hear` answer there until the mount ends.
pub fn listen(
    mountpoint: &Path,
    is_private: bool,
    is_over: impl Fn() -> bool + Send + 'static,
    hear: Hear,
) -> Option<Socket> {
    match try_listen(mountpoint, is_private, is_over, hear) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "`stere find` and the library will not work on this mount");
            None
        }
    }
}

fn try_listen(
    mountpoint: &Path,
    is_private: bool,
    is_over: impl Fn() -> bool + Send + 'static,
    hear: Hear,
) -> Result<Socket> {
    let mountpoint = mountinfo::canonical(mountpoint);
    let Some(mount) = mountinfo::find(&mountpoint).filter(mountinfo::Mount::is_stere) else {
        return refused("the mount is not in the kernel's list");
    };
    let (listener, socket) = meet::listen(mount.device, is_private).map_err(Error::System)?;
    let only = is_private.then(|| rustix::process::geteuid().as_raw());
    let receiver = Receiver::start(listener, mount.device, only)?;
    let serve = move || {
        loop {
            let (client, memory) = match receiver.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::debug!(%error, "a question did not arrive");
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            let hear = hear.clone();
            drop(spawn("question", move || hear(client, memory)));
        }
        if !is_over() {
            tracing::warn!(
                "the process that receives questions has ended: `stere find` and the library work again after the next mount"
            );
        }
    };
    spawn("questions", serve)?;
    Ok(socket)
}

fn converse(daemon: &Arc<Daemon>, client: Client, memory: Option<OwnedFd>) {
    let client = Arc::new(client);
    if let Err(error) = hear(daemon, &client, memory) {
        refuse(&client.stream, &error);
    }
}

/// Tells who asked that the question is not answered.
pub fn refuse(stream: &UnixStream, why: &dyn std::fmt::Display) {
    public::tell(stream, &PublicAnswer::Refused { message: why.to_string(), is_usage: false });
}

fn hear(daemon: &Arc<Daemon>, client: &Arc<Client>, memory: Option<OwnedFd>) -> Result<()> {
    let heard = client.heard()?;
    let stream = &client.stream;
    stream.set_write_timeout(Some(READER_PATIENCE)).map_err(Error::System)?;
    if let Question::Library { version } = heard.question {
        return library::begin(daemon, client.clone(), heard, memory, version);
    }
    let Heard { peer, place, question, .. } = heard;
    answer(daemon, stream, (&peer, place.inode), question)
}

/// Answers a question of somebody who got as far as an inode.
pub fn answer(daemon: &Daemon, stream: &UnixStream, (peer, inode): (&Peer, u64), question: Question) -> Result<()> {
    let _turn = daemon.questions.begin(peer.uid)?;
    let mut send = |answer: PublicAnswer| !daemon.stop.load(Ordering::Acquire) && public::tell(stream, &answer);
    let answer = match question {
        Question::Capabilities => {
            let pool = capabilities::gather(&daemon.about, &daemon.running, &daemon.filesystem);
            PublicAnswer::Capabilities { pool }
        }
        Question::Find(asked) => find::serve(&daemon.filesystem, peer, inode, &asked, &mut send)?,
        Question::Watched { asked } => watch::serve(&daemon.filesystem, peer, inode, asked, &mut send)?,
        Question::Library { .. } => return refused(NO_LIBRARY),
    };
    public::tell(stream, &answer);
    Ok(())
}
