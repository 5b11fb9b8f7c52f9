//! The copy-on-write B+tree: nodes are log records, checksummed by their parents.
