//! Reading keys: the overlay above the frozen overlay above the tree.
//!
//! Invariants: a view never does I/O; when a node is not in memory it remembers which, and the enclosing call fetches it and
//! runs the closure again. Read next: `transaction.rs`.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use stere_format::{BlobValue, Key, KIND_BLOB, NodeReference, TREE_BLOBS};
use stere_log::Segment;
use stere_tree::{Lookup, NodeCache};

use crate::Inner;
use crate::error::Error;
use crate::value::Value;

/// The key of a blob in the blob map.
pub fn blob_key(blob: u64) -> Key {
    Key { tree: TREE_BLOBS, object: blob, kind: KIND_BLOB, position: 0 }
}

/// A blob as a reader holds it: its entry, and its segment, which stays in place while this lives.
#[derive(Clone, Debug)]
pub struct BlobHandle {
    pub id: u64,
    pub value: Arc<BlobValue>,
    pub(crate) segment: Arc<Segment>,
}

/// A consistent state of the pool, for reading.
pub struct View<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) cache: &'a NodeCache,
    pub(crate) segments: &'a stere_log::SegmentTable,
    pub(crate) missed: Cell<Option<NodeReference>>,
}

impl View<'_> {
    /// The value of a key.
    pub fn get(&self, key: &Key) -> Result<Option<Value>, Error> {
        if let Some(value) = self.inner.active.get(key) {
            return Ok(value.clone().map(Value::owned));
        }
        if let Some(frozen) = &self.inner.frozen {
            if let Some(value) = frozen.get(key) {
                return Ok(value.clone().map(Value::owned));
            }
        }
        match self.inner.tree.get(self.cache, key) {
            Lookup::Found(found) => {
                let (node, range) = found.into_parts();
                Ok(Some(Value::in_node(node, range)))
            }
            Lookup::Absent => Ok(None),
            Lookup::Miss(reference) => Err(self.miss(reference)),
        }
    }

    pub(crate) fn miss(&self, reference: NodeReference) -> Error {
        self.missed.set(Some(reference));
        Error::NodeNotInMemory
    }

    /// Calls `visit` for every key from `from` up to but not including `to`, in order, until it breaks.
    pub fn scan(&self, from: Key, to: Key, mut visit: impl FnMut(&Key, &[u8]) -> ControlFlow<()>) -> Result<(), Error> {
        self.scan_with(&[], from, to, &mut visit)
    }

    /// The blob's entry in the blob map; its segment stays in place while the handle lives.
    pub fn blob(&self, id: u64) -> Result<BlobHandle, Error> {
        let value = self.get(&blob_key(id))?.ok_or(Error::UnknownBlob { blob: id })?;
        self.handle(id, &value)
    }

    pub(crate) fn handle(&self, id: u64, bytes: &[u8]) -> Result<BlobHandle, Error> {
        let value = BlobValue::decode(bytes).map_err(|error| Error::BadValue { what: "a blob", detail: error.to_string() })?;
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
        let mut own = own.iter().map(|(key, value)| (key, value)).peekable();
        let mut active = self.inner.active.range(&from, &to).peekable();
        let mut frozen = self.inner.frozen.as_ref().map(|overlay| overlay.range(&from, &to).peekable());
        let mut cursor = self.inner.tree.cursor(self.cache, &from);
        loop {
            let in_tree = match cursor.peek(&to) {
                Ok(entry) => entry,
                Err(reference) => return Err(self.miss(reference)),
            };
            let candidates = [
                own.peek().map(|(key, _)| **key),
                active.peek().map(|(key, _)| **key),
                frozen.as_mut().and_then(|layer| layer.peek().map(|(key, _)| **key)),
                in_tree.as_ref().map(|(key, _)| *key),
            ];
            let Some(least) = candidates.iter().flatten().min().copied() else { return Ok(()) };
            // The uppermost layer that has the key decides; every layer that has it moves on.
            let mut decided: Option<Option<&[u8]>> = None;
            if candidates[0] == Some(least) {
                let (_, value) = own.next().expect("peeked");
                decided = Some(value.as_deref());
            }
            if candidates[1] == Some(least) {
                let (_, value) = active.next().expect("peeked");
                decided = decided.or(Some(value.as_deref()));
            }
            if candidates[2] == Some(least) {
                let (_, value) = frozen.as_mut().and_then(Iterator::next).expect("peeked");
                decided = decided.or(Some(value.as_deref()));
            }
            let from_tree = candidates[3] == Some(least);
            let value = match decided {
                Some(value) => value,
                None => in_tree.as_ref().map(|(_, value)| &**value),
            };
            if let Some(bytes) = value {
                if visit(&least, bytes).is_break() {
                    return Ok(());
                }
            }
            drop(in_tree);
            if from_tree {
                cursor.advance();
            }
        }
    }
}
