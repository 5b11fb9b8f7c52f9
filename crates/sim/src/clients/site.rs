//! The pool of the area `clients`, and its owner: the file system, and what it keeps of each session.
//!
//! Invariant: an answer is given when what it tells is in the log. Read next: `crates/file/src/requests.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};

use stere_device::{Device, MemoryDevice};
use stere_format::{PoolId, Timestamp};
use stere_journal::{Tail, TailWorld};
use stere_naming::requests::{self, Noted, Slots};
use stere_naming::{Caller, FileSystem, Io, OpenFlags, Options, ROOT, RequestId};
use stere_pool::{AssembleOptions, Assembly, Candidate, CreateOptions, OpenOptions};
use stere_shared_log::MemoryLog;

use super::{Answer, LINE_BYTES, Message, Operation, Seen, session_of};
use crate::cluster::new_node;
use crate::random::Random;

const DEVICE_BYTES: u64 = 128 << 20;
const DEVICES: usize = 2;
const MEMORY_BYTES: usize = 48 << 20;
const POOL: PoolId = PoolId([8; 16]);
/// Without end: an owner that was replaced writes until it hears of it.
const LEASE_MS: u64 = 1 << 40;
/// The clock stands still here, so that former owners may write for ever.
const HOLD_MS: u32 = 30_000;
const LOG_NAME: &[u8] = b"log";

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn caller(request: Option<RequestId>) -> Caller<'static> {
    let now = Timestamp { seconds: 1, nanoseconds: 0 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0, now, io: Io::BLOCKING, process: 0, request }
}

/// Devices and log.
pub(super) struct Site {
    devices: Vec<Arc<MemoryDevice>>,
    log: MemoryLog,
    terms: u8,
}

impl Site {
    /// A new pool with an empty file.
    pub(super) fn new(random: &mut Random) -> Result<Site, String> {
        let devices = (0..DEVICES).map(|_| Arc::new(MemoryDevice::with_volatile_cache(DEVICE_BYTES))).collect();
        let mut site = Site { devices, log: MemoryLog::new(), terms: 0 };
        let options = CreateOptions {
            pool_name: "lab".into(),
            memory_bytes: MEMORY_BYTES,
            tail: Some(site.tail()?),
            pool: Some(POOL),
            ..CreateOptions::default()
        };
        let mut of_pool = random.fork();
        let mut fill = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = of_pool.next_u64() as u8);
        let devices = site.devices.iter().enumerate().map(|(node, device)| new_node(node, device.clone())).collect();
        let store = stere_pool::create(devices, &options, &mut fill).map_err(told)?;
        FileSystem::format(&store, Timestamp { seconds: 1, nanoseconds: 0 }).map_err(told)?;
        store.close().map_err(told)?;
        let owner = site.open(random)?;
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let made = owner.filesystem.create(&caller(None), ROOT, LOG_NAME, 0o644, flags).map_err(told)?;
        owner.filesystem.release(&caller(None), made.0.inode, made.1).map_err(told)?;
        owner.filesystem.fsync(&caller(None), made.0.inode, false).map_err(told)?;
        Ok(site)
    }

    fn tail(&mut self) -> Result<Arc<Tail>, String> {
        self.terms += 1;
        let world = TailWorld {
            now_ms: Arc::new(|| 0),
            pause: Box::new(|_, tries| tries < 4),
            lease_ms: LEASE_MS,
            hold_ms: HOLD_MS,
        };
        let tail = Tail::open(Arc::new(self.log.another()), POOL, [self.terms; 16], world).map_err(told)?;
        let weak: Weak<Tail> = Arc::downgrade(&tail);
        tail.grants().set_on_wanted(Arc::new(move || {
            weak.upgrade().into_iter().for_each(|tail| drop(tail.put_grants()));
        }));
        Ok(tail)
    }

    /// The next owner.
    pub(super) fn open(&mut self, random: &mut Random) -> Result<Owner, String> {
        let tail = self.tail()?;
        let candidate = |(index, device): (usize, &Arc<MemoryDevice>)| {
            let device: Arc<dyn Device> = device.clone();
            Candidate { path: format!("/nodes/{index}"), device }
        };
        let candidates = self.devices.iter().enumerate().map(candidate).collect();
        let options = AssembleOptions { tail: Some(tail), ..AssembleOptions::default() };
        let assembly = Assembly::with(candidates, &options).map_err(told)?;
        let epoch_nonce = random.next_u64() as u32;
        let options = OpenOptions { memory_bytes: MEMORY_BYTES, epoch_nonce, ..OpenOptions::default() };
        let opened = assembly.open(&options, &|_| None).map_err(told)?;
        let filesystem = FileSystem::new(Arc::new(opened.store), Options::default()).map_err(told)?;
        let log = match filesystem.lookup(&caller(None), ROOT, LOG_NAME) {
            Ok(attributes) => attributes.inode,
            Err(stere_naming::Error::NotFound) => 0,
            Err(error) => return Err(told(error)),
        };
        Ok(Owner { filesystem, log, term: u64::from(self.terms), sessions: HashMap::new(), unanswered: Vec::new() })
    }

    /// What was not flushed is lost, or not.
    pub(super) fn crash(&self, random: &mut Random) {
        self.devices.iter().for_each(|device| device.lose_unflushed(|_| random.chance(1, 2)));
    }
}

