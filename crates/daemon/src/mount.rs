//! `stere mount`: in the foreground, or in a process of its own that tells when the mount answers.

use crate::job::Job;
use crate::{background, serve};
use stere_machine::error::Result;
use stere_machine::registry::Registry;

/// Mounts; returns when the mount answers, or with `foreground` when it has ended.
pub fn run(registry: &Registry, job: Job, foreground: bool) -> Result<u8> {
    match foreground {
        true => serve::serve(registry, job),
        false => background::start(registry, &job),
    }
}
