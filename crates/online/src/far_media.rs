//! Media of other machines: directories and tape libraries that another machine of the pool has, used through its mount.
//!
//! Each machine that has some says so in a conversation of its own ([`FarMedia::serve`]), and answers calls there until it ends. A place names
//! its machine for people; which machine is asked is decided by who says that it has exactly this place, and the label proves the medium.
//! Invariants: a call ends with its answer, when its machine is gone, when nobody wants it any more, or after `ANSWER_MAX`; a machine that
//! is away is a medium that is away. Read next: `crates/control/src/far_media.rs`, `crates/daemon/src/client_media.rs`.

use std::collections::HashMap;
use std::io::BufRead;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stere_control::connection;
use stere_control::far_media::{Ask, Bytes, Call, LINE_CONTENT_BYTES, Reply, Told};
use stere_device::{Cancellation, Medium, MediumWait, Take, Volume, VolumeError};
use stere_machine::places::at_machine;

type Answer<T> = Result<T, VolumeError>;

/// How long a call may take: a cartridge may have to be changed first, and others before it.
const ANSWER_MAX: Duration = Duration::from_secs(600);
/// The same for what is only told to people, or a guess.
const TOLD_MAX: Duration = Duration::from_secs(2);
/// Between two looks whether anybody wants the answer.
const LOOK: Duration = Duration::from_millis(200);
/// Places of one machine.
const PLACES_MAX: usize = 64;

/// The machines that serve media now.
#[derive(Default)]
pub struct FarMedia {
    links: Mutex<Vec<Arc<Link>>>,
}

/// A machine that serves.
struct Link {
    host: String,
    places: Vec<String>,
    stream: Mutex<UnixStream>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    next: u64,
    /// Who waits for which answer; none when the link is over.
    waiting: HashMap<u64, Sender<Reply>>,
    is_over: bool,
}

impl FarMedia {
    /// A machine serves these places from now on: its answers are heard here, until the conversation ends.
    pub fn serve(&self, host: String, places: Vec<String>, stream: UnixStream, answers: impl BufRead) {
        if places.len() > PLACES_MAX {
            tracing::warn!(host, places = places.len(), "a machine serves more media than are known of one");
            return;
        }
        let link = Arc::new(Link { host, places, stream: Mutex::new(stream), calls: Mutex::default() });
        let before = {
            let mut links = self.links.lock();
            let is_same = |known: &mut Arc<Link>| known.places == link.places && known.host == link.host;
            let before: Vec<Arc<Link>> = links.extract_if(.., is_same).collect();
            links.push(link.clone());
            before
        };
        // Who comes again has left, whether that was heard by now or not.
        before.iter().for_each(|link| link.end());
        tracing::info!(host = link.host, places = ?link.places, "a machine serves media");
        if link.send(&Ask { number: 0, place: String::new(), call: Call::Begin }) {
            link.hear(answers);
        }
        link.end();
        self.links.lock().retain(|known| !Arc::ptr_eq(known, &link));
        tracing::info!(host = link.host, "a machine serves no media any more");
    }

    /// Nobody is asked any more: the pool is closed.
    pub fn end(&self) {
        self.links.lock().drain(..).for_each(|link| link.end());
    }

    fn link_of(&self, place: &str) -> Option<Arc<Link>> {
        self.links.lock().iter().find(|link| link.places.iter().any(|served| served == place)).cloned()
    }
}

impl Link {
    fn hear(&self, mut answers: impl BufRead) {
        let mut line = String::new();
        while answers.read_line(&mut line).is_ok_and(|length| length > 0) {
            let Ok(Told { number, reply }) = serde_json::from_str(&line) else {
                tracing::warn!(host = self.host, "a machine's answer about a medium is not understood");
                return;
            };
            let mut calls = self.calls.lock();
            let is_last = !matches!(reply, Reply::Piece(_));
            let asker = if is_last { calls.waiting.remove(&number) } else { calls.waiting.get(&number).cloned() };
            drop(calls);
            // Who has given up hears nothing.
            if let Some(asker) = asker {
                drop(asker.send(reply));
            }
            line.clear();
        }
    }

