//! Media of this machine that the owner of a pool on another machine uses: a directory on a disk that is plugged in here, a tape library.
//!
//! While the owner is elsewhere, one conversation with it serves all places that this machine remembers as served (`Registry`), and no other.
//! Media are opened when the owner first asks for them, and put away with the conversation, so that nobody has them when an owner of this
//! machine opens them itself. Invariants: a call is answered once; the name of an object leads nowhere else. Read next:
//! `crates/control/src/far_media.rs`, `crates/online/src/far_media.rs` (the owner), `docs/design/machines.md`.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stere_control::change::Change;
use stere_control::connection;
use stere_control::far_media::{Ask, Bytes, Call, LINE_CONTENT_BYTES, Reply, Told};
use stere_control::message::{Answer, Request};
use stere_control::tier::{Order, report};
use stere_device::{Cancellation, MediumWait, Take, Volume, VolumeError};
use stere_machine::error::{Result, refused};
use stere_machine::places::{at_host, at_machine, is_of_machine, open_place};
use stere_multihost::own_host;

use crate::client_control::ClientControl;
use crate::daemon::{lock, spawn};

#[cfg(test)]
mod tests;

/// Between two attempts, and two looks whether there is anything to serve.
const AGAIN: Duration = Duration::from_secs(1);
/// Whoever adds a medium waits so long for the owner to know this machine.
const KNOWN_MAX: Duration = Duration::from_secs(15);
/// Calls under way at a time: a disk that hangs keeps those that were asked of it.
const CALLS_MAX: usize = 256;
/// No object is larger.
const OBJECT_BYTES_MAX: usize = 1 << 30;

/// What is known of the conversation.
#[derive(Default)]
pub struct ClientMedia {
    state: Mutex<State>,
    changed: Condvar,
    /// Held by whoever adds a medium.
    adding: Mutex<()>,
}

#[derive(Default)]
struct State {
    stream: Option<UnixStream>,
    /// The places that the owner knows, since it said so.
    known: Vec<String>,
}

impl ClientMedia {
    /// Serves until the mount ends.
    pub fn start(self: &Arc<Self>, control: &Arc<ClientControl>) -> Result<()> {
        let (media, control) = (self.clone(), Arc::downgrade(control));
        spawn("media", move || {
            while let Some(control) = control.upgrade() {
                // An owner on this machine opens them by itself.
                let is_meant = !served(&control).is_empty() && !control.owns() && media.forget_gone(&control);
                let places = if is_meant { served(&control) } else { Vec::new() };
                if !places.is_empty() {
                    media.serve(&control, places);
                }
                drop(control);
                let state = lock(&media.state);
                drop(media.changed.wait_timeout(state, AGAIN).unwrap_or_else(PoisonError::into_inner));
            }
        })
    }

    /// Places that the pool has no media at any more are not served; false where the owner does not say.
    fn forget_gone(&self, control: &ClientControl) -> bool {
        // One that is being added is not known by the pool yet.
        let Ok(_alone) = self.adding.try_lock() else { return true };
        let Ok(Answer::Tier(report::Told::Tier(report))) = control.ask_for(Request::Tier { order: Order::Tell }) else {
            return false;
        };
        let forgotten = control.registry.serve_media(&control.about.pool, |places| {
            places.retain(|place| report.volumes.iter().any(|volume| volume.place == *place));
        });
        forgotten.inspect_err(|error| tracing::warn!(%error, "what is served could not be remembered")).is_ok()
    }

    /// One conversation, to its end.
    fn serve(&self, control: &ClientControl, places: Vec<String>) {
        let Ok((ours, theirs)) = UnixStream::pair() else { return };
        lock(&self.state).stream = ours.try_clone().ok();
        std::thread::scope(|scope| {
            let carrying = std::thread::Builder::new().name("media-carry".to_owned());
            let carrying = carrying.spawn_scoped(scope, || {
                let carried = control.ask(b"", &theirs);
                drop(theirs.shutdown(Shutdown::Both));
                carried
            });
            if carrying.is_ok() {
                converse(&ours, &places, Box::new(open_place), || self.note_known(&places));
            }
            drop(ours.shutdown(Shutdown::Both));
        });
        *lock(&self.state) = State::default();
    }

