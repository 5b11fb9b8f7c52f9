//! The thread that watches over a device: it gives up what takes too long, and looks for a server that is away.
//!
//! Where no other device of the pool answers, requests are not given up: they wait, and are sent again over the new connections.
//!
//! A server is used again when it has answered all that was given up. Or when it can be reached anew, as large as it was, with what it had told
//! to be durable, and flushes; before that the old connections are ended and `LATE_WRITES` is let pass, so that nothing of them is still on its
//! way to the disk. Read next: `witness.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stere_device::{Access, Buffer, Completion, DeviceError, length_of};

use crate::connection::{Connection, Filling, Pending, ReadCell, Waiter};
use crate::error::NbdError;
use crate::node::Node;
use crate::session::Session;
use crate::wire::Command;
use crate::witness;

/// How often a server that is away is looked for.
const RETRY: Duration = Duration::from_secs(1);
/// After such a time a server is looked for that nobody has set a deadline.
const LOOKED_FOR_FROM: Duration = Duration::from_secs(5);
/// What a server may have left of connections that are gone is carried out by then.
const LATE_WRITES: Duration = Duration::from_secs(1);
/// How long a flush or read may take that tells whether a server is well.
const PROBE: Duration = Duration::from_secs(5);
/// How exactly deadlines are kept.
const TICK: Duration = Duration::from_millis(50);

impl Node {
    /// Gives up what takes too long, and looks for a server that is away.
    pub fn supervise(self: &Arc<Self>) {
        let mut looked = Instant::now();
        loop {
            let mut state = self.state.lock();
            if state.is_closing {
                return;
            }
            if let Some(away) = &state.away {
                let is_waited_for = away.is_waited_for;
                self.changed.wait_for(&mut state, TICK);
                drop(state);
                if is_waited_for {
                    self.leave_if_may();
                }
                self.look_again(&mut looked);
                continue;
            }
            let limit = state.deadline.as_ref().map_or(LOOKED_FOR_FROM, |deadline| deadline.limit);
            let connections = state.connections.clone();
            if connections.iter().any(|connection| connection.is_over()) {
                drop(state);
                self.lose(Instant::now(), "its server closed a connection".into());
                continue;
            }
            let is_asked = connections.iter().any(|connection| connection.in_flight() > 0);
            match self.silent_since(&connections, limit) {
                Some(oldest) => {
                    drop(state);
                    self.lose(oldest, format!("it has not answered for {:.0} s", oldest.elapsed().as_secs_f64()));
                    looked = Instant::now();
                }
                None if is_asked => drop(self.changed.wait_for(&mut state, TICK)),
                None => drop(self.changed.wait_for(&mut state, RETRY)),
            }
        }
    }

    /// The device is away: whether it has answered by itself, or can be reached anew.
    fn look_again(self: &Arc<Self>, looked: &mut Instant) {
        let connections = self.state.lock().connections.clone();
        let is_broken = connections.is_empty() || connections.iter().any(|connection| connection.is_over());
        // Where somebody waits for it, too.
        let owes = |connection: &Arc<Connection>| connection.in_flight() > 0;
        if !is_broken && !connections.iter().any(owes) {
            self.is_back("it has answered everything");
            return;
        }
        if looked.elapsed() < RETRY {
            return;
        }
        match self.reach_anew() {
            Ok(()) => {}
            Err(error) => {
                if let Some(away) = &mut self.state.lock().away {
                    away.why = error.to_string();
                }
            }
        }
        *looked = Instant::now();
    }

