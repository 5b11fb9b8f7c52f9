//! One call of a file system, as profiles and traces see it.
//!
//! Invariants: kinds keep the numbers of `docs/format/io-trace.md`. Times are nanoseconds of any one clock; nothing here reads it.
//! Read next: `profile.rs`.

use stere_format::IoTraceRecord;

/// Kinds of calls. The numbers stand in traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CallKind {
    Read = 0,
    Write = 1,
    Open = 2,
    Create = 3,
    Lookup = 4,
    Getattr = 5,
    Setattr = 6,
    Readdir = 7,
    Rename = 8,
    Unlink = 9,
    Fsync = 10,
    Xattr = 11,
    Other = 12,
}

/// How many kinds there are.
pub const KINDS: usize = CallKind::ALL.len();

impl CallKind {
    pub const ALL: [CallKind; IoTraceRecord::KINDS as usize] = [
        CallKind::Read,
        CallKind::Write,
        CallKind::Open,
        CallKind::Create,
        CallKind::Lookup,
        CallKind::Getattr,
        CallKind::Setattr,
        CallKind::Readdir,
        CallKind::Rename,
        CallKind::Unlink,
        CallKind::Fsync,
        CallKind::Xattr,
        CallKind::Other,
    ];

    pub fn word(self) -> &'static str {
        match self {
            CallKind::Read => "read",
            CallKind::Write => "write",
            CallKind::Open => "open",
            CallKind::Create => "create",
            CallKind::Lookup => "lookup",
            CallKind::Getattr => "getattr",
            CallKind::Setattr => "setattr",
            CallKind::Readdir => "readdir",
            CallKind::Rename => "rename",
            CallKind::Unlink => "unlink",
            CallKind::Fsync => "fsync",
            CallKind::Xattr => "xattr",
            CallKind::Other => "other",
        }
    }

    pub fn from_word(word: &str) -> Option<CallKind> {
        CallKind::ALL.into_iter().find(|kind| kind.word() == word)
    }

    pub fn from_number(number: u8) -> Option<CallKind> {
        CallKind::ALL.get(usize::from(number)).copied()
    }

    /// Whether it moves contents; everything else is metadata.
    #[inline]
    pub fn is_data(self) -> bool {
        matches!(self, CallKind::Read | CallKind::Write)
    }
}

/// One call, noted when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it began.
    pub at_ns: u64,
    pub kind: CallKind,
    /// Hash of the open handle or the client.
    pub stream: u64,
    pub file: u64,
    pub offset: u64,
    /// Bytes moved; 0 for calls that move none.
    pub length: u64,
    pub latency_ns: u64,
    /// Calls under way when it began, itself among them; 0 where nobody counted.
    pub in_flight: u32,
    /// Age of the file, where the call removes its last name; else 0.
    pub age_ms: u64,
    /// 0, or the error number.
    pub result: u16,
}

impl Call {
    /// A call that succeeded; what is not given is 0.
    pub fn new(at_ns: u64, kind: CallKind, file: u64) -> Call {
        let (stream, offset, length, latency_ns) = (0, 0, 0, 0);
        Call { at_ns, kind, stream, file, offset, length, latency_ns, in_flight: 0, age_ms: 0, result: 0 }
    }

    /// A read or write of a range.
    pub fn of_data(at_ns: u64, kind: CallKind, file: u64, offset: u64, length: u64) -> Call {
        assert!(kind.is_data(), "{} moves no data", kind.word());
        Call { offset, length, ..Call::new(at_ns, kind, file) }
    }

    pub fn to_record(&self) -> IoTraceRecord {
        let Call { at_ns, kind, stream, file, offset, length, latency_ns, in_flight, age_ms, result } = *self;
        let (client, result, kind) = (stream, result.min(IoTraceRecord::RESULT_MAX), kind as u8);
        IoTraceRecord { at_ns, file, client, offset, length, latency_ns, age_ms, in_flight, result, kind }
    }

    /// None for a kind that this program does not know.
    pub fn from_record(record: &IoTraceRecord) -> Option<Call> {
        let IoTraceRecord { at_ns, file, client, offset, length, latency_ns, age_ms, in_flight, result, kind } =
            *record;
        let kind = CallKind::from_number(kind)?;
        Some(Call { at_ns, kind, stream: client, file, offset, length, latency_ns, in_flight, age_ms, result })
    }
}
