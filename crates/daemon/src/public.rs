//! Answers to those who may use the mount and no more: one thread a question, few at a time, in all and of each user.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stere_client_wire::meet::{self, Socket};

use crate::answer::{capabilities, find, watch};
use crate::daemon::{Daemon, spawn};
use crate::library;
use crate::receiver::{Client, Heard, Receiver};
use stere_control::public::{self, PublicAnswer, Question};
use stere_machine::error::{Error, Result, refused};
use stere_machine::mountinfo;

/// Questions answered at a time; those beyond that are told to come again.
const QUESTIONS_MAX: usize = 32;
const QUESTIONS_OF_USER_MAX: usize = 12;

/// A client that reads no answer for so long is given up.
const READER_PATIENCE: Duration = Duration::from_secs(600);

/// How many questions of each user are under way.
#[derive(Debug, Default)]
struct Questions {
    of_users: Mutex<BTreeMap<u32, usize>>,
}

impl Questions {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, usize>> {
        self.of_users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Questions>, uid: u32) -> Result<Turn> {
        let mut of_users = self.lock();
        let all: usize = of_users.values().sum();
        let own = of_users.entry(uid).or_default();
        if *own >= QUESTIONS_OF_USER_MAX || all >= QUESTIONS_MAX {
            return refused("too many questions are under way in this pool; try again when one has ended");
        }
        *own += 1;
        Ok(Turn { questions: self.clone(), uid })
    }
}

/// A question that is under way.
struct Turn {
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

/// Begins to answer, until the mount ends; gives what takes the socket away. Without it everything else goes on.
pub fn start(daemon: &Arc<Daemon>, is_private: bool) -> Option<Socket> {
    match listen(daemon, is_private) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "`stere find` and the library will not work on this mount");
            None
        }
    }
}

fn listen(daemon: &Arc<Daemon>, is_private: bool) -> Result<Socket> {
    let mountpoint = mountinfo::canonical(&daemon.about.mountpoint);
    let Some(mount) = mountinfo::find(&mountpoint).filter(mountinfo::Mount::is_stere) else {
        return refused("the mount is not in the kernel's list");
    };
    let (listener, socket) = meet::listen(mount.device, is_private).map_err(Error::System)?;
    let only = is_private.then(|| rustix::process::geteuid().as_raw());
    let receiver = Receiver::start(listener, mount.device, only)?;
    let (daemon, questions) = (daemon.clone(), Arc::new(Questions::default()));
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
            let (daemon, questions) = (daemon.clone(), questions.clone());
            drop(spawn("question", move || converse(&daemon, &questions, client, memory)));
        }
        if !daemon.stop.load(Ordering::Acquire) {
            tracing::warn!(
                "the process that receives questions has ended: `stere find` and the library work again after the next mount"
            );
        }
    };
    spawn("questions", serve)?;
    Ok(socket)
}

fn converse(daemon: &Arc<Daemon>, questions: &Arc<Questions>, client: Client, memory: Option<std::os::fd::OwnedFd>) {
    let client = Arc::new(client);
    if let Err(error) = answer(daemon, questions, &client, memory) {
        public::tell(&client.stream, &PublicAnswer::Refused { message: error.to_string(), is_usage: false });
    }
}

fn answer(
    daemon: &Arc<Daemon>,
    questions: &Arc<Questions>,
    client: &Arc<Client>,
    memory: Option<std::os::fd::OwnedFd>,
) -> Result<()> {
    let heard = client.heard()?;
    let stream = &client.stream;
    stream.set_write_timeout(Some(READER_PATIENCE)).map_err(Error::System)?;
    if let Question::Library { version } = heard.question {
        return library::begin(daemon, client.clone(), heard, memory, version);
    }
    let Heard { peer, place, question, .. } = heard;
    let _turn = questions.begin(peer.uid)?;
    let mut send = |answer: PublicAnswer| !daemon.stop.load(Ordering::Acquire) && public::tell(stream, &answer);
    let answer = match question {
        Question::Capabilities => {
            let pool = capabilities::gather(&daemon.about, &daemon.running, &daemon.filesystem);
            PublicAnswer::Capabilities { pool }
        }
        Question::Find(asked) => find::serve(&daemon.filesystem, &peer, place.inode, &asked, &mut send)?,
        Question::Watched { asked } => watch::serve(&daemon.filesystem, &peer, place.inode, asked, &mut send)?,
        Question::Library { .. } => return Ok(()),
    };
    public::tell(stream, &answer);
    Ok(())
}
