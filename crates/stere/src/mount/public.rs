//! Answers to those who may use the mount and no more: one thread a question, few at a time.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::library;
use super::serve::{Daemon, spawn};
use crate::error::Result;
use crate::public::{self, Asked, PublicAnswer, Question};
use crate::{capabilities, find, mountinfo, watch};

/// Questions answered at a time; who comes beyond that is told to come again.
const QUESTIONS_MAX: usize = 16;
/// So long a mount waits for the socket of one that is ending and had its number.
const SOCKET_PATIENCE: Duration = Duration::from_secs(5);

/// Begins to answer. Without it everything else goes on.
pub fn start(daemon: &Arc<Daemon>) {
    let mountpoint = mountinfo::canonical(&daemon.about.mountpoint);
    let Some(mount) = mountinfo::find(&mountpoint).filter(mountinfo::Mount::is_stere) else {
        tracing::warn!("the mount is not in the kernel's list: `stere find` and the library will not work on it");
        return;
    };
    let listener = match public::listen(mount.device, SOCKET_PATIENCE) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%error, "somebody has the socket of this mount: `stere find` and the library will not work on it");
            return;
        }
    };
    let (daemon, asked) = (daemon.clone(), Arc::new(AtomicUsize::new(0)));
    let serve = move || {
        for stream in listener.incoming().flatten() {
            let (daemon, asked) = (daemon.clone(), asked.clone());
            if asked.fetch_add(1, Ordering::AcqRel) >= QUESTIONS_MAX {
                asked.fetch_sub(1, Ordering::AcqRel);
                let message = "too many questions are under way in this pool; try again when one has ended".into();
                public::tell(&stream, &PublicAnswer::Refused { message, is_usage: false });
                continue;
            }
            let converse = move || {
                let outcome = converse(&daemon, mount.device, &stream);
                if let Err(error) = outcome {
                    public::tell(&stream, &PublicAnswer::Refused { message: error.to_string(), is_usage: false });
                }
                asked.fetch_sub(1, Ordering::AcqRel);
            };
            drop(spawn("question", converse));
        }
    };
    if let Err(error) = spawn("questions", serve) {
        tracing::warn!(%error, "`stere find` and the library will not work on this mount");
    }
}

fn converse(daemon: &Arc<Daemon>, device: (u32, u32), stream: &UnixStream) -> Result<()> {
    let asked = public::hear(stream, device)?;
    if let Question::Library { version } = asked.question {
        return library::begin(daemon, stream, asked, version);
    }
    let Asked { peer, place, question, .. } = asked;
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
