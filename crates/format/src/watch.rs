//! Who wrote a file and what happened to it, where somebody asked for that: values under [`crate::Key::provenance`] and
//! [`crate::Key::audit`], and how far both lists are.

use crate::error::DecodeError;
use crate::inode::Timestamp;
use crate::wire::{Reader, Writer};

/// Longest path or command that is noted; who writes these cuts what is longer.
pub const WATCHED_TEXT_BYTES_MAX: usize = 1024;
/// Most inputs of one record.
pub const WATCHED_INPUTS_MAX: usize = 64;
/// Most inputs of one record of which it is noted by which of their names they were opened.
pub const WATCHED_INPUT_NAMES_MAX: usize = 24;

/// The value of [`crate::Key::watched`]: numbers of the oldest records that may be there, and of the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedValue {
    pub provenance_first: u64,
    pub provenance_next: u64,
    pub audit_first: u64,
    pub audit_next: u64,
}

impl Default for WatchedValue {
    fn default() -> Self {
        Self { provenance_first: 1, provenance_next: 1, audit_first: 1, audit_next: 1 }
    }
}

impl WatchedValue {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 40;
    const STRUCTURE: &'static str = "watched";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.put_u8(Self::VERSION);
        out.put_zeros(7);
        for number in [self.provenance_first, self.provenance_next, self.audit_first, self.audit_next] {
            out.put_u64(number);
        }
        assert_eq!(out.len(), Self::SIZE, "as long as the page says");
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        reader.zeros(7)?;
        let (provenance_first, provenance_next) = (reader.u64()?, reader.u64()?);
        let (audit_first, audit_next) = (reader.u64()?, reader.u64()?);
        reader.check((1..=provenance_next).contains(&provenance_first), "first of provenance", provenance_first)?;
        reader.check((1..=audit_next).contains(&audit_first), "first of the audit", audit_first)?;
        reader.finish()?;
        Ok(Self { provenance_first, provenance_next, audit_first, audit_next })
    }
}

/// A process as the daemon's machine told of it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WatchedProcess {
    pub uid: u32,
    pub gid: u32,
    /// Its number; 0 where it is not known.
    pub process: u32,
    /// When it was started, in the machine's own count, which tells processes of one number apart.
    pub started: u64,
    /// Empty where it is not known or must not be told.
    pub executable: Vec<u8>,
}

impl WatchedProcess {
    const SIZE: usize = 20;

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_u32(self.process);
        out.put_u64(self.started);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (uid, gid, process, started) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u64()?);
        Ok(Self { uid, gid, process, started, executable: Vec::new() })
    }
}

/// By which of its names an input was opened, where it had several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputName {
    /// Which of the inputs, from 0.
    pub input: u8,
    pub directory: u64,
    /// Of the name in the directory.
    pub sequence: u64,
}

/// A file was written, or made.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ProvenanceValue {
    pub time: Timestamp,
    pub inode: u64,
    /// Whose the file was.
    pub owner: u32,
    pub by: WatchedProcess,
    /// How the file was called; empty where that must not be told.
    pub path: Vec<u8>,
    /// The command with its arguments, a zero byte behind each.
    pub command: Vec<u8>,
    /// Files that the process had opened to read.
    pub inputs: Vec<u64>,
    /// In the order of the inputs.
    pub input_names: Vec<InputName>,
}

impl ProvenanceValue {
    pub const VERSION: u8 = 2;
    /// Without names of inputs, which this version did not know.
    pub const VERSION_WITHOUT_NAMES: u8 = 1;
    /// Before inputs and texts.
    pub const FIXED_BYTES: usize = 56;
    const STRUCTURE: &'static str = "provenance";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.inputs.len() <= WATCHED_INPUTS_MAX, "more inputs are left out before they get here");
        assert!(self.input_names.len() <= WATCHED_INPUT_NAMES_MAX, "more names are left out before they get here");
        let version = if self.input_names.is_empty() { Self::VERSION_WITHOUT_NAMES } else { Self::VERSION };
        let mut out = vec![version, self.inputs.len() as u8];
        put_lengths(&mut out, [&self.by.executable, &self.path, &self.command]);
        put_time(&mut out, self.time);
        out.put_u64(self.inode);
        out.put_u32(self.owner);
        out.put_u8(self.input_names.len() as u8);
        out.put_zeros(3);
        self.by.write(&mut out);
        assert_eq!(out.len(), Self::FIXED_BYTES, "inputs begin where the page says");
        self.inputs.iter().for_each(|input| out.put_u64(*input));
        for name in &self.input_names {
            out.put_u8(name.input);
            out.put_u64(name.directory);
            out.put_u64(name.sequence);
        }
        [&self.by.executable, &self.path, &self.command].into_iter().for_each(|text| out.extend_from_slice(text));
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        let has_names = reader.version_of_two(Self::VERSION_WITHOUT_NAMES, Self::VERSION)?;
        let count = usize::from(reader.u8()?);
        reader.check(count <= WATCHED_INPUTS_MAX, "number of inputs", count as u64)?;
        let [executable, path, command] = lengths(&mut reader)?;
        let time = time(&mut reader)?;
        let (inode, owner) = (reader.u64()?, reader.u32()?);
        let names = usize::from(reader.u8()?);
        let is_right = if has_names { (1..=WATCHED_INPUT_NAMES_MAX).contains(&names) } else { names == 0 };
        reader.check(is_right, "number of names of inputs", names as u64)?;
        reader.zeros(3)?;
        let mut by = WatchedProcess::read(&mut reader)?;
        let inputs = (0..count).map(|_| reader.u64()).collect::<Result<_, _>>()?;
        let mut input_names: Vec<InputName> = Vec::with_capacity(names);
        for _ in 0..names {
            let (input, directory, sequence) = (reader.u8()?, reader.u64()?, reader.u64()?);
            let is_next = input_names.last().is_none_or(|last| last.input < input);
            reader.check(is_next && usize::from(input) < count, "input that is named", u64::from(input))?;
            input_names.push(InputName { input, directory, sequence });
        }
        by.executable = reader.take(executable)?.to_vec();
        let (path, command) = (reader.take(path)?.to_vec(), reader.take(command)?.to_vec());
        reader.finish()?;
        Ok(Self { time, inode, owner, by, path, command, inputs, input_names })
    }
}

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AuditEvent {
    #[default]
    Create = 1,
    Open,
    /// Opened, and its content may be changed.
    OpenToWrite,
    /// The first change of a process since the file was opened.
    Write,
    Rename,
    Delete,
}

