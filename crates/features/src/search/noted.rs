//! Names of files from where they note that these are, for a search that goes through inodes in order.
//!
//! Files are often made one after the other in one directory, so their names lie beside each other too: where that shows, names are read
//! ahead. Invariant: a name that was read is that of the inode that its entry names; how old it is, a batch says.

use std::ops::ControlFlow;

use stere_format::dirent::DirentView;
use stere_format::{InodeValue, Key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::names::damaged;

use crate::search::Searches;

/// Names read ahead.
const AHEAD: usize = 128;
/// A name so little behind the last one shows that names are asked for in order.
const NEAR: u64 = 64;

/// Names that were read ahead.
#[derive(Default)]
pub struct Noted {
    directory: u64,
    /// Sequence, inode and name, by sequence.
    names: Vec<(u64, u64, Vec<u8>)>,
    last: u64,
}

impl Noted {
    /// Forgets what was read: a name must not be much older than the inode that it goes with.
    pub fn forget_names(&mut self) {
        self.names.clear();
    }

    /// The name of a file with one name; none where it notes nothing that is so.
    pub fn name(
        &mut self,
        search: &Searches,
        caller: &Caller<'_>,
        inode: u64,
        value: &InodeValue,
    ) -> Result<Option<Vec<u8>>, Error> {
        let (directory, sequence) = (value.parent, u64::from(value.rdev));
        let is_near = directory == self.directory && sequence > self.last && sequence - self.last <= NEAR;
        if directory != self.directory {
            self.names.clear();
        }
        (self.directory, self.last) = (directory, sequence);
        let known = |names: &[(u64, u64, Vec<u8>)]| {
            let at = names.binary_search_by_key(&sequence, |(at, _, _)| *at).ok()?;
            Some(&names[at]).filter(|(_, of, _)| *of == inode).map(|(_, _, name)| name.clone())
        };
        if let Some(name) = known(&self.names) {
            return Ok(Some(name));
        }
        self.names = read(search, caller, directory, sequence, if is_near { AHEAD } else { 1 })?;
        Ok(known(&self.names))
    }
}

/// Some names of a directory from this sequence on.
fn read(
    search: &Searches,
    caller: &Caller<'_>,
    directory: u64,
    from: u64,
    limit: usize,
) -> Result<Vec<(u64, u64, Vec<u8>)>, Error> {
    search.core.store.view(caller.io, |view| {
        let (mut names, mut failure) = (Vec::new(), None);
        let end = if limit == 1 { from + 1 } else { u64::MAX };
        view.scan(Key::dirent(directory, from), Key::dirent(directory, end), |key, bytes| {
            match DirentView::decode(bytes) {
                Ok(entry) => {
                    let (name, _) = search.core.names.shown(directory, key.position, &entry);
                    names.push((key.position, entry.inode, name.into_owned()));
                }
                Err(error) => failure = Some(damaged(directory, &error)),
            }
            if names.len() == limit || failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        assert!(names.windows(2).all(|pair| pair[0].0 < pair[1].0), "names are found by their sequence");
        failure.map_or(Ok(names), Err)
    })
}
