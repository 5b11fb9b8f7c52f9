//! A value read from the overlay or from a tree node: bytes that are cheap to clone and never change.

use std::ops::Deref;
use std::sync::Arc;

use crate::ValueRef;

/// Immutable bytes of one key.
#[derive(Clone, Debug)]
pub struct Value(Representation);

#[derive(Clone, Debug)]
enum Representation {
    Owned(Arc<[u8]>),
    InNode(ValueRef),
}

impl Value {
    pub fn owned(bytes: Arc<[u8]>) -> Self {
        Value(Representation::Owned(bytes))
    }

    pub fn in_node(value: ValueRef) -> Self {
        Value(Representation::InNode(value))
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Representation::Owned(bytes) => bytes,
            Representation::InNode(value) => value,
        }
    }
}