impl AuditEvent {
    pub const ALL: [Self; 6] = [Self::Create, Self::Open, Self::OpenToWrite, Self::Write, Self::Rename, Self::Delete];

    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::OpenToWrite => "open to write",
            Self::Write => "write",
            Self::Rename => "rename",
            Self::Delete => "delete",
        }
    }
}

/// Something happened to a file, or was refused.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AuditValue {
    pub time: Timestamp,
    pub event: AuditEvent,
    /// Why it was refused, as errno(3); 0: it was done.
    pub refused: u8,
    pub inode: u64,
    /// Whose the file was.
    pub owner: u32,
    pub by: WatchedProcess,
    /// How the file was called; empty where that must not be told.
    pub path: Vec<u8>,
    /// How it is called now, where it was renamed.
    pub new_path: Vec<u8>,
}

impl AuditValue {
    pub const VERSION: u8 = 1;
    /// Before the texts.
    pub const FIXED_BYTES: usize = 56;
    const STRUCTURE: &'static str = "audit";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![Self::VERSION, self.event as u8];
        put_lengths(&mut out, [&self.by.executable, &self.path, &self.new_path]);
        put_time(&mut out, self.time);
        out.put_u64(self.inode);
        out.put_u32(self.owner);
        out.put_u8(self.refused);
        out.put_zeros(3);
        self.by.write(&mut out);
        assert_eq!(out.len(), Self::FIXED_BYTES, "texts begin where the page says");
        [&self.by.executable, &self.path, &self.new_path].into_iter().for_each(|text| out.extend_from_slice(text));
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let code = reader.u8()?;
        let event = AuditEvent::ALL.into_iter().find(|event| *event as u8 == code);
        let event = event.ok_or_else(|| reader.out_of_range("event", u64::from(code)))?;
        let [executable, path, new_path] = lengths(&mut reader)?;
        let time = time(&mut reader)?;
        let (inode, owner, refused) = (reader.u64()?, reader.u32()?, reader.u8()?);
        reader.zeros(3)?;
        let mut by = WatchedProcess::read(&mut reader)?;
        by.executable = reader.take(executable)?.to_vec();
        let (path, new_path) = (reader.take(path)?.to_vec(), reader.take(new_path)?.to_vec());
        reader.finish()?;
        Ok(Self { time, event, refused, inode, owner, by, path, new_path })
    }
}

const _: () = assert!(ProvenanceValue::FIXED_BYTES == 8 + 12 + 16 + WatchedProcess::SIZE);
/// A record is 4 KiB at most, as `docs/design/provenance.md` says.
const _: () = assert!(
    ProvenanceValue::FIXED_BYTES + WATCHED_INPUTS_MAX * 8 + WATCHED_INPUT_NAMES_MAX * 17 + 3 * WATCHED_TEXT_BYTES_MAX
        <= 4096
);
const _: () = assert!(AuditValue::FIXED_BYTES == ProvenanceValue::FIXED_BYTES);

fn put_lengths(out: &mut Vec<u8>, texts: [&Vec<u8>; 3]) {
    for text in texts {
        assert!(text.len() <= WATCHED_TEXT_BYTES_MAX, "longer texts are cut before they get here");
        out.put_u16(text.len() as u16);
    }
}

fn lengths(reader: &mut Reader<'_>) -> Result<[usize; 3], DecodeError> {
    let mut lengths = [0; 3];
    for length in &mut lengths {
        *length = usize::from(reader.u16()?);
        reader.check(*length <= WATCHED_TEXT_BYTES_MAX, "length of a text", *length as u64)?;
    }
    Ok(lengths)
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.put_u64(time.seconds as u64);
    out.put_u32(time.nanoseconds);
}

fn time(reader: &mut Reader<'_>) -> Result<Timestamp, DecodeError> {
    let (seconds, nanoseconds) = (reader.u64()? as i64, reader.u32()?);
    reader.check(nanoseconds < 1_000_000_000, "nanoseconds", u64::from(nanoseconds))?;
    Ok(Timestamp { seconds, nanoseconds })
}

#[cfg(test)]
mod tests;