    fn note_known(&self, places: &[String]) {
        lock(&self.state).known = places.to_vec();
        self.changed.notify_all();
    }

    /// The places have changed: the owner is told anew, and known when this returns.
    fn tell_anew(&self, control: &ClientControl) -> Result<()> {
        let places = served(control);
        let begun = Instant::now();
        let mut state = lock(&self.state);
        if let Some(stream) = state.stream.as_ref().filter(|_| state.known != places) {
            drop(stream.shutdown(Shutdown::Both));
        }
        self.changed.notify_all();
        while state.known != places && begun.elapsed() < KNOWN_MAX {
            state = self.changed.wait_timeout(state, AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
        match state.known == places {
            true => Ok(()),
            false => refused(format!(
                "the owner of the pool '{}' does not answer about media; see `stere status {}`",
                control.about.pool, control.about.pool
            )),
        }
    }

    /// Carries out a change that names media of this machine; none if it names none.
    pub fn change(&self, control: &ClientControl, change: &Change, dry_run: bool) -> Option<Result<Answer>> {
        // An owner on this machine names them by itself.
        let (named, change) = named_for_all(change, &own_host()).filter(|_| !control.owns())?;
        let ask = |change: Change| control.ask_for(Request::Change { change, dry_run });
        if dry_run {
            return Some(ask(change));
        }
        let (pool, _alone) = (&control.about.pool, lock(&self.adding));
        let before = control.registry.served_media(pool);
        let serve = control.registry.serve_media(pool, |places| {
            let new = named.into_iter().filter(|place| !before.contains(place)).collect::<Vec<_>>();
            places.extend(new);
        });
        let changed = serve.and_then(|()| self.tell_anew(control)).and_then(|()| ask(change));
        if changed.is_err() {
            drop(control.registry.serve_media(pool, |places| *places = before));
        }
        Some(changed)
    }
}

/// All places that this machine serves: its own, and those whose named files somebody here agreed to use.
fn served(control: &ClientControl) -> Vec<String> {
    let (registry, pool) = (&control.registry, &control.about.pool);
    let record = registry.find(pool).ok().flatten().filter(|record| record.id == control.about.pool_id);
    let agreed = record.and_then(|record| record.agreed).unwrap_or_default();
    let mut places = registry.served_media(pool);
    places.extend(agreed.into_iter().map(|agreed| agreed.place));
    places
}

/// A change whose media of this machine are called as all machines call them, and their places.
fn named_for_all(change: &Change, host: &str) -> Option<(Vec<String>, Change)> {
    let mut named = Vec::new();
    let mut name = |path: &mut PathBuf| {
        let text = path.to_string_lossy().into_owned();
        if is_of_machine(&text) && at_machine(&text).is_none() {
            let place = at_host(&text, host);
            assert!(at_machine(&place).is_some_and(|(local, _)| local == text), "{place} names its machine");
            *path = PathBuf::from(&place);
            named.push(place);
        }
    };
    let mut change = change.clone();
    match &mut change {
        Change::Add { devices, .. } => devices.iter_mut().for_each(|device| name(&mut device.path)),
        Change::Online { path: Some(path), .. } => name(path),
        _ => {}
    }
    (!named.is_empty()).then_some((named, change))
}

/// How to reach a medium at a place of this machine.
type Open = Box<dyn Fn(&str) -> Result<Arc<dyn Volume>> + Send + Sync>;

/// The media of a conversation, and its calls. A call that hangs outlives it, and holds up nothing else.
struct Conversation {
    places: Vec<String>,
    open: Open,
    volumes: Mutex<BTreeMap<String, Arc<dyn Volume>>>,
    answers: Arc<Mutex<UnixStream>>,
    /// Calls under way, and whether nobody wants their answer any more.
    under_way: Mutex<HashMap<u64, Arc<AtomicBool>>>,
}

impl Drop for Conversation {
    fn drop(&mut self) {
        lock(&self.volumes).values().for_each(|volume| volume.close());
    }
}

/// Says what is served, and answers calls until the end.
fn converse(stream: &UnixStream, places: &[String], open: Open, is_known: impl Fn()) {
    let (Ok(mut writer), Ok(reader)) = (stream.try_clone(), stream.try_clone()) else { return };
    let request = Request::ServeMedia { host: own_host(), places: places.to_vec() };
    if !connection::try_send(&mut writer, &request) {
        return;
    }
    let conversation = Arc::new(Conversation {
        places: places.to_vec(),
        open,
        volumes: Mutex::default(),
        answers: Arc::new(Mutex::new(writer)),
        under_way: Mutex::default(),
    });
    assert!(!places.is_empty(), "a machine begins to serve when it has something to serve");
    let (mut reader, mut line, mut parts) = (BufReader::new(reader), String::new(), HashMap::new());
    while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
        let Ok(Ask { number, place, call }) = serde_json::from_str(&line) else {
            tracing::warn!(bytes = line.len(), "the owner asks something about media that is not understood");
            break;
        };
        line.clear();
        match call {
            Call::Begin => is_known(),
            Call::GiveUp { of } => conversation.give_up(of),
            Call::PutPart { bytes } if !gather(&mut parts, number, &bytes.0) => break,
            Call::PutPart { .. } => {}
            call => {
                let before = parts.remove(&number).unwrap_or_default();
                conversation.begin(number, place, call, before);
            }
        }
    }
    conversation.give_up_all();
    // Calls that write no answer any more end soon.
    drop(stream.shutdown(Shutdown::Both));
}

/// Keeps a part of an object; false if there are too many.
fn gather(parts: &mut HashMap<u64, Vec<u8>>, number: u64, bytes: &[u8]) -> bool {
    let kept: usize = parts.values().map(Vec::len).sum();
    if kept + bytes.len() > OBJECT_BYTES_MAX {
        return false;
    }
    let part = parts.entry(number).or_default();
    part.extend_from_slice(bytes);
    assert!(part.len() <= OBJECT_BYTES_MAX, "no object is larger");
    true
}

/// Whether this names an object of the medium, and nothing else.
fn is_object(name: &str) -> bool {
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    name.split('/').all(is_plain) && !name.ends_with(".partial")
}

fn object_of(call: &Call) -> Option<&str> {
    match call {
        Call::Put { object, .. }
        | Call::Get { object, .. }
        | Call::Stream { object, .. }
        | Call::Length { object }
        | Call::Delete { object }
        | Call::Estimate { object }
        | Call::BeginsAt { object, .. } => Some(object),
        _ => None,
    }
}

impl Conversation {
    /// Begins a call in a thread of its own, or says why not.
    fn begin(self: &Arc<Self>, number: u64, place: String, call: Call, before: Vec<u8>) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let is_taken = {
            let mut under_way = lock(&self.under_way);
            let is_taken = under_way.len() < CALLS_MAX;
            is_taken.then(|| under_way.insert(number, cancelled.clone()));
            is_taken
        };
        let (conversation, at) = (self.clone(), place.clone());
        let answer = move || conversation.answer(number, &at, call, before, &cancelled);
        if !is_taken || spawn("medium", answer).is_err() {
            lock(&self.under_way).remove(&number);
            let why = "its machine has as many calls under way as it takes; look whether the medium hangs".to_owned();
            self.tell(number, Reply::Failed(VolumeError::Away { volume: place, why }));
        }
    }

