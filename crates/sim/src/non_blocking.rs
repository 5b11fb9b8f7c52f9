//! Reads as the thread that serves requests makes them (`stere_device::Io`): a non-blocking call leaves its reads, they are made, and the
//! call is repeated with what arrived. A call that still lacks something blocks.
//!
//! Simulated devices make such a read at once, with their faults; one that fails or is slow goes the way of reads that wait. Between the
//! two calls other work may come. Read next: the log's `non_blocking.rs`, the front end's `beside.rs`.

use stere_naming::{Caller, Error, FileSystem, Io};
use stere_store::Call;

/// Reads at `at`, with `between` done while the reads are under way.
pub(crate) fn read(
    files: &FileSystem,
    caller: &Caller<'_>,
    inode: u64,
    at: u64,
    buffer: &mut [u8],
    between: impl FnOnce(),
) -> Result<usize, Error> {
    let call = Call::collecting();
    let outcome = files.read(&Caller { io: Io::NON_BLOCKING.of(&call), ..*caller }, inode, at, buffer);
    if !matches!(outcome, Err(Error::WouldBlock)) {
        return outcome;
    }
    between();
    let reads = call.into_reads();
    if !reads.is_empty() {
        let call = Call::arrived(reads);
        let outcome = files.read(&Caller { io: Io::NON_BLOCKING.of(&call), ..*caller }, inode, at, buffer);
        if !matches!(outcome, Err(Error::WouldBlock)) {
            return outcome;
        }
    }
    files.read(caller, inode, at, buffer)
}
