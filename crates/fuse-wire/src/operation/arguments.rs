//! A request's bytes in the two parts both transports agree on, and its extensions.
//!
//! Over /dev/fuse a message is one run of bytes; over io_uring the fixed structure of the operation comes apart
//! from the names and data. The length of the fixed structure, told by the operation, makes one of the other.

use crate::abi::structs::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, EnterWriteIn, ExtHeader, FallocateIn, FlushIn,
    ForgetIn, FsyncIn, GetattrIn, GetxattrIn, InHeader, InterruptIn, IoctlIn, LinkIn, LkIn, LseekIn, MkdirIn, MknodIn,
    NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn, Rename2In, RenameIn, SetattrIn, SetxattrIn, SetxattrInCompat,
    StatxIn, SuppGroups, SyncfsIn, WriteIn, split,
};
use crate::abi::{extension, opcode};

/// A request's bytes behind its header, in the two parts both transports agree on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    /// At least the operation's fixed structure; over io_uring there may be stale bytes behind it.
    pub fixed: &'a [u8],
    /// Names and data, without extensions.
    pub variable: &'a [u8],
    /// Extensions, `total_extlen` long.
    pub extensions: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// Of a message that is one run of bytes, header first.
    pub fn of_message(message: &'a [u8], header: &InHeader, context: &DecodeContext) -> Self {
        let body = message.get(size_of::<InHeader>()..).unwrap_or_default();
        let extension_bytes = usize::from(header.total_extlen) * 8;
        let (body, extensions) = body.split_at(body.len().saturating_sub(extension_bytes));
        let fixed = fixed_bytes(header.opcode, context).min(body.len());
        let (fixed, variable) = body.split_at(fixed);
        Self { fixed, variable, extensions }
    }
}

/// What decoding has to know of the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeContext {
    pub setxattr_extended: bool,
    /// The longest answer there is room for.
    pub payload_bytes_max: usize,
}

/// How many bytes of fixed structure an operation has in front of its names and data.
pub(crate) fn fixed_bytes(operation: u32, context: &DecodeContext) -> usize {
    match operation {
        opcode::FORGET => size_of::<ForgetIn>(),
        opcode::BATCH_FORGET => size_of::<BatchForgetIn>(),
        opcode::GETATTR => size_of::<GetattrIn>(),
        opcode::SETATTR => size_of::<SetattrIn>(),
        opcode::MKNOD => size_of::<MknodIn>(),
        opcode::MKDIR => size_of::<MkdirIn>(),
        opcode::RENAME => size_of::<RenameIn>(),
        opcode::RENAME2 => size_of::<Rename2In>(),
        opcode::LINK => size_of::<LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<OpenIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<CreateIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<ReadIn>(),
        opcode::WRITE | opcode::OFFER_WRITE => size_of::<WriteIn>(),
        opcode::ENTER_WRITE => size_of::<EnterWriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<ReleaseIn>(),
        opcode::FLUSH => size_of::<FlushIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<FsyncIn>(),
        opcode::SETXATTR if context.setxattr_extended => size_of::<SetxattrIn>(),
        opcode::SETXATTR => size_of::<SetxattrInCompat>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<GetxattrIn>(),
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => size_of::<LkIn>(),
        opcode::ACCESS => size_of::<AccessIn>(),
        opcode::INTERRUPT => size_of::<InterruptIn>(),
        opcode::BMAP => size_of::<BmapIn>(),
        opcode::IOCTL => size_of::<IoctlIn>(),
        opcode::POLL => size_of::<PollIn>(),
        opcode::NOTIFY_REPLY => size_of::<NotifyRetrieveIn>(),
        opcode::FALLOCATE => size_of::<FallocateIn>(),
        opcode::LSEEK => size_of::<LseekIn>(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => size_of::<CopyFileRangeIn>(),
        opcode::SYNCFS => size_of::<SyncfsIn>(),
        opcode::STATX => size_of::<StatxIn>(),
        _ => 0,
    }
}

/// The ids of the request's supplementary group extension, where the kernel sent one.
pub(crate) fn supplementary_groups(extensions: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let mut rest = find_extension(extensions, extension::GROUPS)
        .and_then(|body| {
            let (head, groups) = split::<SuppGroups>(body)?;
            groups.get(..(head.nr_groups as usize).checked_mul(size_of::<u32>())?)
        })
        .unwrap_or_default();
    std::iter::from_fn(move || {
        let (group, after) = split::<u32>(rest)?;
        rest = after;
        Some(group)
    })
}

fn find_extension(mut extensions: &[u8], kind: u32) -> Option<&[u8]> {
    loop {
        let (head, _) = split::<ExtHeader>(extensions)?;
        let size = head.size as usize;
        if size < size_of::<ExtHeader>() || size > extensions.len() {
            return None;
        }
        if head.kind == kind {
            return extensions.get(size_of::<ExtHeader>()..size);
        }
        extensions = &extensions[size..];
    }
}