    fn reach_anew(self: &Arc<Self>) -> Result<(), NbdError> {
        let session = Session::open(&self.address)?;
        let found = session.export;
        if found != self.export {
            let (is, was) = (found.size_bytes, self.export.size_bytes);
            return Err(NbdError::Unsuitable(match is == was {
                true => "its server offers it with other limits than before; take it offline and online again".into(),
                false => format!("it has {is} bytes, and had {was}; bring the right one back"),
            }));
        }
        let old = std::mem::take(&mut self.state.lock().connections);
        old.iter().for_each(|connection| connection.end());
        // Those that nobody waits for any more are forgotten with their connection.
        let again: Vec<Pending> = old.iter().flat_map(|connection| connection.take_pending()).collect();
        self.state.lock().held.splice(0..0, again);
        let connections = self.connect_all(session)?;
        std::thread::sleep(LATE_WRITES);
        self.witnesses.lock().forget_what_was_not_durable();
        let proven = match self.access {
            Access::ReadOnly => Ok(()),
            Access::ReadWrite => self.prove(&connections[0]),
        };
        if let Err(error) = proven {
            connections.iter().for_each(|connection| connection.end());
            return Err(error);
        }
        self.state.lock().connections = connections;
        self.is_back("its server answers again");
        Ok(())
    }

    /// Whether a server that was away is well and has what it had; what it may have lost is written again.
    fn prove(&self, connection: &Arc<Connection>) -> Result<(), NbdError> {
        match self.probe(connection) {
            // It is well, and a newer owner's: what is read is answered, and whoever writes hears why he may not.
            Err(NbdError::Fenced) => {
                self.is_unflushed_lost.store(true, Ordering::Release);
                return Ok(());
            }
            probed => probed?,
        }
        self.prove_witnesses(connection)?;
        if self.flushed.load(Ordering::Acquire) >= self.written.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(writes) = self.replay.lock().all() else {
            self.is_unflushed_lost.store(true, Ordering::Release);
            return Ok(());
        };
        tracing::info!(device = self.name, writes = writes.len(), "what was not flushed is written again");
        for (offset, pieces) in writes {
            let completion = Completion::new();
            let waiter = Waiter::Trim(completion.ticket(0));
            let mut pending = self.pending(Command::Write, offset, length_of(&pieces), waiter);
            pending.pieces = pieces;
            self.ask(connection, pending, &completion)?;
        }
        Ok(())
    }

    /// Whether a server flushes, on a connection that nobody uses yet.
    fn probe(&self, connection: &Arc<Connection>) -> Result<(), NbdError> {
        let completion = Completion::new();
        self.ask(connection, self.pending(Command::Flush, 0, 0, Waiter::Trim(completion.ticket(0))), &completion)
    }

    /// Asks one thing and waits for the answer.
    fn ask(&self, connection: &Arc<Connection>, pending: Pending, completion: &Completion) -> Result<(), NbdError> {
        if let Some(pending) = connection.submit(pending) {
            self.refuse(pending);
        }
        let begun = Instant::now();
        while !completion.is_done() && begun.elapsed() < PROBE && !connection.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !completion.is_done() {
            self.give_up_all(connection);
        }
        match completion.wait().pop() {
            None => Ok(()),
            Some((_, DeviceError::Fenced { .. })) => Err(NbdError::Fenced),
            Some((_, error)) => {
                Err(NbdError::Unsuitable(format!("its server can be reached and takes nothing ({error})")))
            }
        }
    }

    /// Whether a server that was away still has what it said to be durable.
    fn prove_witnesses(&self, connection: &Arc<Connection>) -> Result<(), NbdError> {
        // Not for as long as this goes on: whoever writes meanwhile is refused, and does not wait.
        let durable = self.witnesses.lock().durable();
        for (offset, expected) in durable {
            let cell = Arc::new(ReadCell::default());
            let mut pending = self.pending(Command::Read, offset, witness::BLOCK_BYTES, Waiter::Read(cell.clone()));
            pending.filling = Some(Filling::of(Buffer::zeroed(witness::BLOCK_BYTES)));
            if let Some(pending) = connection.submit(pending) {
                self.refuse(pending);
            }
            let found = cell.wait(Some(Instant::now() + PROBE));
            if found.is_none() {
                self.give_up_all(connection);
            }
            let Some(Ok(block)) = found else {
                return Err(NbdError::Unsuitable("its server can be reached and does not read".into()));
            };
            if witness::checksum(&block) != expected {
                let why = "its disk is older than what it had acknowledged, or another one: bring the right one back, or take it offline \
                           and online again (`stere device offline`, `stere device online`), so that all of it is looked at";
                return Err(NbdError::Unsuitable(why.into()));
            }
        }
        Ok(())
    }
}
