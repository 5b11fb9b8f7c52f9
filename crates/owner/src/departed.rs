//! Sessions whose clients are gone: what is noted for them stays a while, because they may come back and ask again.
//!
//! Invariant: a session is in the list or served, and its notes are removed only from the list. Read next: `crates/file/src/requests.rs`.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stere_fuse::Door;
use stere_naming::requests;

/// A client that was away for longer than this is taken for one that asks for the first time.
const KEPT: Duration = Duration::from_secs(600);

/// Who left, and when.
pub(crate) struct Departed {
    door: Door,
    since: Mutex<HashMap<[u8; 16], Instant>>,
}

impl Departed {
    /// All for whom owners before this one have noted anything.
    pub fn of(door: Door) -> Departed {
        let now = Instant::now();
        let found = requests::sessions(door.filesystem().store()).unwrap_or_else(|error| {
            tracing::warn!(%error, "which machines were served before cannot be read; what is noted for them stays");
            Vec::new()
        });
        let since = Mutex::new(found.into_iter().map(|session| (session, now)).collect());
        Departed { door, since }
    }

    pub fn all(&self) -> HashSet<[u8; 16]> {
        self.since.lock().keys().copied().collect()
    }

    /// Nobody has come back for it.
    pub fn leaves(&self, session: [u8; 16]) {
        self.since.lock().insert(session, Instant::now());
    }

    pub fn is_back(&self, session: [u8; 16]) {
        self.since.lock().remove(&session);
    }

    /// The client has said that it is done.
    pub fn ends(&self, session: [u8; 16]) {
        self.is_back(session);
        if let Err(error) = requests::forget(self.door.filesystem().store(), &session) {
            tracing::debug!(%error, "what is noted for a machine that has left stays for now");
            self.leaves(session);
        }
    }

    /// Removes what nobody will ask for any more.
    pub fn forget_old(&self) {
        let is_old = |_: &[u8; 16], since: &mut Instant| since.elapsed() > KEPT;
        let old: Vec<[u8; 16]> = self.since.lock().extract_if(is_old).map(|(session, _)| session).collect();
        old.into_iter().for_each(|session| self.ends(session));
    }
}
