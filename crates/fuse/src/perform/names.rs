//! Operations on names: finding, making, removing, moving.

use fuse_wire::abi::fopen;
use fuse_wire::{Operation, Request};
use stere_naming::{Attributes, Error, Handle, Io, OpenFlags, move_name, remove_name};

use crate::answer::{Answer, entry};
use crate::changes::MADE;
use crate::performer::{Outcome, Performer, UNSUPPORTED};

impl Performer {
    pub(super) fn name_operation(&self, request: &Request, operation: &Operation<'_>, io: Io<'_>) -> Outcome {
        let filesystem = &self.filesystem;
        let caller = |umask| self.caller(request, umask, io);
        match *operation {
            Operation::Lookup { parent, name } => self.lookup(request, parent, name, io),
            Operation::Readlink { node } => Ok(Answer::Bytes(filesystem.readlink(&caller(0), node)?)),
            Operation::Symlink { parent, name, target } => {
                self.made(&filesystem.symlink(&caller(0), parent, name, target)?)
            }
            Operation::Mknod { parent, name, mode, umask, rdev } => {
                self.made(&filesystem.mknod(&caller(umask), parent, name, mode, rdev)?)
            }
            Operation::Mkdir { parent, name, mode, umask } => {
                self.made(&filesystem.mkdir(&caller(umask), parent, name, mode)?)
            }
            Operation::Unlink { parent, name } => {
                Ok(Answer::Moved([Some(remove_name(filesystem, &caller(0), (parent, name), false)?), None]))
            }
            Operation::Rmdir { parent, name } => {
                Ok(Answer::Moved([Some(remove_name(filesystem, &caller(0), (parent, name), true)?), None]))
            }
            Operation::Rename { parent, name, new_parent, new_name, flags } => {
                Ok(Answer::Moved(move_name(filesystem, &caller(0), (parent, name), (new_parent, new_name), flags)?))
            }
            Operation::Link { node, new_parent, new_name } => {
                self.made(&filesystem.link(&caller(0), node, new_parent, new_name)?)
            }
            Operation::Create { parent, name, mode, umask, flags, .. } => {
                let created = filesystem.create(&caller(umask), parent, name, mode, open_flags(flags))?;
                self.created(request, &created, flags)
            }
            Operation::Tmpfile { parent, mode, umask, flags } => {
                self.created(request, &filesystem.tmpfile(&caller(umask), parent, mode, open_flags(flags))?, flags)
            }
            _ => UNSUPPORTED,
        }
    }

    fn lookup(&self, request: &Request, parent: u64, name: &[u8], io: Io<'_>) -> Outcome {
        match self.filesystem.lookup(&self.caller(request, 0, io), parent, name) {
            Ok(attributes) => self.made(&attributes),
            // "." and ".." are asked for by number, of inodes that may be gone: nothing to remember.
            Err(Error::NotFound) if self.filesystem.versions().is_fleeting(parent, name) => Ok(Answer::NoEntryYet),
            Err(Error::NotFound) if !matches!(name, b"." | b"..") => Ok(Answer::NoEntry),
            Err(error) => Err(error.into()),
        }
    }

    fn made(&self, attributes: &Attributes) -> Outcome {
        Ok(Answer::Entry(entry(attributes, &self.belief)))
    }

    fn created(&self, request: &Request, (attributes, handle): &(Attributes, Handle), flags: u32) -> Outcome {
        let entry = entry(attributes, &self.belief);
        let is_asked_empty = flags.cast_signed() & libc::O_TRUNC != 0;
        let flags = match &self.opened {
            Some(opened) if self.appends(flags) => {
                opened.appends(request.remote_tag(), attributes.inode, *handle);
                fopen::DIRECT_IO
            }
            // Others change names, too: it may be a file that the kernel has older pages of.
            Some(_) => self.open_flags & !fopen::KEEP_CACHE,
            None if self.gathers_writes && self.filesystem.durability.may_be_always([attributes.inode]) => {
                fopen::DIRECT_IO
            }
            None => self.open_flags,
        };
        // A file that was made just now was born when it was changed.
        let is_made = attributes.btime == attributes.ctime;
        let is_emptied = is_asked_empty && !is_made;
        request.note_place(if is_made { MADE } else { 0 });
        Ok(Answer::Created { entry, handle: handle.0, flags, is_emptied })
    }
}

/// The flags of open(2) as naming has them.
pub(super) fn open_flags(flags: u32) -> OpenFlags {
    OpenFlags::from_linux(flags.cast_signed())
}