    fn give_up(&self, number: u64) {
        if let Some(cancelled) = lock(&self.under_way).get(&number) {
            cancelled.store(true, Ordering::Release);
        }
    }

    fn give_up_all(&self) {
        lock(&self.under_way).values().for_each(|cancelled| cancelled.store(true, Ordering::Release));
    }

    fn answer(&self, number: u64, place: &str, call: Call, before: Vec<u8>, cancelled: &Arc<AtomicBool>) {
        let reply = self.perform(number, place, call, before, cancelled);
        self.tell(number, reply.unwrap_or_else(Reply::Failed));
        lock(&self.under_way).remove(&number);
    }

    /// An owner that has gone hears nothing.
    fn tell(&self, number: u64, reply: Reply) {
        tell(&self.answers, number, reply);
    }

    fn volume(&self, place: &str) -> std::result::Result<Arc<dyn Volume>, VolumeError> {
        let away = |why: String| VolumeError::Away { volume: place.to_owned(), why };
        if !self.places.iter().any(|served| served == place) {
            return Err(away("this machine does not serve it".to_owned()));
        }
        let local = at_machine(place).map_or(place, |(local, _)| local);
        let mut volumes = lock(&self.volumes);
        if let Some(volume) = volumes.get(place) {
            return Ok(volume.clone());
        }
        let volume = (self.open)(local).map_err(|error| away(error.to_string()))?;
        volumes.insert(place.to_owned(), volume.clone());
        Ok(volume)
    }

