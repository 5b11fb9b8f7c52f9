//! Reading keys: the overlay above the frozen overlay above the tree.
//!
//! Invariants: a view never does I/O; when a node is not in memory it remembers which, and the enclosing call fetches it and
//! runs the closure again. Read next: `access.rs`, `transaction.rs`.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use stere_format::{BlobValue, Key, NodeReference, key};
use stere_log::{Io, SegmentTable};
use stere_tree::{Direction, Lookup, NodeCache};

use crate::{Inner, engine::Engine, error::Error};
use stere_recall::BlobHandle;
use stere_tree::{DELETIONS_MIN, Value, Voids};

/// What a view does about keys whose metadata is offloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offloaded {
    /// They are missed, so that they are reloaded.
    Reload,
    /// They are passed over; asked for, they are elsewhere.
    Skip,
    /// The tree is seen as it is: they are not there.
    Through,
}

impl Offloaded {
    pub fn of(io: Io<'_>) -> Offloaded {
        if io.skips_offloaded() { Offloaded::Skip } else { Offloaded::Reload }
    }
}

/// How many losses a blob bears now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossesBorne {
    /// Of devices and volumes together.
    pub in_all: u8,
    /// Of devices, without a volume being asked.
    pub on_devices: u8,
}

impl Engine {
    /// How many devices and media more may be lost before this blob is, by those that are there and answer now.
    pub fn losses_borne(&self, blob: &BlobHandle) -> LossesBorne {
        let (placed, silent) = (blob.segment.placed(), self.log.stripe.devices.silent());
        let readable = self.readable_chunks(&placed, &silent).checked_sub(usize::from(placed.scheme.data));
        let spare = readable.filter(|_| !blob.is_released());
        let volumes = blob.media().count_ones() as usize;
        // On volumes alone, the last one must stay.
        let in_all = spare.map_or(volumes.saturating_sub(1), |spare| spare + volumes);
        LossesBorne { in_all: in_all as u8, on_devices: spare.unwrap_or(0) as u8 }
    }
}

/// A consistent state of the pool, for reading.
pub struct View<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) cache: &'a NodeCache,
    pub(crate) segments: &'a SegmentTable,
    pub(crate) missed: Cell<Option<Miss>>,
    offloaded: Offloaded,
}

/// What a view lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss {
    Node(NodeReference),
    /// Keys that were put away.
    Fold(u64),
}

impl<'a> View<'a> {
    pub(crate) fn new(
        inner: &'a Inner,
        cache: &'a NodeCache,
        segments: &'a SegmentTable,
        offloaded: Offloaded,
    ) -> Self {
        View { inner, cache, segments, missed: Cell::new(None), offloaded }
    }

    pub(crate) fn take_missed(&self) -> Option<Miss> {
        self.missed.take()
    }

    /// The value of a key.
    pub fn get(&self, key: &Key) -> Result<Option<Value>, Error> {
        if key.tree == key::tree::NAMES
            && self.offloaded != Offloaded::Through
            && let Some(number) = self.inner.folds.at(key)
        {
            return Err(self.miss_fold(number));
        }
        if let Some(value) = self.inner.active.get(key) {
            return Ok(value.clone().map(Value::owned));
        }
        if let Some(frozen) = &self.inner.frozen {
            if let Some(value) = frozen.get(key) {
                return Ok(value.clone().map(Value::owned));
            }
        }
        match self.inner.tree.get(self.cache, key) {
            Lookup::Found(found) => Ok(Some(Value::in_node(found))),
            Lookup::Absent => Ok(None),
            Lookup::Miss(reference) => Err(self.miss(reference)),
        }
    }

    pub(crate) fn miss(&self, reference: NodeReference) -> Error {
        self.missed.set(Some(Miss::Node(reference)));
        Error::NodeNotInMemory
    }

    pub(crate) fn miss_fold(&self, number: u64) -> Error {
        if self.offloaded == Offloaded::Skip {
            let why = "this was offloaded, and is not brought back for a search".into();
            return Error::Elsewhere { why, refusal: stere_recall::Refusal::Denied };
        }
        self.missed.set(Some(Miss::Fold(number)));
        Error::NodeNotInMemory
    }

    /// Calls `visit` for every key from `from` up to but not including `to`, in order, until it breaks.
    pub fn scan(&self, from: Key, to: Key, mut visit: impl FnMut(&Key, &[u8]) -> ControlFlow<()>) -> Result<(), Error> {
        self.scan_with(&[], from, to, &mut visit)
    }

    /// The blob's entry in the blob map; its segment stays in place while the handle lives.
    pub fn blob(&self, id: u64) -> Result<BlobHandle, Error> {
        let value = self.get(&Key::blob(id))?.ok_or(Error::UnknownBlob { blob: id })?;
        self.handle(id, &value)
    }

