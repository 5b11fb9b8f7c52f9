//! What calls do for files that are watched: looked up before the call, noted when it was done or refused.

use std::sync::atomic::Ordering;

use stere_format::{AuditEvent, AuditValue, ProvenanceValue};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::handles::{Handle, OpenFlags};
use stere_namespace::rules::Watches;
use stere_store::Io;

use super::{Input, Session, WRITERS_MAX, Watched, WatchedProcessAndCommand, Writer, add_inputs, below, cut};
use crate::audit::Audit;

/// A name that something is to be made under, looked up before.
pub struct Place {
    directory: Watched,
}

/// Errors that say that somebody was not let.
fn refusal(error: &Error) -> Option<u8> {
    let is_one = matches!(
        error,
        Error::NotPermitted(_) | Error::Retained(_) | Error::ReadOnly(_) | Error::OfVersions | Error::OverQuota(_)
    );
    let is_key = matches!(error, Error::Key(_)) && error.errno() == libc::ENOKEY;
    (is_one || is_key).then(|| u8::try_from(error.errno()).unwrap_or(u8::MAX))
}

/// Who calls, and why not; nothing where the call is repeated, or failed for other reasons.
fn refused<T>(outcome: &Result<T, &Error>) -> Option<u8> {
    match outcome {
        Ok(_) => Some(0),
        Err(error) => refusal(error),
    }
}

impl Audit {
    fn put_audit(
        &self,
        caller: &Caller<'_>,
        watched: &Watched,
        event: AuditEvent,
        refused: u8,
        who: &WatchedProcessAndCommand,
        new_path: Vec<u8>,
    ) {
        let mut by = who.by.clone();
        (by.uid, by.gid) = (caller.uid, caller.gid);
        let (path, inode, owner) = (watched.path.clone(), watched.inode, watched.owner);
        let new_path = if watched.is_secret { Vec::new() } else { cut(new_path) };
        assert!(!watched.is_secret || path.is_empty(), "what is encrypted is not named in a record");
        self.list.put_audit(AuditValue { time: caller.now, event, refused, inode, owner, by, path, new_path });
    }

    /// Notes into the pool what came of a call; whoever may not wait leaves it to the next who may.
    fn try_flush(&self, caller: &Caller<'_>) {
        match self.flush_records(caller.io) {
            Ok(()) | Err(Error::WouldBlock) => {}
            Err(error) => tracing::warn!(%error, "records of provenance and audit wait"),
        }
    }

    /// A file was opened, or was not to be.
    pub fn saw_open(
        &self,
        caller: &Caller<'_>,
        watched: Option<Watched>,
        flags: OpenFlags,
        outcome: Result<Option<Handle>, &Error>,
    ) {
        let Some(watched) = watched.filter(|watched| watched.is_file) else { return };
        let Some(errno) = refused(&outcome) else { return };
        let who = self.who(caller);
        if watched.audit {
            let event = if flags.write || flags.truncate { AuditEvent::OpenToWrite } else { AuditEvent::Open };
            self.put_audit(caller, &watched, event, errno, &who, Vec::new());
        }
        if let Ok(Some(handle)) = outcome {
            if watched.provenance && flags.read && who.by.process != 0 {
                let process = (who.by.process, who.by.started);
                let input = Input { inode: watched.inode, name_used: watched.name_used };
                self.readers.lock().note(process, input);
            }
            let inode = watched.inode;
            self.begin_session(watched, flags.write.then_some(who), handle);
            if flags.truncate {
                self.saw_change(caller, inode);
            }
        }
        self.try_flush(caller);
    }

    fn begin_session(&self, watched: Watched, opener: Option<WatchedProcessAndCommand>, handle: Handle) {
        let mut sessions = self.locked_sessions();
        let inode = watched.inode;
        let fresh = || Session {
            watched: watched.clone(),
            opener: None,
            handles: Vec::new(),
            threads: Vec::new(),
            writers: Vec::new(),
        };
        let session = sessions.entry(inode).or_insert_with(fresh);
        assert!(!session.handles.contains(&handle), "a handle is opened once");
        assert_eq!(session.watched.inode, inode, "a session is of the file that it is found by");
        session.handles.push(handle);
        if opener.is_some() {
            // Changes are told of the name that it was opened by to make them.
            (session.opener, session.watched) = (opener, watched);
        }
        self.session_count.store(sessions.len(), Ordering::Release);
    }

    /// Whether a file is open of which something is noted: each use of its names must be known.
    pub fn is_in_session(&self, inode: u64) -> bool {
        self.has_sessions() && self.sessions.lock().contains_key(&inode)
    }

    /// Where something is to be made, if what is made there may be watched: by what the directory says, or by rules that hold
    /// there. Both are in memory, and nothing else is looked up where nobody asked.
    pub fn watched_place(&self, caller: &Caller<'_>, directory: u64) -> Result<Option<Place>, Error> {
        if !self.is_used() {
            return Ok(None);
        }
        match self.rules.scopes(caller.io, directory)?.watches() {
            Watches::All => self.place(caller, directory),
            Watches::Content => Ok(self.watched(caller, directory)?.map(|directory| Place { directory })),
            Watches::Nothing => Ok(None),
        }
    }

