//! A trace of calls in memory, its writer and its tolerant reader.
//!
//! The writer gathers calls into blocks and hands out bytes; where they go is the caller's matter. Invariants: times of a trace
//! count from its start; a name is written at most once for each file or client, until many others were. The reader passes
//! over blocks that are damaged, finds the next one where a header is, and stops at one that is cut short; it says all that. Read next: `docs/format/io-trace.md`,
//! `table_file.rs`, `dxt.rs`, `analyse.rs`.

use std::collections::BTreeMap;
use std::hash::Hasher;

use rustc_hash::FxHashSet;
use siphasher::sip::SipHasher24;
use stere_format::{IoTraceBlock, IoTraceBlockHeader, IoTraceHeader, IoTraceName, IoTraceNamed, IoTraceRecord};

use crate::call::Call;
use crate::error::WorkloadError;

/// Names of files and clients.
pub type Names = BTreeMap<(IoTraceNamed, u64), String>;

/// What becomes of names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// They stand in the trace.
    Plain,
    /// Each part of a path is hashed with this key: equal parts stay equal, and nobody without the key learns them.
    Hashed([u8; 16]),
    /// They are left out.
    None,
}

/// A trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Nanoseconds since 1970 at its start; 0 where nobody told.
    pub started_unix_ns: u64,
    pub is_hashed: bool,
    /// Times count from the start.
    pub calls: Vec<Call>,
    pub names: Names,
}

/// What of a trace could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// At the end: a block that was cut short, or what follows a header that is no header.
    pub torn_bytes: usize,
    pub damaged_blocks: usize,
    pub damaged_bytes: usize,
}

impl Missing {
    pub fn is_nothing(&self) -> bool {
        *self == Missing::default()
    }
}

/// Calls of one block; 256 KiB are appended at once.
const BLOCK_CALLS: usize = 4096;
/// Names of one block.
const BLOCK_NAMES: usize = 256;
/// Names that a writer remembers to have written; beyond that it begins anew, and some are written again.
const NAMES_MAX: usize = 1 << 16;
const _: () = assert!(BLOCK_CALLS <= IoTraceBlock::CALLS_MAX && BLOCK_NAMES <= IoTraceBlock::NAMES_MAX);

/// Makes the bytes of a trace while it is recorded.
pub struct TraceWriter {
    started_ns: u64,
    rule: NameRule,
    out: Vec<u8>,
    calls: Vec<IoTraceRecord>,
    names: Vec<IoTraceName>,
    written: FxHashSet<(bool, u64)>,
}

impl TraceWriter {
    /// `started_ns` is the start by the clock of the calls, `started_unix_ns` the same moment since 1970.
    pub fn new(started_ns: u64, started_unix_ns: u64, rule: NameRule) -> Self {
        let header = IoTraceHeader { started_unix_ns, is_hashed: matches!(rule, NameRule::Hashed(_)) };
        let (calls, names, written) = (Vec::new(), Vec::new(), FxHashSet::default());
        TraceWriter { started_ns, rule, out: header.encode(), calls, names, written }
    }

    pub fn note(&mut self, call: &Call) {
        let at_ns = call.at_ns.saturating_sub(self.started_ns);
        self.calls.push(IoTraceRecord { at_ns, ..call.to_record() });
        if self.calls.len() == BLOCK_CALLS {
            self.close_calls();
        }
    }

    /// Whether the name of this one is still wanted, so that a caller need not look it up in vain.
    pub fn wants_name(&self, of: IoTraceNamed, id: u64) -> bool {
        self.rule != NameRule::None && !self.written.contains(&(of == IoTraceNamed::File, id))
    }

    pub fn name(&mut self, of: IoTraceNamed, id: u64, name: &str) {
        if !self.wants_name(of, id) {
            return;
        }
        if self.written.len() == NAMES_MAX {
            self.written.clear();
        }
        self.written.insert((of == IoTraceNamed::File, id));
        let name = match self.rule {
            NameRule::Hashed(key) => hashed_name(&key, name),
            NameRule::Plain | NameRule::None => name.to_owned(),
        };
        self.names.push(IoTraceName { of, id, name });
        assert!(self.written.len() <= NAMES_MAX && self.names.len() <= BLOCK_NAMES, "a writer is bounded");
        if self.names.len() == BLOCK_NAMES {
            self.close_names();
        }
    }