    pub(crate) fn handle(&self, id: u64, bytes: &[u8]) -> Result<BlobHandle, Error> {
        let value =
            BlobValue::decode(bytes).map_err(|error| Error::BadValue { what: "a blob", detail: error.to_string() })?;
        let segment = self.segments.get(value.address.segment).ok_or_else(|| Error::BadValue {
            what: "a blob",
            detail: format!("blob {id} lies in segment {} which does not exist", value.address.segment),
        })?;
        Ok(BlobHandle { id, value: Arc::new(value), segment })
    }

    /// `scan` with one more layer on top: a transaction's own changes, sorted.
    pub(crate) fn scan_with(
        &self,
        own: &[(Key, Option<Arc<[u8]>>)],
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(&Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let piece = if self.offloaded == Offloaded::Through { None } else { self.inner.folds.within(&from, &to) };
        let Some((start, end, number)) = piece else { return self.scan_over_voids(own, from, to, visit) };
        let mut has_ended = false;
        if from < start {
            let before = &own[..own.partition_point(|(key, _)| *key < start)];
            self.scan_over_voids(before, from, start, &mut |key, value| {
                let flow = visit(key, value);
                has_ended = flow.is_break();
                flow
            })?;
        }
        match has_ended {
            true => Ok(()),
            false if self.offloaded == Offloaded::Skip => self.scan_with(own, end, to, visit),
            false => Err(self.miss_fold(number)),
        }
    }

    fn scan_over_voids(
        &self,
        own: &[(Key, Option<Arc<[u8]>>)],
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(&Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut from = from;
        loop {
            let own = &own[own.partition_point(|(key, _)| *key < from)..];
            match self.scan_to_void(own, from, to, visit)? {
                Some(end) if end < to => from = end,
                _ => return Ok(()),
            }
        }
    }

    /// Scans until it is done, or until it stands in a void whose end is told: there it goes on.
    fn scan_to_void(
        &self,
        own: &[(Key, Option<Arc<[u8]>>)],
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(&Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Key>, Error> {
        let mut own = own.iter().map(|(key, value)| (key, value)).peekable();
        let mut active = self.inner.active.range(&from, &to).peekable();
        let mut frozen = self.inner.frozen.as_ref().map(|overlay| overlay.range(&from, &to).peekable());
        let mut walk = self.inner.tree.range(self.cache, from, to, Direction::Forward);
        let mut in_tree = walk.next_owned().map_err(|reference| self.miss(reference))?;
        let mut deletions = Deletions::default();
        loop {
            let candidates = [
                own.peek().map(|(key, _)| **key),
                active.peek().map(|(key, _)| **key),
                frozen.as_mut().and_then(|layer| layer.peek().map(|(key, _)| **key)),
                in_tree.as_ref().map(|(key, _)| *key),
            ];
            let Some(least) = candidates.iter().flatten().min().copied() else {
                deletions.end(&self.inner.voids, to);
                return Ok(None);
            };
            // The uppermost layer that has the key decides; every layer that has it moves on.
            let mut decided: Option<Option<&[u8]>> = None;
            if candidates[0] == Some(least) {
                decided = own.next().map(|(_, value)| value.as_deref());
            }
            if candidates[1] == Some(least) {
                let value = active.next().map(|(_, value)| value.as_deref());
                decided = decided.or(value);
            }
            if candidates[2] == Some(least) {
                let value = frozen.as_mut().and_then(Iterator::next).map(|(_, value)| value.as_deref());
                decided = decided.or(value);
            }
            let from_tree = in_tree.take_if(|(key, _)| *key == least);
            let value = match decided {
                Some(value) => value,
                None => from_tree.as_ref().map(|(_, value)| &**value),
            };
            // What a transaction deletes may come back when it fails, so only what lies below counts.
            if value.is_some() || candidates[0] == Some(least) {
                deletions.end(&self.inner.voids, least);
            } else if let Some(end) = deletions.pass(&self.inner.voids, least)
                && own.peek().is_none_or(|(key, _)| **key >= end)
            {
                return Ok(Some(end));
            }
            if value.is_some_and(|bytes| visit(&least, bytes).is_break()) {
                return Ok(None);
            }
            if from_tree.is_some() {
                in_tree = walk.next_owned().map_err(|reference| self.miss(reference))?;
            }
        }
    }
}

/// The deletions that a scan has passed in a row.
#[derive(Default)]
struct Deletions {
    count: usize,
    first: Option<Key>,
}

impl Deletions {
    /// One more, at `key`. Tells where the void ends that they have come into, if one is known.
    fn pass(&mut self, voids: &Voids, key: Key) -> Option<Key> {
        let first = *self.first.get_or_insert(key);
        self.count += 1;
        if self.count != DELETIONS_MIN {
            return None;
        }
        let end = voids.end_behind(&key)?;
        voids.learn(first, end);
        Some(end)
    }

    /// Something is at `key`, or the scan ends there: if there were many, nothing lies between the first and here.
    fn end(&mut self, voids: &Voids, key: Key) {
        if let Some(first) = self.first.take().filter(|_| self.count >= DELETIONS_MIN) {
            voids.learn(first, key);
        }
        self.count = 0;
    }
}