/// What an owner knows of a client.
struct Session {
    /// The client has all answers below.
    acknowledged: u64,
    slots: Slots,
    noted: BTreeMap<u64, Noted>,
    /// Done here, and answered or about to be.
    done: HashSet<u64>,
}

/// Whoever has the pool, or had it.
pub(super) struct Owner {
    filesystem: FileSystem,
    log: u64,
    pub(super) term: u64,
    sessions: HashMap<usize, Session>,
    unanswered: Vec<Answer>,
}

impl Owner {
    /// Does what a client asks for, unless it is done.
    pub(super) fn perform(
        &mut self,
        message: &Message,
        answers: &mut Vec<Answer>,
        seen: &mut Seen,
    ) -> Result<(), String> {
        let Message { client, number, acknowledged, is_repeated, .. } = *message;
        let answer = Answer { client, number };
        if let std::collections::hash_map::Entry::Vacant(entry) = self.sessions.entry(client) {
            let noted = requests::of_session(self.filesystem.store(), &session_of(client)).map_err(told)?;
            entry.insert(Session { acknowledged: 0, slots: Slots::of(&noted), noted, done: HashSet::new() });
        }
        let Some(session) = self.sessions.get_mut(&client) else { return Ok(()) };
        let acknowledged = acknowledged.max(session.acknowledged);
        session.acknowledged = acknowledged;
        session.noted.retain(|before, _| *before >= acknowledged);
        session.done.retain(|before| *before >= acknowledged);
        if number < acknowledged || session.done.contains(&number) {
            seen.duplicates += 1;
            let waits = self.unanswered.iter().any(|other| (other.client, other.number) == (client, number));
            answers.extend((!waits && number >= acknowledged).then_some(answer));
            return Ok(());
        }
        let slot = session.slots.take(number, acknowledged);
        let noted = if is_repeated { session.noted.get(&number).copied() } else { None };
        session.done.insert(number);
        seen.noted += u64::from(noted.is_some());
        let by = caller(Some(RequestId { session: session_of(client), slot, number, made: None }));
        let done = self.do_it(&by, &message.operation, noted);
        done.map_err(|error| format!("client {client}, request {number}, {:?}: {error}", message.operation))?;
        match (noted, &message.operation) {
            // It is in the log.
            (Some(_), Operation::Mkdir(_) | Operation::Rename(..) | Operation::Rmdir(_)) => answers.push(answer),
            _ => self.unanswered.push(answer),
        }
        Ok(())
    }

    fn do_it(&self, by: &Caller<'_>, operation: &Operation, noted: Option<Noted>) -> Result<(), stere_naming::Error> {
        let filesystem = &self.filesystem;
        match (operation, noted) {
            (Operation::Append(line), None) => filesystem.append(by, self.log, line, false).map(drop),
            // What was saved of it, and what was not, is there then.
            (Operation::Append(line), Some(noted)) => {
                filesystem.write(by, self.log, noted.place, line, false).map(drop)
            }
            (_, Some(_)) => Ok(()),
            (Operation::Mkdir(name), None) => filesystem.mkdir(by, ROOT, name, 0o755).map(drop),
            (Operation::Rename(from, to), None) => filesystem.rename(by, ROOT, from, ROOT, to, 0),
            (Operation::Rmdir(name), None) => filesystem.rmdir(by, ROOT, name),
        }
    }

    /// Makes all durable, then answers.
    pub(super) fn commit(&mut self, answers: &mut Vec<Answer>) -> Result<(), String> {
        self.filesystem.fsync(&caller(None), self.log, false).map_err(told)?;
        answers.append(&mut self.unanswered);
        Ok(())
    }

    /// Notes of requests that the pool keeps, of so many clients.
    pub(super) fn notes(&self, clients: usize) -> Result<usize, String> {
        let of = |client| requests::of_session(self.filesystem.store(), &session_of(client)).map(|noted| noted.len());
        (0..clients).map(of).sum::<Result<usize, _>>().map_err(told)
    }

    /// All lines of the log.
    pub(super) fn lines(&self) -> Result<Vec<Vec<u8>>, String> {
        let size = self.filesystem.getattr(&caller(None), self.log).map_err(told)?.size;
        let mut bytes = vec![0; size as usize];
        let length = self.filesystem.read(&caller(None), self.log, 0, &mut bytes).map_err(told)?;
        if length as u64 != size || size % LINE_BYTES as u64 != 0 {
            return Err(format!("the log has {size} bytes, of which {length} can be read"));
        }
        Ok(bytes.chunks(LINE_BYTES).map(<[u8]>::to_vec).collect())
    }
}
