//! Who wrote files, from what, and what happened to them, told to those who may know.
//!
//! Root, who runs the daemon, and a file's owner are told; of others' files that a chain of inputs leads to, only that they are
//! there. Records say whose a file was when they were made; where it has another owner by now, the owner then and root may see
//! them.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};
use stere_format::{AuditValue, FileKind, ProvenanceValue, Timestamp, WatchedProcess};
use stere_naming::{Audit, FileSystem, Io, ROOT, Written};
use stere_policy::show_moment;

use stere_control::public::{Peer, PublicAnswer};
use stere_control::watch::Asked;
use stere_machine::clock;
use stere_machine::error::Result;

/// Files that a chain of inputs, or of what was made, is followed to.
const FILES_MAX: usize = 1000;

/// Records of one file.
type Records = fn(&Audit, Io, u64) -> std::result::Result<Vec<Written>, stere_naming::Error>;

/// Records read, and told, at a time.
const RECORDS_PER_ANSWER: usize = 512;

/// Answers for the daemon.
pub fn serve(
    filesystem: &FileSystem,
    peer: &Peer,
    inode: u64,
    asked: Asked,
    send: &mut dyn FnMut(PublicAnswer) -> bool,
) -> Result<PublicAnswer> {
    let asker = Asker {
        filesystem,
        uid: peer.uid,
        sees_all: sees_all(peer.uid),
        paths: HashMap::new(),
        opened: HashMap::new(),
    };
    match asked {
        Asked::Provenance => asker.provenance(inode),
        Asked::Audit => asker.audit(inode, send),
    }
}

fn sees_all(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Who asks, and what was found out for it.
struct Asker<'a> {
    filesystem: &'a FileSystem,
    uid: u32,
    sees_all: bool,
    paths: HashMap<u64, Option<String>>,
    /// By which names inputs were opened that have several.
    opened: HashMap<u64, Vec<u8>>,
}

impl Asker<'_> {
    fn may_see(&self, owner: u32) -> bool {
        self.sees_all || owner == self.uid
    }

    /// Where a file is now; none if it is not there any more, or must not be told.
    fn path(&mut self, inode: u64) -> Option<String> {
        if let Some(known) = self.paths.get(&inode) {
            return known.clone();
        }
        let caller = clock::own_caller(Io::BLOCKING);
        let found =
            self.filesystem.getattr(&caller, inode).ok().filter(|file| file.nlink > 0 && self.may_see(file.uid));
        let opened = self.opened.get(&inode).cloned();
        let path = found.and_then(|_| opened.or_else(|| self.filesystem.path_of(Io::BLOCKING, inode).ok()));
        let path = path.map(|path| String::from_utf8_lossy(&path).into_owned());
        self.paths.insert(inode, path.clone());
        path
    }

    fn provenance(mut self, inode: u64) -> Result<PublicAnswer> {
        let file = self.filesystem.getattr(&clock::own_caller(Io::BLOCKING), inode)?;
        if !self.may_see(file.uid) {
            return Ok(not_told("who wrote a file is told to its owner and to root"));
        }
        if file.kind() != Some(FileKind::File) {
            return Ok(not_told("provenance is noted of files; name one"));
        }
        let from = self.chain(inode, |record| record.inputs.clone(), Audit::written)?;
        let made = self.chain(inode, |record| vec![record.inode], Audit::made_from)?;
        let (files, made): (Vec<Value>, Vec<Value>) = (from, made.into_iter().skip(1).collect());
        let mut files = files.into_iter();
        let mut facts = match files.next() {
            Some(Value::Object(facts)) => facts,
            _ => Map::new(),
        };
        facts.insert("from".into(), json!(files.collect::<Vec<_>>()));
        facts.insert("made".into(), json!(made));
        Ok(PublicAnswer::Watched { facts: vec![Value::Object(facts)] })
    }

    /// A file and all that its records lead to, the nearest first.
    fn chain(
        &mut self,
        inode: u64,
        leads_to: fn(&ProvenanceValue) -> Vec<u64>,
        records: Records,
    ) -> Result<Vec<Value>> {
        let (mut met, mut waiting, mut told) = (HashSet::from([inode]), VecDeque::from([inode]), Vec::new());
        while let Some(at) = waiting.pop_front() {
            let written = self.filesystem.audit().written(Io::BLOCKING, at)?;
            told.push(self.file(at, &written));
            let next = records(self.filesystem.audit(), Io::BLOCKING, at)?;
            // What others' files were made from is theirs.
            let next: Vec<&Written> = next.iter().filter(|(_, record)| self.may_see(record.owner)).collect();
            for (_, record) in &next {
                for (input, path) in self.filesystem.audit().paths_of_inputs(Io::BLOCKING, record)? {
                    self.opened.entry(input).or_insert(path);
                }
            }
            for number in next.into_iter().flat_map(|(_, record)| leads_to(record)) {
                if met.len() < FILES_MAX && met.insert(number) {
                    waiting.push_back(number);
                }
            }
        }
        assert_eq!(told.len(), met.len(), "each file that was met is told of once");
        Ok(told)
    }

    fn file(&mut self, inode: u64, written: &[Written]) -> Value {
        let path = self.path(inode);
        let own: Vec<_> = written.iter().filter(|(_, record)| self.may_see(record.owner)).collect();
        let was = own.last().map(|(_, record)| text(&record.path)).filter(|was| !was.is_empty());
        let records: Vec<Value> = own.iter().map(|(_, record)| written_facts(record)).collect();
        json!({ "inode": inode, "path": path, "was": was, "written": records })
    }

    fn audit(mut self, inode: u64, send: &mut dyn FnMut(PublicAnswer) -> bool) -> Result<PublicAnswer> {
        let caller = clock::own_caller(Io::BLOCKING);
        let start = self.filesystem.getattr(&caller, inode)?;
        let directory = match start.kind() {
            Some(FileKind::Directory) => Some(text(&self.filesystem.path_of(Io::BLOCKING, inode)?)),
            _ => None,
        };
        let (mut from, mut count) = (Some(1), 0);
        while let Some(at) = from {
            let (records, next) = self.filesystem.audit().audited(Io::BLOCKING, at, RECORDS_PER_ANSWER)?;
            let mut facts = Vec::new();
            for (_, record) in &records {
                let is_meant =
                    record.inode == inode || directory.as_ref().is_some_and(|top| self.is_below(record, top));
                if is_meant && self.may_see(record.owner) {
                    facts.push(audit_facts(record, self.path(record.inode)));
                }
            }
            count += facts.len() as u64;
            if !send(PublicAnswer::Watched { facts }) {
                break;
            }
            from = next;
        }
        Ok(PublicAnswer::Counted { files: count })
    }

    /// Whether a record is of something that is below a directory, or was when it happened.
    fn is_below(&mut self, record: &AuditValue, top: &str) -> bool {
        let slash = if top.ends_with('/') { String::new() } else { "/".to_owned() };
        let prefix = format!("{top}{slash}");
        let paths = [Some(text(&record.path)), Some(text(&record.new_path)), self.path(record.inode)];
        top == "/" || paths.into_iter().flatten().any(|path| path.starts_with(&prefix))
    }
}

