//! What a user's plugin is, for those who run it and for those who use it: hooks for records, for events, and for what happened.
//!
//! One of the traits at the edge of the world: how a plugin is run is not known here (the crate sandbox does it), so whoever
//! needs no plugins needs no machine for them either. Every call is told everything that it may know: parameters and bytes. Of
//! equal calls the answers are equal.
//! Read next: `stack.rs`, `docs/design/plugins.md`.

use std::fmt;
use std::sync::Arc;

/// Makes plugins out of modules.
pub trait Loader: Send + Sync + fmt::Debug {
    /// The plugin that a module is, if it is one.
    fn load(&self, module: &[u8]) -> Result<Arc<dyn UserPlugin>, PluginFailure>;
}

/// A plugin that was loaded.
pub trait UserPlugin: Send + Sync + fmt::Debug {
    /// Whether it has hooks for records.
    fn is_codec(&self) -> bool;

    /// The events that it wants to hear of.
    fn events(&self) -> Events;

    /// What is to be stored in place of a record; at most so many bytes.
    fn encode(&self, parameters: &str, content: &[u8], bytes_max: usize) -> Result<Vec<u8>, PluginFailure>;

    /// The record again; at most so many bytes.
    fn decode(&self, parameters: &str, stored: &[u8], bytes_max: usize) -> Result<Vec<u8>, PluginFailure>;

    /// What it says of something that is about to be done to a file.
    fn judge(&self, parameters: &str, event: &Event<'_>) -> Result<Verdict, PluginFailure>;

    /// The events that it wants to be told of afterwards.
    fn follows(&self) -> Events {
        Events::NONE
    }

    /// What it does about something that was done to a file, whose content it may read meanwhile; at most so many bytes in all.
    fn follow(&self, _parameters: &str, event: &Event<'_>, _read: &mut Reading<'_>) -> Result<Verdict, PluginFailure> {
        Err(PluginFailure::Nonsense(format!("it was told of '{}' and did not ask for that", event.kind.word())))
    }
}

/// Gives content of a file from an offset on; fewer bytes than there is room for only at its end. The error says why it cannot be read.
pub type Reading<'a> = dyn FnMut(u64, &mut [u8]) -> Result<usize, String> + 'a;

/// Something that is about to be done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Create = 0,
    Open = 1,
    Read = 2,
    Write = 3,
    Close = 4,
    Rename = 5,
    Delete = 6,
}

impl EventKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [EventKind; 7] = [
        EventKind::Create,
        EventKind::Open,
        EventKind::Read,
        EventKind::Write,
        EventKind::Close,
        EventKind::Rename,
        EventKind::Delete,
    ];

    /// Its word, for people.
    pub fn word(self) -> &'static str {
        match self {
            EventKind::Create => "create",
            EventKind::Open => "open",
            EventKind::Read => "read",
            EventKind::Write => "write",
            EventKind::Close => "close",
            EventKind::Rename => "rename",
            EventKind::Delete => "delete",
        }
    }
}

/// A set of events: bit n is the event of number n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(pub u32);

impl Events {
    /// None.
    pub const NONE: Events = Events(0);
    const KNOWN: u32 = (1 << EventKind::ALL.len()) - 1;

    /// Whether it is one of them.
    pub fn has(self, kind: EventKind) -> bool {
        self.0 & 1 << kind as u32 != 0
    }

    /// Whether all of them are known here.
    pub fn is_known(self) -> bool {
        self.0 & !Events::KNOWN == 0
    }

    /// Those that somebody can be told of afterwards.
    pub const FOLLOWED: Events = Events(
        1 << EventKind::Create as u32
            | 1 << EventKind::Close as u32
            | 1 << EventKind::Rename as u32
            | 1 << EventKind::Delete as u32,
    );

    /// Whether all of these are among them.
    pub fn is_within(self, others: Events) -> bool {
        self.0 & !others.0 == 0
    }

    /// Both.
    pub fn and(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }
}

/// What a plugin is told of something that is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    pub kind: EventKind,
    /// Who does it.
    pub user: u32,
    pub group: u32,
    /// Of reads and writes: where.
    pub offset: u64,
    /// Of reads and writes: how much.
    pub length: u64,
    /// Bytes that the file has.
    pub size: u64,
    /// The file's name, without its directory; empty where none is known.
    pub name: &'a [u8],
    /// Of renames: the name that it gets.
    pub new_name: &'a [u8],
}

impl Event<'_> {
    /// Bytes in front of the names.
    pub const FIXED_BYTES: usize = 48;

    /// As plugins get it: numbers are little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Event::FIXED_BYTES + self.name.len() + self.new_name.len());
        let lengths = [self.name.len() as u32, self.new_name.len() as u32];
        for word in [self.kind as u32, self.user, self.group, lengths[0], lengths[1], 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for number in [self.offset, self.length, self.size] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(out.len(), Event::FIXED_BYTES, "the names begin where plugins look for them");
        out.extend_from_slice(self.name);
        out.extend_from_slice(self.new_name);
        out
    }
}

/// What a plugin says of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// It must not be done, and why.
    Deny(String),
    /// It may be done, and this is noted with the file.
    Annotate(Vec<u8>),
}

impl Verdict {
    /// Bytes that a note can have.
    pub const NOTE_BYTES_MAX: usize = 4096;
    const DENY: u8 = 1;
    const ANNOTATE: u8 = 2;

    /// What a plugin's answer means: nothing, or a byte that says what, and then the reason or the note.
    pub fn decode(answer: &[u8]) -> Result<Verdict, PluginFailure> {
        match answer.split_first() {
            None => Ok(Verdict::Allow),
            Some((&Verdict::DENY, why)) => Ok(Verdict::Deny(String::from_utf8_lossy(why).into_owned())),
            Some((&Verdict::ANNOTATE, note)) if note.len() <= Verdict::NOTE_BYTES_MAX => {
                Ok(Verdict::Annotate(note.to_vec()))
            }
            Some((code, rest)) => {
                Err(PluginFailure::Nonsense(format!("a verdict of code {code} and {} bytes", rest.len())))
            }
        }
    }
}

/// What went wrong in a plugin. Messages go on behind the plugin's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginFailure {
    /// The module is none that could be run here.
    #[error("cannot be loaded: {0}")]
    Unloadable(String),
    /// It did something that it cannot do.
    #[error("failed with a trap ({0})")]
    Trapped(String),
    /// It did not come to an end.
    #[error("did not come to an end within {fuel} steps")]
    TooLong {
        /// What it was given.
        fuel: u64,
    },
    /// Its answer means nothing.
    #[error("gave an answer that means nothing: {0}")]
    Nonsense(String),
    /// It says that it cannot do this.
    #[error("refused: {0}")]
    Refused(String),
    /// Content that it asked for cannot be read.
    #[error("could not be given the file's content: {0}")]
    Unreadable(String),
    /// What it encoded does not decode to what it was.
    #[error("loses data: what it encodes it does not decode to what it was ({0})")]
    LosesData(String),
}