    fn close_calls(&mut self) {
        if !self.calls.is_empty() {
            self.out.extend(IoTraceBlock::Calls(std::mem::take(&mut self.calls)).encode());
        }
    }

    fn close_names(&mut self) {
        if !self.names.is_empty() {
            self.out.extend(IoTraceBlock::Names(std::mem::take(&mut self.names)).encode());
        }
    }

    /// Bytes that wait to be appended to the file; only whole blocks.
    pub fn ready_bytes(&self) -> usize {
        self.out.len()
    }

    /// Takes them.
    pub fn take_ready(&mut self) -> Vec<u8> {
        assert!(self.calls.len() < BLOCK_CALLS, "full blocks are closed");
        std::mem::take(&mut self.out)
    }

    /// Closes the open blocks and takes everything.
    pub fn finish(mut self) -> Vec<u8> {
        self.close_names();
        self.close_calls();
        assert!(self.calls.is_empty() && self.names.is_empty(), "everything is closed");
        self.out
    }
}

/// A path whose parts are hashed; slashes stay.
pub fn hashed_name(key: &[u8; 16], name: &str) -> String {
    let hashed = |part: &str| {
        let mut hasher = SipHasher24::new_with_key(key);
        hasher.write(part.as_bytes());
        if part.is_empty() { String::new() } else { format!("{:016x}", hasher.finish()) }
    };
    let hashed = name.split('/').map(hashed).collect::<Vec<_>>().join("/");
    assert_eq!(hashed.matches('/').count(), name.matches('/').count(), "slashes stay");
    hashed
}

/// Where the next header of a block is that can be believed.
fn next_block(bytes: &[u8], from: usize) -> Option<usize> {
    let magic = IoTraceBlockHeader::MAGIC;
    let starts = bytes.get(from..)?.windows(magic.len()).enumerate().filter(|(_, window)| *window == magic);
    let mut headers = starts.map(|(start, _)| from + start);
    headers.find(|start| IoTraceBlockHeader::decode(&bytes[*start..]).is_ok())
}

impl Trace {
    /// The trace as a file.
    pub fn encode(&self, rule: NameRule) -> Vec<u8> {
        let mut writer = TraceWriter::new(0, self.started_unix_ns, rule);
        self.names.iter().for_each(|((of, id), name)| writer.name(*of, *id, name));
        self.calls.iter().for_each(|call| writer.note(call));
        writer.finish()
    }

    /// Reads what can be read of a file. Fails only where it does not begin as a trace.
    pub fn decode(bytes: &[u8]) -> Result<(Trace, Missing), WorkloadError> {
        let header = IoTraceHeader::decode(bytes)?;
        let IoTraceHeader { started_unix_ns, is_hashed } = header;
        let mut trace = Trace { started_unix_ns, is_hashed, ..Trace::default() };
        let (mut at, mut missing) = (IoTraceHeader::SIZE, Missing::default());
        while at < bytes.len() {
            let Ok(header) = IoTraceBlockHeader::decode(&bytes[at..]) else {
                let Some(next) = next_block(bytes, at + 1) else { break };
                missing.damaged_blocks += 1;
                missing.damaged_bytes += next - at;
                at = next;
                continue;
            };
            let length = IoTraceBlockHeader::SIZE + header.content_bytes as usize;
            if length > bytes.len() - at {
                break;
            }
            match IoTraceBlock::decode(&bytes[at..]) {
                Ok((block, _)) => trace.add(block),
                Err(_) => {
                    missing.damaged_blocks += 1;
                    missing.damaged_bytes += length;
                }
            }
            at += length;
        }
        missing.torn_bytes = bytes.len() - at;
        assert!(at <= bytes.len(), "no block ends beyond the file");
        Ok((trace, missing))
    }

    fn add(&mut self, block: IoTraceBlock) {
        match block {
            // The decoder knows no kinds beyond ours.
            IoTraceBlock::Calls(records) => self.calls.extend(records.iter().filter_map(Call::from_record)),
            IoTraceBlock::Names(names) => {
                self.names.extend(names.into_iter().map(|name| ((name.of, name.id), name.name)));
            }
        }
    }

    pub fn file_name(&self, file: u64) -> Option<&str> {
        self.names.get(&(IoTraceNamed::File, file)).map(String::as_str)
    }

    pub fn client_name(&self, client: u64) -> Option<&str> {
        self.names.get(&(IoTraceNamed::Client, client)).map(String::as_str)
    }
}

#[cfg(test)]
pub(crate) mod tests;
