//! `stere umount`: returns when everything is durable and the process of the mount has ended.

use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::control::{self, About, Answer, Connection, Request};
use crate::error::{DONE, Error, Result, refused};
use crate::mountinfo;
use crate::registry::Registry;

/// Unmounts what is mounted on this path, or the pool of this name.
pub fn run(registry: &Registry, place: &str, lazy: bool, force: bool) -> Result<u8> {
    // A dead mount cannot be looked at, only named.
    let path = mountinfo::canonical(Path::new(place));
    let daemons = control::daemons(registry);
    let serves = |about: &&About| about.mountpoint == path || (!place.contains('/') && about.pool == place);
    if let Some(about) = daemons.iter().find(serves) {
        return end(registry, about, lazy, force);
    }
    without_daemon(&path, place, lazy || force)
}

fn end(registry: &Registry, about: &About, lazy: bool, force: bool) -> Result<u8> {
    let process = i32::try_from(about.process).ok().and_then(Pid::from_raw);
    let watched = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
    let Some(mut connection) = Connection::open(registry, &about.pool) else {
        return refused(format!("the daemon of the pool '{}' does not answer; see its log", about.pool));
    };
    connection.be_patient()?;
    let answer = connection.ask(Request::Unmount { lazy, force })?;
    if let Some(watched) = watched {
        loop {
            match poll(&mut [PollFd::new(&watched, PollFlags::IN)], None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::System(error.into())),
                Ok(_) => break,
            }
        }
    }
    match answer {
        Answer::Failed { message, .. } => refused(message),
        _ => Ok(DONE),
    }
}

fn without_daemon(path: &Path, place: &str, lazy: bool) -> Result<u8> {
    match mountinfo::find(path) {
        Some(mount) if mount.is_stere() => {
            let is_dead = mountinfo::is_dead(path);
            mountinfo::unmount(path, lazy || is_dead)?;
            if is_dead {
                eprintln!("stere: the process of this mount had died; mount the pool again to recover what was synced");
            }
            Ok(DONE)
        }
        Some(mount) => {
            refused(format!("{} is a mount of {}, not of stere; unmount it with umount(8)", path.display(), mount.kind))
        }
        None => refused(format!("no stere pool is mounted on '{place}'; `stere pool list` shows what is mounted")),
    }
}
