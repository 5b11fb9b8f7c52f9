//! All that a file device asks of the kernel: open, lock, size, alignment of direct I/O, transfers, discard.

use super::{Access, FileOptions, Kind};
use crate::Piece;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, StatxFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, IoSlice, Result, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// How bytes must lie to be transferred without a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    pub is_direct: bool,
    /// Of offsets and lengths.
    pub offset_alignment: u32,
    /// Of memory.
    pub memory_alignment: u32,
}

impl Transfer {
    pub(super) const BUFFERED: Transfer = Transfer { is_direct: false, offset_alignment: 1, memory_alignment: 1 };

    pub(super) fn write_block_bytes(&self) -> u32 {
        self.offset_alignment.max(512)
    }
}

/// `None` for what cannot be a device.
pub(super) fn kind_of(path: &Path) -> Result<Option<Kind>> {
    let file_type = std::fs::metadata(path)?.file_type();
    Ok(if file_type.is_file() {
        Some(Kind::Regular)
    } else if file_type.is_block_device() {
        Some(Kind::Block)
    } else {
        None
    })
}

/// Creates the file with its full size and makes its name durable.
pub(super) fn create_sparse(path: &Path, size_bytes: u64) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let outcome = file.set_len(size_bytes).and_then(|()| file.sync_all());
    if let Err(error) = outcome {
        // The file is ours and useless; the first error is the one to tell.
        drop(std::fs::remove_file(path));
        return Err(error);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Opens, with O_DIRECT if it is wanted and allowed; says which.
pub(super) fn open(path: &Path, kind: Kind, options: &FileOptions) -> Result<(File, bool)> {
    let is_writer = options.access == Access::ReadWrite;
    // O_EXCL without O_CREAT claims a block device against mounts and other claimants.
    let exclusive = if kind == Kind::Block && is_writer { libc::O_EXCL } else { 0 };
    let open_with =
        |flags: i32| OpenOptions::new().read(true).write(is_writer).custom_flags(exclusive | flags).open(path);
    if options.direct {
        match open_with(libc::O_DIRECT) {
            Ok(file) => return Ok((file, true)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((open_with(0)?, false))
}

/// False if somebody else holds the lock. It goes with the file, so a killed process leaves none behind.
pub(super) fn lock(file: &File, access: Access) -> Result<bool> {
    let operation = match access {
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
    };
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Works for regular files and block devices alike.
pub(super) fn size_of(mut file: &File) -> Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// Asks the kernel for the alignments of direct I/O; older kernels do not tell, so assume what suits every disk.
pub(super) fn direct_transfer(file: &File) -> Result<Transfer> {
    const CAREFUL: Transfer = Transfer { is_direct: true, offset_alignment: 4096, memory_alignment: 4096 };
    let Ok(facts) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return Ok(CAREFUL);
    };
    let told = facts.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let (offset_alignment, memory_alignment) = (facts.stx_dio_offset_align, facts.stx_dio_mem_align);
    let is_usable = |alignment: u32| alignment.is_power_of_two() && alignment <= 4096;
    if !told || !is_usable(offset_alignment) || !is_usable(memory_alignment) {
        return Ok(CAREFUL);
    }
    Ok(Transfer { is_direct: true, offset_alignment: offset_alignment.max(512), memory_alignment })
}

pub(super) fn read_all(file: &File, offset: u64, buffer: &mut [u8]) -> Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Linux takes 1024 vectors a call.
const VECTORS_MAX: usize = 1024;

/// Writes the pieces one after the other from `offset` on, as few calls as the kernel lets it.
pub(super) fn write_all(file: &File, offset: u64, pieces: &[Piece]) -> Result<()> {
    if let [only] = pieces {
        return file.write_all_at(only.bytes(), offset);
    }
    let mut at = offset;
    for group in pieces.chunks(VECTORS_MAX) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|piece| IoSlice::new(piece.bytes())).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match rustix::io::pwritev(file, left, at) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// False if this device or file system cannot discard.
pub(super) fn discard(file: &File, kind: Kind, offset: u64, length: u64) -> Result<bool> {
    let outcome = match kind {
        Kind::Regular => {
            rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)
        }
        Kind::Block => discard_blocks(file, offset, length),
    };
    match outcome {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => Ok(false),
        Err(error) => Err(Error::from(error)),
    }
}

fn discard_blocks(file: &File, offset: u64, length: u64) -> rustix::io::Result<()> {
    const BLKDISCARD: rustix::ioctl::Opcode = 0x1277;
    // SAFETY: BLKDISCARD reads two u64 (start, length) through its pointer, which is what `Setter` passes.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, length])) }
}
