//! Who writes files, from what, and what happens to them: noted for files whose policy says `provenance=yes` or `audit=yes`.
//!
//! What is noted goes into a bounded list in memory and from there at once, in a transaction of its own, into the pool (`list`); who
//! may not wait leaves it to the next who may. So a record is never durable before what it tells of, and is so whenever something that
//! happened later is synced. Noting never fails a call: what cannot be kept is counted and told in the log. A pool in which nobody
//! ever asked pays one look at a flag a call.
//! Invariants: a session is there exactly while a watched file has handles; all in memory is bounded; what is encrypted on media is
//! not named in a record: its path is left out, and in a pool with keys every command.
//! Read next: `events` (what calls do), `list` (records), `docs/design/provenance.md`.

mod events;
mod list;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use stere_file::inode_if_any;
use stere_format::dirent::DirentView;
use stere_format::watch::{InputName, WATCHED_INPUT_NAMES_MAX, WATCHED_INPUTS_MAX, WATCHED_TEXT_BYTES_MAX};
use stere_format::{FileKind, InodeValue, Key, ProvenanceValue, WatchedProcess};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::handles::Handle;
use stere_namespace::inode::{Core, dedup_domain};
use stere_namespace::names::Form;
use stere_namespace::rules::PolicyRules;
use stere_policy::{Process, Switch, Switches};
use stere_store::{Io, Transaction};

pub use events::Place;
pub use list::{AUDIT_MAX, Audited, PROVENANCE_MAX, Written};

/// Processes of which is known what they opened; beyond that the oldest is forgotten.
const READERS_MAX: usize = 4096;
/// How long files that were written may wait until it is looked whether their content is there twice, in seconds.
const DEDUP_SECONDS: i64 = 600;
/// Threads and processes that are told apart while a file is open.
const WRITERS_MAX: usize = 64;

/// Records of who writes files, and of what happens to them.
pub struct Audit {
    core: Arc<Core>,
    rules: Arc<PolicyRules>,
    /// Whether anybody in the pool ever asked.
    is_used: AtomicBool,
    sessions: Mutex<FxHashMap<u64, Session>>,
    /// How many there are.
    session_count: AtomicUsize,
    readers: Mutex<Readers>,
    /// Domains in which files were written since content was last looked for that is there twice, and when it is looked for next.
    written: Mutex<(BTreeSet<u64>, i64)>,
    list: list::List,
}

/// A watched file that is open.
struct Session {
    watched: Watched,
    /// Who opened it last to write: says who writes when a write does not.
    opener: Option<WatchedProcessAndCommand>,
    handles: Vec<Handle>,
    /// Threads that have written.
    threads: Vec<u32>,
    writers: Vec<Writer>,
}

/// A process that wrote while a file was open.
struct Writer {
    /// Number and start.
    process: (u32, u64),
    record: Option<(u64, ProvenanceValue)>,
}

/// A file of which something is to be noted.
#[derive(Debug, Clone)]
pub struct Watched {
    inode: u64,
    owner: u32,
    provenance: bool,
    audit: bool,
    is_file: bool,
    /// Empty where it must not be told.
    path: Vec<u8>,
    is_secret: bool,
    /// Among which files its content is to be found again.
    domain: Option<u64>,
    /// The name that was used, where it has several.
    name_used: Option<NamePlace>,
}

/// A directory, and the sequence of a name in it.
type NamePlace = (u64, u64);

/// A file that a process opened to read, and by which name if it has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Input {
    inode: u64,
    name_used: Option<NamePlace>,
}

/// What is known of who calls.
#[derive(Debug, Clone, Default)]
struct WatchedProcessAndCommand {
    by: WatchedProcess,
    command: Vec<u8>,
}

/// What processes opened to read.
#[derive(Default)]
struct Readers {
    inputs: FxHashMap<(u32, u64), Vec<Input>>,
    order: VecDeque<(u32, u64)>,
}