    /// A directory and its path. Looked up before the call: when it is done, a caller who may not wait cannot ask any more.
    pub fn place(&self, caller: &Caller<'_>, directory: u64) -> Result<Option<Place>, Error> {
        let watched = match self.watched(caller, directory)? {
            Some(watched) if watched.provenance || watched.audit => watched,
            _ => {
                let value = self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, directory))?;
                let Some(value) = value else { return Ok(None) };
                let (path, form) = self.place_in_pool(caller.io, directory, &value)?;
                let is_encrypted = self.core.effective(caller, directory)?.wish.encryption.is_on();
                let is_secret = is_encrypted || form != stere_namespace::names::Form::Plain;
                let (inode, owner) = (directory, value.uid);
                let (provenance, audit, is_file) = (false, false, false);
                let (domain, name_used) = (None, None);
                Watched { inode, owner, provenance, audit, is_file, path: cut(path), is_secret, domain, name_used }
            }
        };
        Ok(Some(Place { directory: watched }))
    }

    /// Something was made, and maybe opened.
    pub fn saw_made(
        &self,
        caller: &Caller<'_>,
        Place { directory }: &Place,
        name: &[u8],
        inode: u64,
        opened: Option<(Handle, OpenFlags)>,
    ) {
        let path = if directory.is_secret { Vec::new() } else { cut(below(&directory.path, name)) };
        let watched = match self.watched(caller, inode) {
            Ok(Some(watched)) => Watched { path: if watched.is_secret { Vec::new() } else { path }, ..watched },
            Ok(None) => return,
            // It is done, and what is above it has been asked before.
            Err(_) if directory.provenance || directory.audit => {
                Watched { inode, owner: caller.uid, is_file: opened.is_some(), path, ..directory.clone() }
            }
            Err(_) => return,
        };
        let who = self.who(caller);
        if watched.audit {
            self.put_audit(caller, &watched, AuditEvent::Create, 0, &who, Vec::new());
        }
        if let Some((handle, flags)) = opened {
            self.begin_session(watched, flags.write.then_some(who), handle);
        }
        self.try_flush(caller);
    }

    /// A file's content was changed, by somebody who has it open.
    pub fn saw_change(&self, caller: &Caller<'_>, inode: u64) {
        if !self.has_sessions() {
            return;
        }
        let mut sessions = self.sessions.lock();
        let Some(session) = sessions.get_mut(&inode) else { return };
        if session.threads.contains(&caller.process) {
            return;
        }
        if session.threads.len() >= WRITERS_MAX {
            session.threads.clear();
        }
        session.threads.push(caller.process);
        // Whoever gathers writes, or comes past the kernel, does not tell who wrote: then it was who opened the file.
        let who = match caller.process {
            0 => session.opener.clone().unwrap_or_else(|| self.who(caller)),
            _ => self.who(caller),
        };
        let process = (who.by.process, who.by.started);
        if session.writers.len() >= WRITERS_MAX || session.writers.iter().any(|writer| writer.process == process) {
            return;
        }
        if session.watched.audit {
            self.put_audit(caller, &session.watched, AuditEvent::Write, 0, &who, Vec::new());
        }
        let record = session.watched.provenance.then(|| self.put_written(caller, &session.watched, &who));
        session.writers.push(Writer { process, record });
        assert!(session.writers.len() <= WRITERS_MAX && session.threads.len() <= WRITERS_MAX, "writers are bounded");
        drop(sessions);
        self.try_flush(caller);
    }

    fn put_written(
        &self,
        caller: &Caller<'_>,
        watched: &Watched,
        who: &WatchedProcessAndCommand,
    ) -> (u64, ProvenanceValue) {
        let process = (who.by.process, who.by.started);
        let inputs = match who.by.process {
            0 => Vec::new(),
            _ => self.readers.lock().read_by(process, watched.inode),
        };
        assert!(!watched.is_secret || watched.path.is_empty(), "what is encrypted is not named in a record");
        assert!(!inputs.iter().any(|input| input.inode == watched.inode), "a file is not made from itself");
        let command = who.command.clone();
        let (inode, owner, path, by) = (watched.inode, watched.owner, watched.path.clone(), who.by.clone());
        let (time, fresh) = (caller.now, ProvenanceValue::default());
        let mut value = ProvenanceValue { time, inode, owner, by, path, command, ..fresh };
        add_inputs(&mut value, &inputs);
        (self.list.put_provenance(value.clone()), value)
    }

    /// A change was refused, of a file that is open.
    pub fn saw_no_change(&self, caller: &Caller<'_>, inode: u64, error: &Error) {
        let Some(errno) = refusal(error).filter(|_| self.has_sessions()) else { return };
        let watched = self.sessions.lock().get(&inode).map(|session| session.watched.clone());
        if let Some(watched) = watched.filter(|watched| watched.audit) {
            self.put_audit(caller, &watched, AuditEvent::Write, errno, &self.who(caller), Vec::new());
            self.try_flush(caller);
        }
    }

    /// A file was cut by its path, or that was refused.
    pub fn saw_cut(&self, caller: &Caller<'_>, watched: Option<Watched>, outcome: Result<(), &Error>) {
        let Some(watched) = watched else { return };
        let is_open = self.sessions.lock().contains_key(&watched.inode);
        if is_open && outcome.is_ok() {
            return self.saw_change(caller, watched.inode);
        }
        let Some(errno) = refused(&outcome) else { return };
        let who = self.who(caller);
        if watched.audit {
            self.put_audit(caller, &watched, AuditEvent::Write, errno, &who, Vec::new());
        }
        if watched.provenance && errno == 0 {
            self.put_written(caller, &watched, &who);
        }
        self.try_flush(caller);
    }

    /// A handle was let go: what its writers read since they wrote belongs to their records too.
    pub fn saw_release(&self, caller: &Caller<'_>, inode: u64, handle: Handle) {
        if !self.has_sessions() {
            return;
        }
        let mut sessions = self.locked_sessions();
        let Some(session) = sessions.get_mut(&inode) else { return };
        assert!(!session.handles.is_empty(), "a session of inode {inode} ends with its last handle");
        session.handles.retain(|one| *one != handle);
        let readers = self.readers.lock();
        for writer in &mut session.writers {
            let Some((number, value)) = &mut writer.record else { continue };
            let inputs = readers.read_by(writer.process, inode);
            if writer.process.0 != 0 && add_inputs(value, &inputs) {
                self.list.put_provenance_again(*number, value.clone());
            }
        }
        drop(readers);
        if session.handles.is_empty() {
            if let Some(domain) = session.watched.domain.filter(|_| !session.threads.is_empty()) {
                self.written.lock().0.insert(domain);
            }
            sessions.remove(&inode);
            self.session_count.store(sessions.len(), Ordering::Release);
        }
        drop(sessions);
        self.try_flush(caller);
    }

    /// What is watched of a name, with its path.
    pub fn watched_name(&self, caller: &Caller<'_>, directory: u64, name: &[u8]) -> Result<Option<Watched>, Error> {
        if !self.is_used() {
            return Ok(None);
        }
        let found = self.core.store.view(caller.io, |view| self.core.names.find(view, directory, name))?;
        let Some(found) = found else { return Ok(None) };
        let Some(watched) = self.watched(caller, found.inode)?.filter(|watched| watched.audit) else { return Ok(None) };
        let place = self.place(caller, directory)?;
        let path = place.filter(|place| !place.directory.is_secret && !watched.is_secret);
        let path = path.map_or_else(Vec::new, |place| cut(below(&place.directory.path, name)));
        Ok(Some(Watched { path, ..watched }))
    }

    /// A name was removed, or was not to be.
    pub fn saw_removed(&self, caller: &Caller<'_>, watched: Option<Watched>, outcome: Result<(), &Error>) {
        let (Some(watched), Some(errno)) = (watched, refused(&outcome)) else { return };
        self.put_audit(caller, &watched, AuditEvent::Delete, errno, &self.who(caller), Vec::new());
        self.try_flush(caller);
    }

    /// Something was renamed, maybe over something else, or was not to be.
    pub fn saw_renamed(
        &self,
        caller: &Caller<'_>,
        [source, target]: [Option<Watched>; 2],
        (place, name): (Option<&Place>, &[u8]),
        is_exchange: bool,
        outcome: Result<(), &Error>,
    ) {
        let Some(errno) = refused(&outcome) else { return };
        if source.is_none() && target.is_none() {
            return;
        }
        let who = self.who(caller);
        let new_path = match place {
            Some(Place { directory }) if !directory.is_secret => below(&directory.path, name),
            _ => Vec::new(),
        };
        let old_path = source.as_ref().map(|source| source.path.clone()).unwrap_or_default();
        if let Some(target) = target {
            let event = if is_exchange { AuditEvent::Rename } else { AuditEvent::Delete };
            let path = if is_exchange { old_path } else { Vec::new() };
            self.put_audit(caller, &target, event, errno, &who, path);
        }
        if let Some(source) = source {
            self.put_audit(caller, &source, AuditEvent::Rename, errno, &who, new_path);
        }
        self.try_flush(caller);
    }

    /// Puts what waits into the pool, for those who make things durable.
    pub fn save_records(&self, io: Io<'_>) -> Result<(), Error> {
        match self.flush_records(io) {
            Err(Error::WouldBlock) if !io.may_block() => Err(Error::WouldBlock),
            // What cannot be noted keeps nobody's data from being durable.
            _ => Ok(()),
        }
    }
}
