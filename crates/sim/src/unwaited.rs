//! Reads as the thread that serves requests makes them (`stere_device::pending`): the call may not wait and leaves its reads, they are
//! made beside it, and the call is repeated with what arrived; who does not get what it needs waits after all.
//!
//! Simulated devices make such a read at once, with their faults; one that fails or is slow goes the way of reads that wait. Between the
//! two calls other work may come. Read next: the log's `unwaited.rs`, the front end's `beside.rs`.

use stere_naming::{Caller, Error, FileSystem, Wait};
use stere_store::pending;

/// Reads at `at`, with `between` done while the reads are under way.
pub(crate) fn read(
    files: &FileSystem,
    caller: &Caller<'_>,
    inode: u64,
    at: u64,
    buffer: &mut [u8],
    between: impl FnOnce(),
) -> Result<usize, Error> {
    let impatient = Caller { wait: Wait::Never, ..*caller };
    let (outcome, reads) = pending::collect(|| files.read(&impatient, inode, at, buffer));
    if !matches!(outcome, Err(Error::WouldBlock)) {
        return outcome;
    }
    between();
    if !reads.is_empty() {
        let outcome = pending::with(reads, || files.read(&impatient, inode, at, buffer));
        if !matches!(outcome, Err(Error::WouldBlock)) {
            return outcome;
        }
    }
    files.read(caller, inode, at, buffer)
}