    fn end(&self) {
        let mut calls = self.calls.lock();
        calls.is_over = true;
        calls.waiting.clear();
        drop(calls);
        // Without the stream's lock: somebody may be stuck in sending.
        if let Some(stream) = self.stream.try_lock().and_then(|stream| stream.try_clone().ok()) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Begins a call of one line or several; none when the machine is gone.
    fn ask(&self, place: &str, lines: Vec<Call>) -> Option<(u64, Receiver<Reply>)> {
        assert!(self.places.iter().any(|served| served == place), "a machine is asked for what it serves: {place}");
        assert!(!lines.is_empty(), "a call has a line");
        let (tell, told) = channel();
        let number = {
            let mut calls = self.calls.lock();
            if calls.is_over {
                return None;
            }
            calls.next += 1;
            let number = calls.next;
            calls.waiting.insert(number, tell);
            number
        };
        let ask = |call| Ask { number, place: place.to_owned(), call };
        lines.into_iter().all(|call| self.send(&ask(call))).then_some((number, told))
    }

    fn send(&self, ask: &Ask) -> bool {
        connection::try_send(&mut self.stream.lock(), ask)
    }

    fn give_up(&self, place: &str, number: u64) {
        self.calls.lock().waiting.remove(&number);
        self.send(&Ask { number: 0, place: place.to_owned(), call: Call::GiveUp { of: number } });
    }
}

/// A medium of another machine.
pub struct FarVolume {
    place: String,
    /// For people.
    shown: String,
    /// Why it is away while no machine serves it.
    unserved: String,
    media: Arc<FarMedia>,
}

impl FarVolume {
    pub fn new(place: &str, shown: String, unserved: String, media: &Arc<FarMedia>) -> FarVolume {
        FarVolume { place: place.to_owned(), shown, unserved, media: media.clone() }
    }

    /// At a place that names its machine.
    pub fn of_host(place: &str, media: &Arc<FarMedia>) -> FarVolume {
        let host = at_machine(place).map_or("its machine", |(_, host)| host);
        let unserved = format!(
            "{host} has it, and has not mounted the pool; if it was moved, say so with `stere device online` on the machine that has it"
        );
        FarVolume::new(place, place.to_owned(), unserved, media)
    }

    fn away(&self, why: &str) -> VolumeError {
        VolumeError::Away { volume: self.shown.clone(), why: why.to_owned() }
    }

    fn is_gone(&self) -> VolumeError {
        self.away(&self.unserved)
    }

