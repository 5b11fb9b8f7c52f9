//! Requests of other machines that were carried out: noted by the transactions that do so, and looked up by the next owner.
//!
//! A machine whose owner dies sends again what it has no answer to, and only the log knows whether that was done. Invariant: a note is put by
//! the very transaction that has the effect, so that after a crash both are there or neither. Read next: `docs/design/cluster.md`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_faults::{Bug, is_planted};
use stere_format::{Key, RequestValue};
use stere_store::{Io, Store, Transaction};

pub use crate::error::Error;
pub use crate::slots::Slots;

#[cfg(test)]
mod tests;

/// Slots of a session at most.
pub const SLOTS_MAX: u16 = 1024;
/// Where it is noted that a session is there, with a number that no request has.
const PRESENCE: (u16, u64) = (SLOTS_MAX - 1, u64::MAX);
/// Notes that one transaction removes.
const REMOVED_AT_ONCE: usize = 256;

/// Which request of which session, and where it is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    /// Of a mount of another machine, drawn by it.
    pub session: [u8; 16],
    /// Below `SLOTS_MAX`; the note that was there before is not needed any more.
    pub slot: u16,
    /// Rises in the session, from 1 on.
    pub number: u64,
    /// Of one that an owner before has answered: the inode that it had made.
    pub made: Option<u64>,
}

/// What is known of a request that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// Where it is noted.
    pub slot: u16,
    /// Where an append went.
    pub place: u64,
}

/// Notes, with all else that the transaction does, that the request was carried out.
pub fn note(transaction: &mut Transaction<'_>, request: Option<&RequestId>, place: u64) {
    let Some(RequestId { session, slot, number, .. }) = request.copied() else { return };
    assert!(slot < SLOTS_MAX, "slot {slot} is one of a session's");
    if is_planted(Bug::RequestNotNoted) {
        return;
    }
    transaction.put(Key::request(&session, slot), &RequestValue { session, number, place }.encode());
}

/// Notes that a session is there, so that the next owner waits for what it has to tell. False: that was noted before.
///
/// # Errors
/// Why it is not noted.
pub fn note_session(store: &Store, session: &[u8; 16]) -> Result<bool, Error> {
    let (slot, number) = PRESENCE;
    if of_session(store, session)?.contains_key(&number) {
        return Ok(false);
    }
    store.update(Io::BLOCKING, |transaction| {
        note(transaction, Some(&RequestId { session: *session, slot, number, made: None }), 0);
        Ok::<_, Error>(())
    })?;
    Ok(true)
}

/// All notes in a range of keys.
fn all_in(store: &Store, (from, to): (Key, Key)) -> Result<Vec<(Key, RequestValue)>, Error> {
    store.view(Io::BLOCKING, |view| {
        let (mut all, mut damaged) = (Vec::new(), None);
        view.scan(from, to, &mut |key: &Key, bytes: &[u8]| match RequestValue::decode(bytes) {
            Ok(value) => {
                all.push((*key, value));
                ControlFlow::Continue(())
            }
            Err(error) => {
                damaged = Some(error);
                ControlFlow::Break(())
            }
        })?;
        match damaged {
            None => Ok(all),
            Some(error) => Err(Error::BadNote(error.to_string())),
        }
    })
}

/// All requests of a session that are noted, by their numbers.
///
/// # Errors
/// What cannot be read.
pub fn of_session(store: &Store, session: &[u8; 16]) -> Result<BTreeMap<u64, Noted>, Error> {
    let all = all_in(store, Key::requests_of(session))?;
    let of_it = all.into_iter().filter(|(_, value)| value.session == *session);
    let noted = of_it.map(|(key, value)| (value.number, Noted { slot: key.slot_of_request(), place: value.place }));
    Ok(noted.filter(|(_, noted)| noted.slot < SLOTS_MAX).collect())
}

/// Sessions of which something is noted.
///
/// # Errors
/// What cannot be read.
pub fn sessions(store: &Store) -> Result<Vec<[u8; 16]>, Error> {
    let mut all: Vec<[u8; 16]> = all_in(store, Key::REQUESTS)?.into_iter().map(|(_, value)| value.session).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Removes all notes of a session.
///
/// # Errors
/// Why they are not removed.
pub fn forget(store: &Store, session: &[u8; 16]) -> Result<(), Error> {
    let slots: Vec<u16> = of_session(store, session)?.values().map(|noted| noted.slot).collect();
    for some in slots.chunks(REMOVED_AT_ONCE) {
        store.update(Io::BLOCKING, |transaction| {
            some.iter().for_each(|slot| transaction.delete(Key::request(session, *slot)));
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}
