//! Access to keys: views and updates, run again with the nodes and the offloaded keys that they missed.
//!
//! Invariants: no lock is held while a device is waited for; a closure may run several times, and takes effect once. Updates
//! here make no room: `update.rs` does. Read next: `view.rs`, `transaction.rs`, `read.rs`, `reload.rs`.

use std::ops::ControlFlow;

use stere_format::{Key, key};
use stere_log::Io;

use crate::Inner;
use crate::engine::Engine;
use crate::error::Error;
use crate::read::NeededNodes;
use crate::transaction::{self, Settler, Transaction};
use crate::view::{Offloaded, View};

impl Inner {
    /// A fold that one of these changes would reach into.
    #[inline]
    pub(crate) fn fold_of_changes(&self, transaction: &Transaction<'_>) -> Option<u64> {
        if self.folds.is_empty() {
            return None;
        }
        transaction.written(key::tree::NAMES).find_map(|key| self.folds.at(key))
    }
}

impl Engine {
    /// From now on every transaction is shown to `settler` last.
    pub fn set_settler(&self, settler: Settler) {
        self.inner.write().settler = Some(settler);
    }

    /// A consistent view for reading; the closure may run several times.
    pub fn view<T, E: From<Error>>(&self, io: Io<'_>, closure: impl Fn(&View<'_>) -> Result<T, E>) -> Result<T, E> {
        self.view_as(io, Offloaded::of(io), closure)
    }

    /// The same of the tree alone: what was put away is not there.
    pub fn view_through<T, E: From<Error>>(
        &self,
        io: Io<'_>,
        closure: impl Fn(&View<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.view_as(io, Offloaded::Through, closure)
    }

    fn view_as<T, E: From<Error>>(
        &self,
        io: Io<'_>,
        offloaded: Offloaded,
        closure: impl Fn(&View<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut needed = NeededNodes::default();
        loop {
            let missed;
            {
                let inner = self.inner.read();
                let view = View::new(&inner, needed.cache(&self.cache), &self.log.segments, offloaded);
                let result = closure(&view);
                match view.take_missed() {
                    None => return result,
                    Some(reference) => missed = self.pin(&reference),
                }
            }
            self.fetch_missed(io, missed, &mut needed)?;
        }
    }

    /// One try of an update: none if it must be refused for lack of room. One that is `folding` puts keys away or brings them back,
    /// and changes nothing that anybody can tell.
    pub(crate) fn try_update<T, E: From<Error>>(
        &self,
        io: Io<'_>,
        refusable: bool,
        folding: bool,
        needed: &mut NeededNodes,
        closure: &mut impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let offloaded = if folding { Offloaded::Through } else { Offloaded::of(io) };
        loop {
            let missed;
            {
                let mut inner = self.inner.write();
                let next_inode = inner.next_inode;
                let view = View::new(&inner, needed.cache(&self.cache), &self.log.segments, offloaded);
                let mut transaction = Transaction::new(view, next_inode);
                let result = closure(&mut transaction).and_then(|value| match &inner.settler {
                    Some(settle) if !folding => settle(&mut transaction).map(|()| value).map_err(E::from),
                    _ => Ok(value),
                });
                let into = if folding { None } else { inner.fold_of_changes(&transaction) };
                into.into_iter().for_each(|number| drop(transaction.view.miss_fold(number)));
                let is_done = result.is_ok() && transaction.view.missed.get().is_none();
                let refused =
                    if is_done && refusable { self.space().is_refused(&inner, &transaction) } else { Ok(false) };
                match transaction.view.take_missed() {
                    None if !refused? => {
                        let value = result?;
                        transaction.assert_invariants();
                        let Transaction {
                            writes,
                            usage,
                            next_inode,
                            on_effect,
                            leaves_shared,
                            newly_shared,
                            is_move,
                            ..
                        } = transaction;
                        self.space.note_left(leaves_shared);
                        if !is_move {
                            let deleted = writes.values().filter(|value| value.is_none()).count();
                            self.space.note_died(&usage, deleted);
                        }
                        apply(self, &mut inner, writes, usage, next_inode);
                        newly_shared.into_iter().for_each(|segment| segment.note_shared(inner.change));
                        on_effect.into_iter().for_each(|work| work());
                        return Ok(Some(value));
                    }
                    None => missed = None,
                    Some(reference) => missed = Some(self.pin(&reference)),
                }
            }
            match missed {
                Some(missed) => self.fetch_missed(io, missed, needed)?,
                None => return Ok(None),
            }
        }
    }

    /// An update that waits for no checkpoint and is not refused for lack of room.
    pub(crate) fn update_unrefused<T, E: From<Error>>(
        &self,
        io: Io<'_>,
        folding: bool,
        mut closure: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let done = self.try_update(io, false, folding, &mut NeededNodes::default(), &mut closure)?;
        Ok(done.expect("what is not refusable is not refused"))
    }

    /// Calls `visit` for all keys of a range that are in the tree, in bounded views.
    pub fn for_each_resident_key(&self, from: Key, to: Key, mut visit: impl FnMut(&Key, &[u8])) -> Result<(), Error> {
        let mut from = from;
        loop {
            let batch = self.view_through(Io::BLOCKING, |view| {
                let mut batch: Vec<(Key, Vec<u8>)> = Vec::with_capacity(1024);
                view.scan(from, to, |key, value| {
                    batch.push((*key, value.to_vec()));
                    if batch.len() < 1024 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                Ok::<_, Error>(batch)
            })?;
            let Some((last, _)) = batch.last() else { return Ok(()) };
            assert!(from <= batch[0].0 && *last < to, "a scan gives keys of its range only");
            let next = last.successor();
            batch.iter().for_each(|(key, value)| visit(key, value));
            let Some(next) = next else { return Ok(()) };
            from = next;
        }
    }
}

/// Makes the changes of a transaction seen.
fn apply(engine: &Engine, inner: &mut Inner, writes: transaction::Writes, usage: transaction::Usage, next_inode: u64) {
    if writes.is_empty() && next_inode == inner.next_inode {
        return;
    }
    assert!(next_inode >= inner.next_inode, "inode {next_inode} was given to a file already");
    for (key, value) in writes {
        inner.record(key, value);
    }
    for (segment, delta) in usage {
        if delta != 0 {
            segment.add_live_bytes(delta);
            if !segment.is_released() {
                engine.space.add_live(segment.scheme, delta);
            }
            engine.log.changed.note(&segment);
        }
    }
    inner.next_inode = next_inode;
    inner.change += 1;
}
