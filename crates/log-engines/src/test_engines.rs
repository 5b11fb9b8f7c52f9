//! Real engines for tests. Read next: `lib.rs`.