fn not_told(message: &str) -> PublicAnswer {
    PublicAnswer::Refused { message: message.to_owned(), is_usage: false }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn moment(time: Timestamp) -> String {
    format!("{}Z", show_moment(time.seconds).replace(' ', "T"))
}

fn process_facts(by: &WatchedProcess, facts: &mut Map<String, Value>) {
    facts.insert("uid".into(), json!(by.uid));
    facts.insert("user".into(), json!(stere_people::name(false, by.uid)));
    facts.insert("gid".into(), json!(by.gid));
    let is_known = by.process != 0;
    facts.insert("process".into(), if is_known { json!(by.process) } else { Value::Null });
    let is_named = !by.executable.is_empty();
    facts.insert("executable".into(), if is_named { json!(text(&by.executable)) } else { Value::Null });
}

fn written_facts(record: &ProvenanceValue) -> Value {
    let mut facts = Map::new();
    facts.insert("time".into(), json!(moment(record.time)));
    process_facts(&record.by, &mut facts);
    let arguments = record.command.strip_suffix(&[0]).unwrap_or(&record.command);
    let words: Vec<String> = arguments.split(|byte| *byte == 0).map(text).collect();
    facts.insert("command".into(), if arguments.is_empty() { Value::Null } else { json!(words) });
    facts.insert("inputs".into(), json!(record.inputs));
    Value::Object(facts)
}

fn audit_facts(record: &AuditValue, now: Option<String>) -> Value {
    let mut facts = Map::new();
    facts.insert("time".into(), json!(moment(record.time)));
    facts.insert("event".into(), json!(record.event.word()));
    let refused = (record.refused != 0).then_some(record.refused);
    facts.insert("refused".into(), json!(refused));
    facts.insert("inode".into(), json!(record.inode));
    let named = |path: &[u8]| (!path.is_empty()).then(|| text(path));
    facts.insert("path".into(), json!(named(&record.path).or(now)));
    facts.insert("new_path".into(), json!(named(&record.new_path)));
    process_facts(&record.by, &mut facts);
    Value::Object(facts)
}

const _: () = assert!(ROOT == 1, "the path of the root is a slash, below which is everything");
