//! Answers on the control socket: one conversation a connection, each request handed to the module that answers it.
//!
//! Invariant: a client that has gone is no error; what it asked for is done all the same. Read next: `answer.rs`.

use std::ops::ControlFlow;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use stere_fuse::{Unmount, Unmounter};
use stere_naming::Io;
use zeroize::Zeroize;

use crate::answer::{class, junctions, keys, layout, plugins, quota, reconcile, rules, usage};
use crate::daemon::{Daemon, lock, spawn};
use crate::ending::end_soon;
use crate::from_afar::why_not_from_afar;
use crate::junctions::How;
use crate::public;
use stere_control::connection;
use stere_control::message::{Answer, Request};
use stere_machine::clock;
use stere_machine::error::Result;
use stere_online::outcome::Outcome as Changed;
use stere_online::report;

/// Tells those who wait for the end of a mount that everything is durable, or not.
pub fn answer_waiting<T>(ending: &Mutex<Vec<UnixStream>>, outcome: &Result<T>) {
    let answer = match outcome {
        Ok(_) => Answer::Done,
        Err(error) => Answer::Failed { message: error.to_string(), ended: true },
    };
    for mut stream in lock(ending).drain(..) {
        connection::send(&mut stream, &answer);
    }
}

/// Unmounts; who asked is answered when everything is durable, or by what is told here if it cannot be.
pub fn unmount_for(
    stream: &UnixStream,
    ending: &Mutex<Vec<UnixStream>>,
    unmounter: &Unmounter,
    (lazy, force): (bool, bool),
) -> Option<Answer> {
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
    lock(ending).push(client);
    let error = unmounter.unmount(how).err()?;
    lock(ending).retain(|client| std::os::fd::AsRawFd::as_raw_fd(client) != number);
    Some(failed(&error))
}

fn failed(why: &dyn std::fmt::Display) -> Answer {
    Answer::Failed { message: why.to_string(), ended: false }
}

pub fn start_control(daemon: Arc<Daemon>, listener: UnixListener) -> Result<()> {
    spawn("control", move || {
        for stream in listener.incoming().flatten() {
            let daemon = daemon.clone();
            // A client more or less: those that cannot be served see the connection close.
            drop(spawn("client", move || converse(&daemon, stream, Place::Here)));
        }
    })
}

/// Whose commands a conversation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Here,
    /// Those of another machine, which has looked who may give them.
    Elsewhere,
}

pub fn converse(daemon: &Arc<Daemon>, stream: UnixStream, from: Place) {
    let Ok(mut reader) = stream.try_clone().map(std::io::BufReader::new) else { return };
    let mut stream = stream;
    let mut line = String::new();
    while std::io::BufRead::read_line(&mut reader, &mut line).is_ok_and(|length| length > 0) {
        let answer = match serde_json::from_str(&line) {
            Ok(request) if from == Place::Elsewhere && why_not_from_afar(&request).is_some() => {
                why_not_from_afar(&request).map(|why| failed(&why))
            }
            Ok(Request::Asked { peer, inode, question }) => {
                if let Err(error) = public::answer(daemon, &stream, (&peer, inode), question) {
                    public::refuse(&stream, &error);
                }
                // One question a conversation.
                return;
            }
            Ok(Request::ServeMedia { host, places }) => {
                daemon.running.far_media.serve(host, places, stream, reader);
                return;
            }
            Ok(Request::Unmount { lazy, force }) => unmount(daemon, &stream, lazy, force),
            Ok(Request::Lose { devices }) => Some(lose(daemon, &mut stream, &devices)),
            Ok(Request::TestRules { directory, rules }) => {
                let mut send = |answer| connection::try_send(&mut stream, &answer);
                let told = rules::forecast(&daemon.filesystem, directory, &rules, &mut send);
                Some(told.unwrap_or_else(|error| failed(&error)))
            }
            Ok(request) => Some(answer(daemon, request)),
            Err(error) => Some(failed(&format!("the request is not understood: {error}"))),
        };
        if let Some(answer) = answer {
            connection::send(&mut stream, &answer);
        }
        // There may be a secret in it.
        line.zeroize();
    }
}

fn answer(daemon: &Daemon, request: Request) -> Answer {
    match request {
        Request::About
        | Request::Reach
        | Request::Unmount { .. }
        | Request::Lose { .. }
        | Request::TestRules { .. }
        | Request::ServeMedia { .. }
        | Request::Asked { .. } => Answer::About(daemon.about()),
        Request::Take => Answer::Said { said: format!("this machine owns the pool {} already", daemon.about.pool) },
        Request::Junctions { order } => {
            junctions::serve(&daemon.filesystem, order).unwrap_or_else(|error| failed(&error))
        }
        Request::Numbers { users, groups } => {
            let number = |is_group| move |name: &String| stere_people::number(is_group, name);
            let users = users.iter().map(number(false)).collect();
            Answer::Numbers { users, groups: groups.iter().map(number(true)).collect() }
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
        Request::Backups { order } => {
            crate::answer::backup::serve(&daemon.filesystem, &daemon.backups, &daemon.about, order)
                .unwrap_or_else(|error| failed(&error))
        }
        Request::Digests { order } => {
            crate::answer::digest::serve(&daemon.filesystem, order).unwrap_or_else(|error| failed(&error))
        }
        Request::Io { order } => crate::answer::io::serve(daemon, order).unwrap_or_else(|error| failed(&error)),
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
        Request::Tier { order } => match crate::answer::tier::serve(&daemon.filesystem, &daemon.running, &order) {
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
    let mut send = |files| match connection::try_send(stream, &Answer::LostFiles { files }) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    match stere_online::lose::gather(&daemon.running.store, &daemon.about.pool, devices, &mut send) {
        Ok(report) => Answer::Loss(report),
        Err(error) => failed(&error),
    }
}

/// Unmounts; who asked is answered when everything is durable, or now if it cannot be.
fn unmount(daemon: &Arc<Daemon>, stream: &UnixStream, lazy: bool, force: bool) -> Option<Answer> {
    if let Some(junctions) = &daemon.junctions
        && let Err(error) = junctions.end(How::Asked { lazy, force })
    {
        return Some(failed(&error));
    }
    if force || lazy {
        // Whoever waits for a volume is told that it does not come.
        daemon.running.gate.close();
    }
    let refused = unmount_for(stream, &daemon.ending, &daemon.unmounter, (lazy, force));
    if refused.is_some() {
        daemon.junctions.iter().for_each(|junctions| junctions.go_on());
    }
    if force && refused.is_none() {
        end_soon(daemon);
    }
    refused
}