    /// Asks, and hands each piece on until the last answer.
    fn call(
        &self,
        lines: Vec<Call>,
        within: Duration,
        cancellation: &Cancellation,
        mut take: impl FnMut(&[u8]),
    ) -> Answer<Reply> {
        let link = self.media.link_of(&self.place).ok_or_else(|| self.is_gone())?;
        let (number, told) = link.ask(&self.place, lines).ok_or_else(|| self.is_gone())?;
        let mut heard = Instant::now();
        loop {
            let is_late = heard.elapsed() >= within;
            if is_late || cancellation.is_cancelled() {
                link.give_up(&self.place, number);
                let late = || self.away(&format!("{} has not answered for {} s", link.host, within.as_secs()));
                return Err(if is_late { late() } else { VolumeError::GivenUp { volume: self.shown.clone() } });
            }
            match told.recv_timeout(LOOK) {
                Ok(Reply::Piece(Bytes(piece))) => {
                    take(&piece);
                    heard = Instant::now();
                }
                Ok(Reply::Failed(error)) => return Err(error),
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Disconnected) => return Err(self.is_gone()),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn ask(&self, call: Call, cancellation: &Cancellation) -> Answer<Reply> {
        self.call(vec![call], ANSWER_MAX, cancellation, |_| {})
    }

    /// Puts the pieces of a call one behind the other.
    fn stream_into(&self, call: Call, cancellation: &Cancellation, into: &mut [u8]) -> Answer<()> {
        let mut at = 0;
        let reply = self.call(vec![call], ANSWER_MAX, cancellation, |piece| {
            if let Some(place) = into.get_mut(at..at + piece.len()) {
                place.copy_from_slice(piece);
            }
            at += piece.len();
        });
        match reply? {
            Reply::Done if at == into.len() => Ok(()),
            _ => self.nonsense(),
        }
    }

    /// For what may also be not known.
    fn told(&self, call: Call) -> Option<Reply> {
        self.call(vec![call], TOLD_MAX, &Cancellation::NONE, |_| {}).ok()
    }

    /// The machine says something that was not asked for.
    fn nonsense<T>(&self) -> Answer<T> {
        Err(self.away("its machine gave an answer that was not asked for; install the same stere on both"))
    }
}

impl Volume for FarVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Answer<()> {
        let last = bytes.len().saturating_sub(1) / LINE_CONTENT_BYTES * LINE_CONTENT_BYTES;
        let (before, last) = bytes.split_at(last);
        let part = |part: &[u8]| Call::PutPart { bytes: Bytes(part.to_vec()) };
        let mut lines: Vec<Call> = before.chunks(LINE_CONTENT_BYTES).map(part).collect();
        lines.push(Call::Put { object: object.to_owned(), bytes: Bytes(last.to_vec()) });
        assert!(last.len() <= LINE_CONTENT_BYTES, "the rest of an object fits a line");
        match self.call(lines, ANSWER_MAX, &Cancellation::NONE, |_| {})? {
            Reply::Done => Ok(()),
            _ => self.nonsense(),
        }
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Answer<()> {
        let (object, length) = (object.to_owned(), into.len() as u64);
        if into.len() > LINE_CONTENT_BYTES {
            return self.stream_into(Call::Stream { object, offset, length }, &wait.cancellation, into);
        }
        match self.ask(Call::Get { object, offset, length }, &wait.cancellation)? {
            Reply::Bytes(Bytes(bytes)) if bytes.len() == into.len() => {
                into.copy_from_slice(&bytes);
                Ok(())
            }
            _ => self.nonsense(),
        }
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Answer<()> {
        self.stream_part(object, 0, length, take, cancellation)
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Answer<()> {
        let mut left = length;
        let call = Call::Stream { object: object.to_owned(), offset, length: length as u64 };
        let reply = self.call(vec![call], ANSWER_MAX, cancellation, |piece| {
            let piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            take(piece);
        });
        match reply? {
            Reply::Done if left == 0 => Ok(()),
            _ => self.nonsense(),
        }
    }

    fn length(&self, object: &str) -> Answer<Option<u64>> {
        self.length_for(object, &Cancellation::NONE)
    }

    fn length_for(&self, object: &str, cancellation: &Cancellation) -> Answer<Option<u64>> {
        match self.ask(Call::Length { object: object.to_owned() }, cancellation)? {
            Reply::Number(length) => Ok(length),
            _ => self.nonsense(),
        }
    }

    fn delete(&self, object: &str) -> Answer<()> {
        match self.ask(Call::Delete { object: object.to_owned() }, &Cancellation::NONE)? {
            Reply::Done => Ok(()),
            _ => self.nonsense(),
        }
    }

    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>> {
        match self.ask(Call::List { prefix: prefix.to_owned() }, &Cancellation::NONE)? {
            Reply::List(names) => Ok(names),
            _ => self.nonsense(),
        }
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }

    fn media(&self) -> Vec<Medium> {
        match self.told(Call::Media) {
            Some(Reply::Media(media)) => media.into_iter().map(Into::into).collect(),
            _ => Vec::new(),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        match self.told(Call::FreeBytes)? {
            Reply::Number(bytes) => bytes,
            _ => None,
        }
    }

    fn estimate(&self, object: &str) -> Option<(String, Duration)> {
        match self.told(Call::Estimate { object: object.to_owned() })? {
            Reply::Estimate(estimate) => estimate.map(|(medium, ms)| (medium, Duration::from_millis(ms))),
            _ => None,
        }
    }

    fn begins_at(&self, object: &str, offset: u64) -> Option<u64> {
        match self.told(Call::BeginsAt { object: object.to_owned(), offset })? {
            Reply::Number(begins) => begins,
            _ => None,
        }
    }

    fn is_proven_by_its_media(&self) -> bool {
        stere_robot::is_place(&self.place)
    }

    /// A directory may be; and who asks how a medium is learns at once that its machine is away.
    fn may_be_exchanged(&self) -> bool {
        self.place.starts_with("dir:") || self.media.link_of(&self.place).is_none()
    }

    fn close(&self) {
        self.told(Call::Close);
    }
}
