//! FITRIM, which fstrim(8) asks on any directory of the mount: free space is given back to what lies below the devices.

use fuse_wire::Ioctl;
use stere_naming::Caller;

use crate::answer::{Answer, Failure};
use crate::performer::{Outcome, Performer};

/// `_IOWR('X', 121, struct fstrim_range)` of linux/fs.h.
const FITRIM: u32 = 0xC018_5879;
/// `start`, `len` and `minlen`, each of 64 bits.
const RANGE_BYTES: usize = 24;

impl Performer {
    /// Only FITRIM is known. The pool has no addresses that a caller could know, so the range is all or nothing.
    ///
    /// FICLONE never gets here: the kernel's FUSE has no remap_file_range. copy_file_range(2) shares blocks.
    pub(super) fn ioctl(&self, ioctl: &Ioctl<'_>, caller: &Caller<'_>) -> Outcome {
        if ioctl.command != FITRIM {
            return Err(Failure::Errno(libc::ENOTTY));
        }
        if caller.uid != 0 {
            return Err(Failure::Errno(libc::EPERM));
        }
        let (Some(range), true) = (ioctl.input.get(..RANGE_BYTES), ioctl.output_size >= RANGE_BYTES) else {
            return Err(Failure::Errno(libc::EINVAL));
        };
        if range[..8] != [0; 8] {
            return Err(Failure::Errno(libc::EOPNOTSUPP));
        }
        if !caller.io.may_block() {
            return Err(Failure::WouldBlock);
        }
        let trimmed = self.filesystem.store().space().trim().map_err(stere_naming::Error::from)?;
        let mut answer = range.to_vec();
        answer[8..16].copy_from_slice(&trimmed.to_ne_bytes());
        Ok(Answer::Ioctl(answer))
    }
}
