//! Notes which files are about to be changed, where rules want them followed up, and who has them open.
//!
//! Names are told as the source has them: a file that is renamed is one that went and one that is new.

use std::os::unix::ffi::OsStringExt;

use fuse_wire::Operation;

use super::operations::Answer;
use super::{Server, errno};
use crate::error::Error;

/// The attribute of the top directory that tells what waits, and takes what is to be done about it.
pub(super) const QUEUE_ATTRIBUTE: &[u8] = b"user.stere.queue";
/// Bytes that the names of it may take.
const NAMES_BYTES_MAX: usize = 32 << 10;

/// What a request is about to change, and what has to be known when it was done.
#[derive(Default)]
pub(super) struct Following {
    /// Opened for writing, if it succeeds.
    opening: Option<Vec<u8>>,
    closing: Option<u64>,
}

impl Server {
    /// Before a request is performed.
    pub(super) fn before(&self, operation: &Operation<'_>) -> Result<Following, Error> {
        let mut following = Following::default();
        let Some(queue) = &self.queue else { return Ok(following) };
        let now = (self.now_seconds)();
        match *operation {
            Operation::Open { node, flags, .. } if flags & (libc::O_ACCMODE | libc::O_TRUNC) as u32 != 0 => {
                following.opening = self.followed(self.path_of_node(node)?);
            }
            Operation::Create { parent, name, .. } => following.opening = self.followed(self.path_of(parent, name)?),
            Operation::Setattr { node, changes } if changes.size.is_some() => {
                let path = self.followed(self.path_of_node(node)?);
                path.inspect(|path| queue.note(path, now, false));
            }
            Operation::Unlink { parent, name } => {
                let path = self.followed(self.path_of(parent, name)?);
                path.inspect(|path| queue.note(path, now, false));
            }
            Operation::Rename { parent, name, new_parent, new_name, .. } => {
                let (old, new) = (self.path_of(parent, name)?, self.path_of(new_parent, new_name)?);
                queue.renamed(&old, &new, now);
                queue.renamed(&new, &old, now);
                let both = [old, new].into_iter().filter_map(|path| self.followed(path));
                both.for_each(|path| queue.note(&path, now, false));
            }
            Operation::Link { new_parent, new_name, .. } => {
                let path = self.followed(self.path_of(new_parent, new_name)?);
                path.inspect(|path| queue.note(path, now, false));
            }
            Operation::Release { handle, .. } => following.closing = Some(handle),
            _ => {}
        }
        following.opening.iter().for_each(|path| queue.note(path, now, true));
        Ok(following)
    }

    /// After it was performed.
    pub(super) fn after(&self, following: Following, outcome: &Result<Answer, Error>) {
        let Some(queue) = &self.queue else { return };
        if let Some(path) = following.opening {
            match outcome {
                Ok(Answer::Open(handle) | Answer::Created(_, handle)) => {
                    let other = self.writers.lock().insert(*handle, path);
                    assert!(other.is_none(), "handle {handle} is open for writing already");
                }
                _ => queue.closed(&path),
            }
        }
        if let Some(path) = following.closing.and_then(|handle| self.writers.lock().remove(&handle)) {
            queue.closed(&path);
        }
    }

    /// Before a handle is let go: a file that was renamed meanwhile is noted under its name of now.
    pub(super) fn before_closing(&self, handle: u64) {
        let (Some(queue), Ok(open)) = (&self.queue, self.handle_of(handle)) else { return };
        let Some(path) = self.writers.lock().get(&handle).cloned() else { return };
        let now = self.path_of_node(open.node().number).ok().and_then(|path| self.followed(path));
        if let Some(now) = now.filter(|now| *now != path) {
            queue.note(&now, (self.now_seconds)(), false);
        }
    }

    /// What waits, as lines of text: counts of waiting, given up and lost; then of each file since when, failures, when next, whether it
    /// was given up, path and cause, behind tabs.
    pub(super) fn queue_said(&self) -> Result<Vec<u8>, Error> {
        let queue = self.queue.as_ref().ok_or_else(|| errno(libc::ENODATA))?;
        let (mut files, lost) = queue.list();
        let given_up = files.iter().filter(|(_, waiting)| waiting.is_given_up).count();
        files.sort_by_key(|(_, waiting)| !waiting.is_given_up);
        let mut said = format!("{}\t{given_up}\t{lost}\n", files.len() - given_up);
        for (path, waiting) in files {
            let clean = |text: &str| text.replace(['\t', '\n'], " ");
            let (path, cause) = (clean(&String::from_utf8_lossy(&path)), clean(&waiting.cause));
            let (since, failures, next) = (waiting.since_seconds, waiting.failures, waiting.next_seconds);
            let line = format!("{since}\t{failures}\t{next}\t{}\t{path}\t{cause}\n", u8::from(waiting.is_given_up));
            if said.len() + line.len() > NAMES_BYTES_MAX {
                break;
            }
            said += &line;
        }
        Ok(said.into_bytes())
    }

    /// Does something about what waits.
    pub(super) fn change_queue(&self, value: &[u8]) -> Result<Answer, Error> {
        let queue = self.queue.as_ref().ok_or_else(|| errno(libc::ENODATA))?;
        match value {
            b"retry" => drop(queue.retry()),
            b"drop" => drop(queue.forget(false)?),
            b"drop-all" => drop(queue.forget(true)?),
            _ => return Err(errno(libc::EINVAL)),
        }
        Ok(Answer::Done)
    }

    fn followed(&self, path: Vec<u8>) -> Option<Vec<u8>> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.rules.follows(name, &path).map(|_| path.clone())
    }

    fn path_of(&self, directory: u64, name: &[u8]) -> Result<Vec<u8>, Error> {
        let above = self.path_of_node(directory)?;
        Ok(if above.is_empty() { name.to_vec() } else { [&above[..], b"/", name].concat() })
    }

    fn path_of_node(&self, node: u64) -> Result<Vec<u8>, Error> {
        let path = std::fs::read_link(self.nodes.get(node)?.path())?.into_os_string().into_vec();
        let below = path.strip_prefix(&self.source[..]).unwrap_or_default();
        Ok(below.strip_prefix(b"/").unwrap_or(below).to_vec())
    }
}
