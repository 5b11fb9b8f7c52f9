//! `stere mount`: in the foreground, or in a process of its own that tells when the mount answers.

use crate::mount_request::MountRequest;
use crate::{background, serve};
use stere_machine::error::Result;
use stere_machine::registry::Registry;

/// Mounts; returns when the mount answers, or with `foreground` when it has ended.
pub fn run(registry: &Registry, request: MountRequest, foreground: bool) -> Result<u8> {
    match foreground {
        true => serve::serve(registry, request),
        false => background::start(registry, &request),
    }
}
