//! Opening, reading, writing and cutting files, whatever their form.
//!
//! A file's way is decided by its name when it has no content: when it is made, and when it is emptied. What has content keeps its
//! form, however rules change.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::nodes::{Content, Node};
use super::{Server, errno};
use crate::error::Error;
use crate::stacked::{Found, Stacked};
use crate::way::Way;

/// What is open.
pub(super) enum Handle {
    /// A file that is stored as it is.
    Plain { file: File, node: Arc<Node> },
    /// One that is not: its node has it.
    Stacked { node: Arc<Node>, is_writable: bool },
    /// A directory, with its entries as they were when reading began.
    Directory { node: Arc<Node>, entries: Mutex<Option<Vec<Listed>>> },
}

impl Handle {
    /// The file or directory.
    pub fn node(&self) -> &Arc<Node> {
        match self {
            Handle::Plain { node, .. } | Handle::Stacked { node, .. } | Handle::Directory { node, .. } => node,
        }
    }
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub inode: u64,
    pub mode: u32,
    pub name: Vec<u8>,
}

/// The flags that are passed on: what decides who may do what, and not how it is done.
fn passed(flags: u32) -> OFlags {
    let kept = OFlags::ACCMODE | OFlags::NOATIME;
    OFlags::from_bits_retain(flags) & kept
}

fn is_writing(flags: u32) -> bool {
    flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32
}

impl Server {
    /// Opens a regular file. `way`: that of its name, for one that is empty.
    pub(super) fn open_file(&self, node: &Arc<Node>, flags: u32, way: Option<Way>) -> Result<u64, Error> {
        let mut content = node.content.lock();
        let truncates = flags & libc::O_TRUNC as u32 != 0;
        let found = match &content.stacked {
            Some(stacked) => Found::Stacked { size: stacked.size(), way: stacked.way().clone() },
            None => node.found(&mut content, &node.stat()?)?,
        };
        // Opened for what is asked, so that the file system beneath says no where it would.
        let file = node.open(passed(flags))?;
        let is_empty = truncates || node.stat()?.st_size == 0;
        let may_change = is_empty && is_writing(flags) && content.plain_opens == 0;
        let wanted = way.filter(|way| may_change && (!way.is_plain() || found != Found::Plain));
        match (found, wanted) {
            (Found::Plain, None) => {
                if truncates {
                    file.set_len(0)?;
                }
                Ok(self.keep_plain(node, &mut content, file))
            }
            (Found::Plain, Some(way)) => {
                file.set_len(0)?;
                // What is appended has to be read again, too.
                let stacked = Stacked::create(node.open(OFlags::RDWR)?, self.coder.clone(), way)?;
                Ok(self.keep(node, &mut content, stacked, true))
            }
            (Found::Stacked { .. }, wanted) => {
                let stacked = match content.stacked.take() {
                    Some(stacked) => stacked,
                    None => self.open_stacked(node)?,
                };
                let number = self.keep(node, &mut content, stacked, is_writing(flags));
                if truncates {
                    let stacked = content.stacked.as_mut().expect("it was put there just now");
                    stacked.set_size(0)?;
                    if let Some(way) = wanted {
                        stacked.set_way(way)?;
                    }
                }
                Ok(number)
            }
        }
    }

    /// A file that was just made is stored this way from now on; nothing if it is not new.
    pub(super) fn adopt(&self, node: &Arc<Node>, file: File, way: &Way) -> Result<Option<u64>, Error> {
        let mut content = node.content.lock();
        if content.stacked.is_some() || file.metadata()?.len() > 0 {
            return Ok(None);
        }
        if way.is_plain() {
            return Ok(Some(self.keep_plain(node, &mut content, file)));
        }
        let stacked = Stacked::create(file, self.coder.clone(), way.clone())?;
        Ok(Some(self.keep(node, &mut content, stacked, true)))
    }

    fn keep_plain(&self, node: &Arc<Node>, content: &mut Content, file: File) -> u64 {
        content.plain_opens += 1;
        self.new_handle(Handle::Plain { file, node: node.clone() })
    }

    fn keep(&self, node: &Arc<Node>, content: &mut Content, stacked: Stacked, is_writable: bool) -> u64 {
        assert!(content.stacked.is_none(), "the content of node {} is open twice", node.number);
        content.stacked = Some(stacked);
        content.opens += 1;
        self.new_handle(Handle::Stacked { node: node.clone(), is_writable })
    }