    fn perform(
        &self,
        number: u64,
        place: &str,
        call: Call,
        before: Vec<u8>,
        cancelled: &Arc<AtomicBool>,
    ) -> std::result::Result<Reply, VolumeError> {
        let volume = self.volume(place)?;
        if let Some(name) = object_of(&call).filter(|name| !is_object(name)) {
            return Err(VolumeError::NoObject { volume: place.to_owned(), object: name.escape_debug().to_string() });
        }
        let cancellation = {
            let cancelled = cancelled.clone();
            Cancellation::when(move || cancelled.load(Ordering::Acquire))
        };
        Ok(match call {
            Call::Put { object, bytes } => {
                let whole = if before.is_empty() { bytes.0 } else { [before, bytes.0].concat() };
                volume.put(&object, &whole)?;
                Reply::Done
            }
            Call::Get { object, offset, length } => {
                let mut into = vec![0; (length as usize).min(LINE_CONTENT_BYTES)];
                volume.get(&object, offset, &mut into, &MediumWait::cancelled_by(&cancellation))?;
                Reply::Bytes(Bytes(into))
            }
            Call::Stream { object, offset, length } => {
                let take = self.taking(number);
                let length = (length as usize).min(OBJECT_BYTES_MAX);
                match offset {
                    0 => volume.stream(&object, length, &take, &cancellation)?,
                    offset => volume.stream_part(&object, offset, length, &take, &cancellation)?,
                }
                Reply::Done
            }
            Call::Length { object } => Reply::Number(volume.length_for(&object, &cancellation)?),
            Call::Delete { object } => {
                volume.delete(&object)?;
                Reply::Done
            }
            Call::List { prefix } => Reply::List(volume.list(&prefix)?),
            Call::Media => Reply::Media(volume.media().into_iter().map(Into::into).collect()),
            Call::FreeBytes => Reply::Number(volume.free_bytes()),
            Call::Estimate { object } => {
                Reply::Estimate(volume.estimate(&object).map(|(medium, time)| (medium, time.as_millis() as u64)))
            }
            Call::BeginsAt { object, offset } => Reply::Number(volume.begins_at(&object, offset)),
            Call::Close => {
                volume.close();
                Reply::Done
            }
            Call::Begin | Call::GiveUp { .. } | Call::PutPart { .. } => Reply::Done,
        })
    }

    /// Sends pieces as they arrive, from whatever thread they come.
    fn taking(&self, number: u64) -> Take {
        let answers = self.answers.clone();
        Arc::new(move |pieces: &[u8]| {
            let each = pieces.chunks(LINE_CONTENT_BYTES);
            each.for_each(|piece| tell(&answers, number, Reply::Piece(Bytes(piece.to_vec()))));
        })
    }
}

fn tell(answers: &Mutex<UnixStream>, number: u64, reply: Reply) {
    connection::try_send(&mut lock(answers), &Told { number, reply });
}
