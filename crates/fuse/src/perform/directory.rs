//! Listing directories.

use std::ops::ControlFlow;

use fuse_wire::{DirectoryEntry, DirectoryWriter, Entry, Request};
use stere_naming::Io;

use crate::answer::{Answer, entry};
use crate::performer::{Outcome, Performer};

/// Arguments of READDIR and READDIRPLUS.
pub(super) struct Listing {
    pub node: u64,
    pub handle: u64,
    pub offset: u64,
    pub size: usize,
}

impl Performer {
    /// Fills the request's buffer with names behind the cookie `offset`, with attributes if `plus`: those that were there when the
    /// directory was opened, or listed from its beginning. So a listing ends whatever is made and renamed meanwhile.
    pub(super) fn readdir(&self, request: &mut Request, io: Io<'_>, listing: Listing, plus: bool) -> Outcome {
        let Listing { node, handle, offset, size } = listing;
        let caller = self.caller(request, 0, io);
        let end = match offset {
            0 => {
                let end = self.filesystem.directory_end(io, node)?;
                self.listings.lock().entry(handle).and_modify(|known| *known = end);
                end
            }
            _ => self.listings.lock().get(&handle).copied().unwrap_or(u64::MAX),
        };
        let mut writer = request.directory(size);
        self.filesystem.readdir_before(&caller, node, offset..end, plus, &mut |found| {
            let shown = DirectoryEntry {
                inode: found.inode,
                next_offset: found.next_cookie,
                mode: found.kind.mode_bits(),
                name: found.name,
            };
            let added = if plus {
                // Node 0 gives the name alone: "." and "..", which the kernel has, and what was removed meanwhile.
                let known = found.attributes.map_or_else(Entry::default, |attributes| entry(&attributes, &self.belief));
                add_plus(&mut writer, &shown, &known)
            } else {
                writer.add(&shown)
            };
            if added { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(Answer::InPlace(writer.used_bytes()))
    }
}

fn add_plus(writer: &mut DirectoryWriter<'_>, shown: &DirectoryEntry<'_>, known: &Entry) -> bool {
    debug_assert!(!matches!(shown.name, b"." | b"..") || known.node == 0, "the kernel refuses a node for {shown:?}");
    writer.add_plus(shown, known)
}
