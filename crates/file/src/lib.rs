//! File contents: offsets to blobs, gathering of small writes, holes, sharing.
