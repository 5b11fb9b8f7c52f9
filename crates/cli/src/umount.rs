//! `stere umount`: returns when everything is durable and the process of the mount has ended, or says what keeps it.
//!
//! Also the wait for mounts that are ending already, which commands that need their devices begin with.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stere_client_wire::mounts::{Listed, list_of};

use crate::holders;
use stere_control::message::{About, Answer, Request};
use stere_control::{connection, locate};
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::mountinfo;
use stere_machine::registry::Registry;

/// So long it takes for somebody to be told what is waited for, and for a mount that others hold until it is no longer waited for.
const TOLD_AFTER: Duration = Duration::from_secs(2);
const HELD_PATIENCE: Duration = Duration::from_secs(10);

/// A container that begins has all mounts of the machine for a moment, before it lets go of those that are not for it.
const BEGINNING: Duration = Duration::from_secs(2);

/// A daemon that nobody keeps has so long for its last changes.
const DAEMON_PATIENCE: Duration = Duration::from_secs(300);

/// And one whose mount is gone, when another command comes.
const ENDING_PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(500);

/// Unmounts what is mounted on this path, or the pool of this name.
pub fn run(registry: &Registry, place: &str, lazy: bool, force: bool) -> Result<u8> {
    // A dead mount cannot be looked at, only named.
    let path = mountinfo::canonical(Path::new(place));
    let daemons = connection::daemons(registry);
    let serves = |about: &&About| about.mountpoint == path || (!place.contains('/') && about.pool == place);
    if let Some(about) = daemons.iter().find(serves) {
        return end(registry, about, lazy, force);
    }
    without_daemon(&path, place, lazy || force)
}

fn process_of(about: &About) -> Option<OwnedFd> {
    let process = i32::try_from(about.process).ok().and_then(Pid::from_raw)?;
    pidfd_open(process, PidfdFlags::empty()).ok()
}

/// Whether a process ends within this time.
fn ends_within(process: &OwnedFd, time: Duration) -> Result<bool> {
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&time)) {
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(Error::System(error.into())),
        Ok(count) => Ok(count > 0),
    }
}

/// Who holds it beside this mount, and not only while something begins.
fn held_for_good(mountpoint: &Path) -> Vec<holders::Holder> {
    let begun = Instant::now();
    loop {
        let held = holders::of_mountpoint(mountpoint);
        let may_let_go = !held.is_empty() && held.iter().all(|one| one.process.is_some());
        if !may_let_go || begun.elapsed() >= BEGINNING {
            return held;
        }
        std::thread::sleep(LOOK);
    }
}

fn end(registry: &Registry, about: &About, lazy: bool, force: bool) -> Result<u8> {
    // It may have been unmounted here already, and be held elsewhere.
    let mounted = mountinfo::find(&about.mountpoint).filter(mountinfo::Mount::is_stere);
    let device = about.device.or(mounted.map(|mount| mount.device));
    if !lazy && !force {
        let held = held_for_good(&about.mountpoint);
        if !held.is_empty() {
            return refused(format!(
                "{} would stay in use: {}; unmount that first, or use --lazy (it ends when that goes) or --force",
                about.mountpoint.display(),
                holders::describe(&held)
            ));
        }
    }
    let process = process_of(about);
    let mut connection = locate::open(registry, about)?;
    connection.wait_without_limit()?;
    // The answer comes when all is durable, which may be never while others hold the mount; so it is read beside the wait for the process.
    connection.send(&Request::Unmount { lazy, force })?;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(sender.send(connection.next_answer())));
    let Some(process) = process else { return judge(receiver.recv().ok(), force) };
    let others = || {
        let held = device.map(holders::of_device).unwrap_or_default().into_iter();
        held.filter(|one| one.process.is_some() || one.mountpoint != about.mountpoint).collect::<Vec<_>>()
    };
    // When nobody else has the mount, its number is soon that of another mount, perhaps.
    let mut is_alone = others().is_empty();
    let begun = Instant::now();
    let mut is_told = false;
    let mut answer = None;
    while !ends_within(&process, LOOK)? {
        answer = answer.or_else(|| receiver.try_recv().ok());
        if matches!(answer, Some(Err(_))) {
            break;
        }
        let held = if is_alone { Vec::new() } else { others() };
        is_alone = held.is_empty();
        let waited = begun.elapsed();
        if !held.is_empty() && waited > HELD_PATIENCE && !lazy && !force {
            return refused(format!(
                "{} is unmounted here and still in use elsewhere: {}; the pool's daemon (process {}) ends when that goes, or with --force",
                about.mountpoint.display(),
                holders::describe(&held),
                about.process
            ));
        }
        if waited > TOLD_AFTER && !is_told {
            is_told = true;
            match held.is_empty() {
                true => eprintln!("stere: waiting until {} has made everything durable", who_makes_durable(about)),
                false => eprintln!("stere: waiting until nobody uses it: {}", holders::describe(&held)),
            }
        }
        if held.is_empty() && waited > DAEMON_PATIENCE && !lazy {
            return refused(format!(
                "the pool's daemon (process {}) has not ended in {} s; see its log, and whether its devices answer",
                about.process,
                DAEMON_PATIENCE.as_secs()
            ));
        }
    }
    // Its connection is closed by now, so there is an answer or an end.
    judge(answer.or_else(|| receiver.recv().ok()), force)
}

/// Who is waited for at the end of a mount.
fn who_makes_durable(about: &About) -> String {
    match about.through.as_ref().map(|through| &through.host) {
        Some(Some(host)) => format!("the pool's owner, host {host},"),
        Some(None) => "an owner of the pool".to_owned(),
        None => format!("the pool's daemon (process {})", about.process),
    }
}

fn judge(answer: Option<Result<Option<Answer>>>, force: bool) -> Result<u8> {
    match answer {
        Some(Ok(Some(Answer::Failed { message, .. }))) => refused(message),
        Some(Ok(Some(_))) => Ok(DONE),
        // It ended before it could say so.
        Some(Ok(None)) if force => Ok(DONE),
        Some(Err(error)) => Err(error),
        Some(Ok(None)) | None => refused("the pool's daemon ended before it answered; see its log"),
    }
}

/// Waits for daemons whose mounts are gone already: umount(8) returns before they have written their last changes and let go of their devices.
pub fn settle(registry: &Registry) {
    for about in connection::daemons(registry) {
        // As its daemon sees it: it may have another mount namespace than this command, and others may hold the mount.
        let theirs = list_of(Path::new(&format!("/proc/{}/mountinfo", about.process)));
        let is_it = |one: &Listed| Some(one.mount.device) == about.device && one.mount.source == about.pool;
        if theirs.iter().any(|one| one.mount.is_stere() && is_it(one)) {
            continue;
        }
        let Some(process) = process_of(&about) else { continue };
        let begun = Instant::now();
        let mut is_told = false;
        while begun.elapsed() < ENDING_PATIENCE {
            if ends_within(&process, LOOK).unwrap_or(true) {
                break;
            }
            if begun.elapsed() > TOLD_AFTER && !is_told {
                is_told = true;
                eprintln!(
                    "stere: waiting up to {} s for the daemon of the pool '{}' (process {}), which is ending",
                    ENDING_PATIENCE.as_secs(),
                    about.pool,
                    about.process
                );
            }
        }
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
