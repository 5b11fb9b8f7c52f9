//! Updates of users: held back while too much waits for a checkpoint, and given room where metadata must not grow.
//!
//! Read next: `access.rs`, `make_room.rs`.

use stere_log::Io;

use crate::engine::Engine;
use crate::error::Error;
use crate::read::NeededNodes;
use crate::transaction::Transaction;

impl Engine {
    /// Changes that take effect together or not at all; the closure may run several times.
    pub fn update<T, E: From<Error>>(
        &self,
        io: Io<'_>,
        closure: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.check_writable()?;
        self.throttle(io)?;
        self.update_making_room(io, false, closure)
    }

    /// An update that waits for no checkpoint. Where it is refused for lack of room, room is made, once.
    pub(crate) fn update_making_room<T, E: From<Error>>(
        &self,
        io: Io<'_>,
        folding: bool,
        mut closure: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut needed, mut has_made_room) = (NeededNodes::default(), false);
        loop {
            match self.try_update(io, true, folding, &mut needed, &mut closure)? {
                Some(value) => return Ok(value),
                None if has_made_room => return Err(Error::NoSpace.into()),
                None if !io.may_block() => return Err(Error::WouldBlock.into()),
                None => {
                    self.cleaning().make_room_for_metadata()?;
                    has_made_room = true;
                }
            }
        }
    }
}