    /// For writing where that is possible: others may open it for that later.
    fn open_stacked(&self, node: &Node) -> Result<Stacked, Error> {
        let file = match node.open(OFlags::RDWR) {
            Err(error) if matches!(error.errno(), libc::EACCES | libc::EROFS | libc::EPERM) => {
                node.open(OFlags::RDONLY)?
            }
            opened => opened?,
        };
        Stacked::open(file, self.coder.clone())
    }

    pub(super) fn read(&self, handle: u64, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        match &*self.handle_of(handle)? {
            Handle::Plain { file, .. } => {
                let mut done = 0;
                while done < out.len() {
                    match file.read_at(&mut out[done..], offset + done as u64)? {
                        0 => break,
                        bytes => done += bytes,
                    }
                }
                Ok(done)
            }
            Handle::Stacked { node, .. } => with_stacked(node, |stacked| stacked.read(offset, out)),
            Handle::Directory { .. } => Err(errno(libc::EISDIR)),
        }
    }

    pub(super) fn write(&self, handle: u64, offset: u64, data: &[u8], is_append: bool) -> Result<(), Error> {
        match &*self.handle_of(handle)? {
            Handle::Plain { file, .. } if is_append => {
                let end = file.metadata()?.len();
                Ok(file.write_all_at(data, end.max(offset))?)
            }
            Handle::Plain { file, .. } => Ok(file.write_all_at(data, offset)?),
            Handle::Stacked { is_writable: false, .. } => Err(errno(libc::EBADF)),
            Handle::Stacked { node, .. } => with_stacked(node, |stacked| {
                let offset = if is_append { stacked.size() } else { offset };
                stacked.write(offset, data)
            }),
            Handle::Directory { .. } => Err(errno(libc::EISDIR)),
        }
    }

    /// Hands over what was changed; with `sync` it is durable on return.
    pub(super) fn save(&self, handle: u64, sync: bool) -> Result<(), Error> {
        match &*self.handle_of(handle)? {
            Handle::Plain { file, .. } if sync => Ok(file.sync_all()?),
            Handle::Stacked { node, is_writable } if *is_writable || sync => {
                with_stacked(node, |stacked| if stacked.is_dirty() || sync { stacked.save(sync) } else { Ok(()) })
            }
            Handle::Directory { node, .. } if sync => Ok(node.open(OFlags::RDONLY | OFlags::DIRECTORY)?.sync_all()?),
            _ => Ok(()),
        }
    }

    /// Lets a handle go; the last one of a file hands over what was changed.
    pub(super) fn close(&self, handle: u64) -> Result<(), Error> {
        let Some(closed) = self.handles.lock().remove(&handle) else { return Ok(()) };
        if let Handle::Plain { node, .. } = &*closed {
            let mut content = node.content.lock();
            assert!(content.plain_opens > 0, "a handle of node {} ends that was not counted", node.number);
            content.plain_opens -= 1;
        }
        let Handle::Stacked { node, .. } = &*closed else { return Ok(()) };
        let mut content = node.content.lock();
        let is_open = content.opens > 0 && content.stacked.is_some();
        assert!(is_open, "a handle of node {} ends, and its content is not open", node.number);
        content.opens -= 1;
        if content.opens > 0 {
            return Ok(());
        }
        let Some(mut stacked) = content.stacked.take() else { return Ok(()) };
        match stacked.is_dirty().then(|| stacked.save(false)) {
            Some(Err(error)) => {
                // It was told at the flush already, and nobody is left who could do something about it.
                tracing::error!(%error, "what was written last to a file that is closed is lost");
                Err(error)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn set_size(&self, node: &Arc<Node>, size: u64) -> Result<(), Error> {
        let mut content = node.content.lock();
        if let Some(stacked) = &mut content.stacked {
            return stacked.set_size(size);
        }
        match node.found(&mut content, &node.stat()?)? {
            Found::Plain => Ok(node.open(OFlags::WRONLY)?.set_len(size)?),
            Found::Stacked { .. } => {
                let mut stacked = Stacked::open(node.open(OFlags::RDWR)?, self.coder.clone())?;
                stacked.set_size(size)?;
                stacked.save(false)
            }
        }
    }
}

fn with_stacked<T>(node: &Node, work: impl FnOnce(&mut Stacked) -> Result<T, Error>) -> Result<T, Error> {
    match &mut node.content.lock().stacked {
        Some(stacked) => work(stacked),
        None => Err(errno(libc::EBADF)),
    }
}
