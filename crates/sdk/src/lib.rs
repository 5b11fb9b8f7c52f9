//! For writing plugins of stere in Rust.
//!
//! A plugin is a module for `wasm32-unknown-unknown` that imports nothing. It implements [`Codec`], which turns records (pieces of a
//! file, at most 1 MiB) into what is stored of them and back, or [`Watcher`], which is asked before something is done to a file, or
//! both, or [`Follower`], which is told afterwards and may read the file, and says so with [`plugin!`]:
//!
//! ```
//! use stere_sdk::Codec;
//!
//! /// Turns every byte over.
//! struct Turn;
//!
//! impl Codec for Turn {
//!     fn encode(_parameters: &str, content: &[u8]) -> Result<Vec<u8>, String> {
//!         Ok(content.iter().map(|byte| !byte).collect())
//!     }
//!     fn decode(parameters: &str, stored: &[u8]) -> Result<Vec<u8>, String> {
//!         Turn::encode(parameters, stored)
//!     }
//! }
//!
//! # #[cfg(target_family = "wasm")]
//! stere_sdk::plugin!(codec: Turn);
//! # fn main() {}
//! ```
//!
//! Every call runs in a new instance with bounded memory and time, so nothing is remembered between calls, and nothing has to be
//! given back. What [`Codec::encode`] gives is decoded again before it is stored: a codec that loses data fails at the write. A
//! panic fails the call, for the file that it was for.
//! Read next: `glue.rs`, and `docs/design/plugins.md` in stere.

pub mod glue;

/// Something that is about to be done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
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
    const ALL: [EventKind; 7] = [
        EventKind::Create,
        EventKind::Open,
        EventKind::Read,
        EventKind::Write,
        EventKind::Close,
        EventKind::Rename,
        EventKind::Delete,
    ];
}

/// What is known of an event.
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

/// What is said of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// It must not be done, and why.
    Deny(String),
    /// It may be done, and this is noted with the file: at most 4096 bytes.
    Annotate(Vec<u8>),
}

/// Turns records into what is stored of them, and back.
pub trait Codec {
    /// What is to be stored. It may be longer by a sixteenth; an error fails the write.
    fn encode(parameters: &str, content: &[u8]) -> Result<Vec<u8>, String>;

    /// The record again. An error fails the read.
    fn decode(parameters: &str, stored: &[u8]) -> Result<Vec<u8>, String>;
}

/// Is asked before something is done to a file.
pub trait Watcher {
    /// What it wants to be asked about; it pays for nothing else.
    const EVENTS: &'static [EventKind];

    /// What it says.
    fn judge(parameters: &str, event: &Event<'_>) -> Verdict;
}

/// Is told afterwards what was done to a file, in the background, at least once for each last change; and reads its content from the
/// beginning to the end, if it wants to. One value is made for each event; it may remember what it needs until the end of the file.
pub trait Follower: Sized {
    /// What it wants to be told of: create, close (after its content changed), rename and delete.
    const EVENTS: &'static [EventKind];

    /// Something was done. None: the content is not needed and nothing is to be noted. An error: it is tried again later.
    fn begin(parameters: &str, event: &Event<'_>) -> Result<Option<Self>, String>;

    /// The next piece of the content.
    fn content(&mut self, bytes: &[u8]);

    /// There is no more. What is given is noted with the file: at most 4096 bytes, in the attribute `user.plugin.NAME`.
    fn end(self) -> Result<Option<Vec<u8>>, String>;
}

/// Makes a module out of a type: `plugin!(codec: T)`, `plugin!(watcher: T)`, `plugin!(codec: T, watcher: T)`, `plugin!(follower: T)`
/// or `plugin!(watcher: T, follower: T)`.
#[macro_export]
macro_rules! plugin {
    (codec: $codec:ty, watcher: $watcher:ty) => {
        $crate::plugin!(@base);
        $crate::plugin!(@codec $codec);
        $crate::plugin!(@watcher $watcher);
    };
    (codec: $codec:ty) => {
        $crate::plugin!(@base);
        $crate::plugin!(@codec $codec);
    };
    (watcher: $watcher:ty) => {
        $crate::plugin!(@base);
        $crate::plugin!(@watcher $watcher);
    };
    (follower: $follower:ty) => {
        $crate::plugin!(@base);
        $crate::plugin!(@follower $follower);
    };
    (watcher: $watcher:ty, follower: $follower:ty) => {
        $crate::plugin!(@base);
        $crate::plugin!(@watcher $watcher);
        $crate::plugin!(@follower $follower);
    };
    (@base) => {
        #[unsafe(no_mangle)]
        extern "C" fn stere_abi() -> u32 {
            $crate::glue::INTERFACE
        }
        #[unsafe(no_mangle)]
        extern "C" fn stere_allocate(bytes: u32) -> u32 {
            $crate::glue::allocate(bytes)
        }
    };
    (@codec $codec:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn stere_encode(parameters: u32, parameters_bytes: u32, input: u32, input_bytes: u32) -> u64 {
            // SAFETY: whoever calls has put both where `stere_allocate` said.
            let (parameters, input) = unsafe { $crate::glue::given(parameters, parameters_bytes, input, input_bytes) };
            $crate::glue::answer(<$codec as $crate::Codec>::encode(parameters, input))
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn stere_decode(parameters: u32, parameters_bytes: u32, input: u32, input_bytes: u32) -> u64 {
            // SAFETY: whoever calls has put both where `stere_allocate` said.
            let (parameters, input) = unsafe { $crate::glue::given(parameters, parameters_bytes, input, input_bytes) };
            $crate::glue::answer(<$codec as $crate::Codec>::decode(parameters, input))
        }
    };
    (@watcher $watcher:ty) => {
        #[unsafe(no_mangle)]
        extern "C" fn stere_events() -> u32 {
            $crate::glue::events(<$watcher as $crate::Watcher>::EVENTS)
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn stere_event(parameters: u32, parameters_bytes: u32, input: u32, input_bytes: u32) -> u64 {
            // SAFETY: whoever calls has put both where `stere_allocate` said.
            let (parameters, input) = unsafe { $crate::glue::given(parameters, parameters_bytes, input, input_bytes) };
            let verdict = $crate::glue::event(input).map(|event| <$watcher as $crate::Watcher>::judge(parameters, &event));
            $crate::glue::answer(verdict.map($crate::glue::verdict))
        }
    };
    (@follower $follower:ty) => {
        static STERE_FOLLOWING: ::std::sync::Mutex<Option<$crate::glue::Following<$follower>>> =
            ::std::sync::Mutex::new(None);
        #[unsafe(no_mangle)]
        extern "C" fn stere_after_events() -> u32 {
            $crate::glue::events(<$follower as $crate::Follower>::EVENTS)
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn stere_after(parameters: u32, parameters_bytes: u32, input: u32, input_bytes: u32) -> u64 {
            // SAFETY: whoever calls has put both where `stere_allocate` said.
            let (parameters, input) = unsafe { $crate::glue::given(parameters, parameters_bytes, input, input_bytes) };
            $crate::glue::answer($crate::glue::begin(&STERE_FOLLOWING, parameters, input))
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn stere_content(content: u32, content_bytes: u32) -> u64 {
            // SAFETY: whoever calls has put it where `stere_allocate` said.
            let (_, content) = unsafe { $crate::glue::given(0, 0, content, content_bytes) };
            $crate::glue::answer($crate::glue::go_on(&STERE_FOLLOWING, content))
        }
    };
}
