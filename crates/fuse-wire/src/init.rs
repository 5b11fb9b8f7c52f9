//! INIT: what is asked of the kernel and what it grants.
//!
//! Pure: bytes in, bytes out, so that it can be tested without a kernel. Read next: `session.rs`.

use zerocopy::IntoBytes;

use crate::abi::structs::{InHeader, InitIn, InitInCompat, InitOut, split};
use crate::abi::{KERNEL_MINOR_VERSION, KERNEL_MINOR_VERSION_MIN, KERNEL_VERSION, init, opcode};
use crate::buffer::PAGE_BYTES;
use crate::error::Error;

#[cfg(test)]
mod tests;

/// What most file systems want: everything that is faster or closer to POSIX, no remote locks, no writeback
/// cache, no extension that needs a decision. Not `ATOMIC_O_TRUNC` either, which saves a request for each open that
/// truncates: with it the kernel empties a running program before it says ETXTBSY.
///
/// With `ASYNC_DIO` direct reads and writes of one call are under way at once. Then the kernel leaves pages that were read
/// during an asynchronous direct write in its cache when that ends, so a direct write of a file that has pages there
/// has to be followed by a notification; and it makes EIO of a direct write that is answered with fewer bytes than were asked for.
pub const RECOMMENDED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::HAS_IOCTL_DIR
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// What to ask for.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Flags of `abi::init` to accept where the kernel offers them. `OVER_IO_URING`, `INIT_EXT`
    /// and `ABORT_ERROR` are added by the session itself.
    ///
    /// With `DONT_MASK` the file system applies the umask; with `POSIX_ACL` it stores ACLs and applies default
    /// ones; with `HANDLE_KILLPRIV_V2` it clears suid and sgid bits where an operation says so; with
    /// `EXPORT_SUPPORT` it looks up `.` and `..`.
    pub flags: u64,
    /// The longest WRITE, and the room for every answer. A multiple of 4 KiB, 4 KiB to 1 MiB (more only where
    /// sysctl fs.fuse.max_pages_limit allows it).
    pub max_write_bytes: u32,
    pub max_readahead_bytes: u32,
    /// Asynchronous requests (read-ahead, writeback, releases) under way at once.
    pub max_background: u16,
    pub congestion_threshold: u16,
    /// Granularity of times.
    pub time_granularity_ns: u32,
    /// Answer FLUSH with ENOSYS: the kernel stops sending it, and close(2) needs no round trip.
    pub flush_unsupported: bool,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            flags: RECOMMENDED,
            max_write_bytes: 1 << 20,
            max_readahead_bytes: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            time_granularity_ns: 1,
            flush_unsupported: false,
        }
    }
}

impl InitOptions {
    /// # Errors
    /// [`Error::Option`] for what the kernel would misread.
    pub fn validate(&self) -> Result<(), Error> {
        let page = u32::try_from(PAGE_BYTES).unwrap_or(u32::MAX);
        let bytes = self.max_write_bytes;
        if bytes < page || !bytes.is_multiple_of(page) || bytes / page > u32::from(u16::MAX) {
            let why = "it must be a multiple of 4 KiB, from 4 KiB to 255 MiB";
            return Err(Error::Option { option: "max_write_bytes", value: bytes.to_string(), why });
        }
        let granularity = self.time_granularity_ns;
        if !(1..=1_000_000_000).contains(&granularity) {
            let (option, why) = ("time_granularity_ns", "it must be 1 to 1 000 000 000");
            return Err(Error::Option { option, value: granularity.to_string(), why });
        }
        Ok(())
    }
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    IoUring,
    Device,
}

/// What was agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    pub kernel_minor: u32,
    /// All the kernel can do.
    pub offered: u64,
    /// What is switched on.
    pub flags: u64,
    pub max_write_bytes: u32,
    pub max_readahead_bytes: u32,
    pub transport: Transport,
    /// The mount is `fuseblk`: SYNCFS and a synchronous DESTROY arrive.
    pub syncfs: bool,
}

/// What to do with an INIT message.
#[derive(Debug)]
pub(crate) enum Reaction {
    /// Send this and wait for the next INIT: the kernel is newer than version 7.
    AskAgain {
        unique: u64,
        answer: InitOut,
    },
    Agreed {
        unique: u64,
        answer: InitOut,
        negotiated: Negotiated,
    },
}

/// Reads an INIT request and makes the answer.
pub(crate) fn negotiate(message: &[u8], options: &InitOptions, io_uring: bool) -> Result<Reaction, Error> {
    let broken = |what: &str| Error::Handshake(format!("{what} in a message of {} bytes", message.len()));
    let (header, body) = split::<InHeader>(message).ok_or_else(|| broken("no header"))?;
    if header.opcode != opcode::INIT {
        return Err(broken("the first request is not INIT"));
    }
    let (input, _) = split::<InitInCompat>(body).ok_or_else(|| broken("no INIT structure"))?;
    if input.major > KERNEL_VERSION {
        let answer = InitOut { major: KERNEL_VERSION, minor: KERNEL_MINOR_VERSION, ..InitOut::default() };
        return Ok(Reaction::AskAgain { unique: header.unique, answer });
    }
    if input.major < KERNEL_VERSION || input.minor < KERNEL_MINOR_VERSION_MIN {
        return Err(Error::ProtocolVersion { major: input.major, minor: input.minor });
    }
    let mut offered = u64::from(input.flags);
    if offered & init::INIT_EXT != 0 {
        let (extended, _) = split::<InitIn>(body).ok_or_else(|| broken("no flags2"))?;
        offered |= u64::from(extended.flags2) << 32;
    }
    // ABORT_ERROR tells an abort by the administrator from an unmount.
    let extras = init::INIT_EXT | init::ABORT_ERROR | if io_uring { init::OVER_IO_URING } else { 0 };
    let wanted = options.flags & !init::OVER_IO_URING | extras;
    let flags = wanted & offered;
    let negotiated = Negotiated {
        kernel_minor: input.minor,
        offered,
        flags,
        max_write_bytes: options.max_write_bytes,
        max_readahead_bytes: options.max_readahead_bytes.min(input.max_readahead),
        transport: if flags & init::OVER_IO_URING != 0 { Transport::IoUring } else { Transport::Device },
        syncfs: false,
    };
    let answer = answer(options, &negotiated);
    Ok(Reaction::Agreed { unique: header.unique, answer, negotiated })
}

fn answer(options: &InitOptions, negotiated: &Negotiated) -> InitOut {
    let low = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
    let pages = negotiated.max_write_bytes as usize / PAGE_BYTES;
    assert_eq!(pages * PAGE_BYTES, negotiated.max_write_bytes as usize, "options were validated");
    assert!((1..=usize::from(u16::MAX)).contains(&pages), "options were validated: {pages} pages");
    InitOut {
        major: KERNEL_VERSION,
        minor: KERNEL_MINOR_VERSION,
        max_readahead: negotiated.max_readahead_bytes,
        flags: low(negotiated.flags),
        max_background: options.max_background,
        congestion_threshold: options.congestion_threshold,
        max_write: negotiated.max_write_bytes,
        time_gran: options.time_granularity_ns,
        max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
        flags2: low(negotiated.flags >> 32),
        ..InitOut::default()
    }
}

/// The whole answer message, header left out.
pub(crate) fn answer_bytes(answer: &InitOut) -> &[u8] {
    answer.as_bytes()
}