impl Readers {
    pub fn note(&mut self, process: (u32, u64), input: Input) {
        if !self.inputs.contains_key(&process) {
            if self.order.len() >= READERS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.inputs.remove(&oldest);
            }
            self.order.push_back(process);
            assert!(self.order.len() <= READERS_MAX, "processes that are remembered are bounded");
        }
        let inputs = self.inputs.entry(process).or_default();
        if let Some(known) = inputs.iter_mut().find(|known| known.inode == input.inode) {
            known.name_used = input.name_used;
            return;
        }
        // One more than a record holds, for the file itself may be among them.
        if inputs.len() > WATCHED_INPUTS_MAX {
            inputs.remove(0);
        }
        inputs.push(input);
        assert!(inputs.len() <= WATCHED_INPUTS_MAX + 1, "what is remembered of a process is bounded");
        assert_eq!(self.inputs.len(), self.order.len(), "every process that is remembered can be forgotten");
    }

    /// What a process opened to read but this file.
    fn read_by(&self, process: (u32, u64), but: u64) -> Vec<Input> {
        let inputs = self.inputs.get(&process).map_or(&[][..], Vec::as_slice);
        let others: Vec<Input> = inputs.iter().copied().filter(|input| input.inode != but).collect();
        others[others.len().saturating_sub(WATCHED_INPUTS_MAX)..].to_vec()
    }
}

/// Adds those that a record does not have, as far as it holds them; true if it changed.
fn add_inputs(record: &mut ProvenanceValue, inputs: &[Input]) -> bool {
    let before = record.inputs.len();
    for input in inputs {
        if record.inputs.len() == WATCHED_INPUTS_MAX || record.inputs.contains(&input.inode) {
            continue;
        }
        if let Some((directory, sequence)) = input.name_used
            && record.input_names.len() < WATCHED_INPUT_NAMES_MAX
        {
            let number = record.inputs.len() as u8;
            record.input_names.push(InputName { input: number, directory, sequence });
        }
        record.inputs.push(input.inode);
    }
    assert!(record.inputs.len() <= WATCHED_INPUTS_MAX, "inputs of a record are bounded");
    record.inputs.len() > before
}

impl Audit {
    /// Reads whether the pool has anything to be watched.
    pub fn load(core: Arc<Core>, rules: Arc<PolicyRules>) -> Result<Audit, Error> {
        let list = list::List::load(&core.store)?;
        Ok(Audit {
            core,
            rules,
            is_used: AtomicBool::new(list.is_in_pool()),
            sessions: Mutex::default(),
            session_count: AtomicUsize::new(0),
            readers: Mutex::default(),
            written: Mutex::default(),
            list,
        })
    }

    /// Whether anything is, or was since the mount, to be noted.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    fn has_sessions(&self) -> bool {
        self.session_count.load(Ordering::Acquire) > 0
    }

    /// Sessions, for beginning and ending some; who does counts them anew before letting them go.
    fn locked_sessions(&self) -> MutexGuard<'_, FxHashMap<u64, Session>> {
        let sessions = self.sessions.lock();
        assert_eq!(self.session_count.load(Ordering::Acquire), sessions.len(), "the count is that of the sessions");
        sessions
    }
}

/// A text as it is kept: cut, if it is too long.
fn cut(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(WATCHED_TEXT_BYTES_MAX);
    text
}

impl Audit {
    /// In a transaction that lets policies say this: from now on there may be something to watch.
    pub fn note_audited(&self, transaction: &mut Transaction<'_>, says: Switches) -> Result<(), Error> {
        if says.has_any_watched() && transaction.get(&Key::watched())?.is_none() {
            transaction.put(Key::watched(), &stere_format::WatchedValue::default().encode());
        }
        Ok(())
    }

    /// When that transaction took effect.
    pub fn begin_audit(&self, says: Switches) {
        if says.has_any_watched() {
            self.is_used.store(true, Ordering::Release);
        }
    }

    /// What is to be noted of an inode, if anything is.
    pub fn watched(&self, caller: &Caller<'_>, inode: u64) -> Result<Option<Watched>, Error> {
        if !self.is_used() {
            return Ok(None);
        }
        let found = self.core.store.view(caller.io, |view| {
            let Some(value) = inode_if_any(view, inode)? else { return Ok(None) };
            let effective = self.core.files.policies.effective(view, inode, &value)?;
            Ok::<_, Error>(Some((effective, value)))
        })?;
        let Some((effective, value)) = found else { return Ok(None) };
        let (provenance, audit) = (effective.is_on(Switch::Provenance), effective.is_on(Switch::Audit));
        let domain = dedup_domain(&effective);
        if !provenance && !audit {
            let is_file = value.kind() == Some(FileKind::File);
            let (owner, path, is_secret) = (value.uid, Vec::new(), false);
            let watched =
                Watched { inode, owner, provenance, audit, is_file, path, is_secret, domain, name_used: None };
            return Ok(domain.map(|_| watched));
        }
        let (path, form) = self.place_in_pool(caller.io, inode, &value)?;
        let is_secret = effective.wish.encryption.is_on() || form != Form::Plain;
        let path = if is_secret { Vec::new() } else { cut(path) };
        let is_file = value.kind() == Some(FileKind::File);
        let noted = (value.parent, u64::from(value.rdev));
        let name_used = self.core.names_used.get(inode).unwrap_or(noted);
        let name_used = (is_file && value.nlink > 1).then_some(name_used);
        Ok(Some(Watched { inode, owner: value.uid, provenance, audit, is_file, path, is_secret, domain, name_used }))
    }

    /// Whether each use of a name of this inode must be known, because it may have others and what is noted tells which was used.
    pub fn must_know_names_used(&self, io: Io<'_>, inode: u64, value: &InodeValue) -> Result<bool, Error> {
        if !self.is_used() || value.kind() != Some(FileKind::File) {
            return Ok(false);
        }
        let effective = self.core.store.view(io, |view| self.core.files.policies.effective(view, inode, value))?;
        Ok(effective.is_on(Switch::Provenance) || effective.is_on(Switch::Audit))
    }

    /// A path, by the name that was looked up last, or that the inode notes, where that is so; and the least readable name on it.
    fn place_in_pool(&self, io: Io<'_>, inode: u64, value: &InodeValue) -> Result<(Vec<u8>, Form), Error> {
        let places = self.core.names_used.get(inode).into_iter().chain([(value.parent, u64::from(value.rdev))]);
        for place in places.filter(|_| value.kind() == Some(FileKind::File)) {
            if let Some(found) = self.path_by_name(io, inode, place)? {
                return Ok(found);
            }
        }
        let found = stere_namespace::walk::path_and_form(&self.core.store, &self.core.names, io, inode)?;
        Ok(found.unwrap_or_else(|| (format!("inode {inode}, without a name").into_bytes(), Form::Plain)))
    }

    /// The path of a file by one of its names; none if that is no name of it any more.
    fn path_by_name(
        &self,
        io: Io<'_>,
        inode: u64,
        (directory, sequence): NamePlace,
    ) -> Result<Option<(Vec<u8>, Form)>, Error> {
        let name = self.core.store.view(io, |view| {
            let Some(bytes) = view.get(&Key::dirent(directory, sequence))? else { return Ok(None) };
            let entry = DirentView::decode(&bytes).ok().filter(|entry| entry.inode == inode);
            Ok::<_, Error>(entry.map(|entry| {
                let (name, form) = self.core.names.shown(directory, sequence, &entry);
                (name.into_owned(), form)
            }))
        })?;
        let Some((name, form)) = name else { return Ok(None) };
        let above = stere_namespace::walk::path_and_form(&self.core.store, &self.core.names, io, directory)?;
        Ok(above.map(|(path, above)| (below(&path, &name), form.max(above))))
    }

    /// By which names the inputs of a record were opened that had several, as far as these still are names of them.
    pub fn paths_of_inputs(&self, io: Io<'_>, record: &ProvenanceValue) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        let mut paths = Vec::new();
        for name in &record.input_names {
            let Some(inode) = record.inputs.get(usize::from(name.input)) else { continue };
            let path = self.path_by_name(io, *inode, (name.directory, name.sequence))?;
            paths.extend(path.map(|(path, _)| (*inode, path)));
        }
        Ok(paths)
    }

    /// Now and then has content looked for that was written and is there twice.
    pub fn deduplicate_now_and_then(&self, caller: &Caller<'_>) -> Result<(), Error> {
        if !self.is_used() {
            return Ok(());
        }
        let domains = {
            let mut written = self.written.lock();
            if written.0.is_empty() || caller.now.seconds < written.1 {
                return Ok(());
            }
            written.1 = caller.now.seconds + DEDUP_SECONDS;
            std::mem::take(&mut written.0)
        };
        for domain in domains {
            match self.core.request_reconcile(caller, domain) {
                // It was removed meanwhile.
                Err(Error::Stale | Error::NotPermitted(_)) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Who calls.
    fn who(&self, caller: &Caller<'_>) -> WatchedProcessAndCommand {
        let known = self.core.options.processes.as_ref().filter(|_| caller.process != 0);
        let process = known.and_then(|known| known.process(caller.process)).unwrap_or_default();
        let Process { number, started, executable, command } = process;
        let (uid, gid) = (caller.uid, caller.gid);
        let by = WatchedProcess { uid, gid, process: number, started, executable: cut(executable) };
        // Names of files are in commands, and where there are keys some of them may be encrypted.
        let command = if self.core.files.keyring().has_keys() { Vec::new() } else { cut(command) };
        WatchedProcessAndCommand { by, command }
    }
}

/// The path of a name in a directory.
fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory == b"/" { b"" } else { b"/" };
    [directory, slash, name].concat()
}
