//! One open file, of a mounted pool or of one that this process has open.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::channel::Channel;
use crate::direct::DirectFile;
use crate::error::Error;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) truncate: bool,
    pub(crate) mode: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { read: false, write: false, create: false, truncate: false, mode: 0o666 }
    }
}

impl Options {
    /// Nothing is allowed yet.
    pub fn new() -> Options {
        Options::default()
    }

    pub fn read(self, read: bool) -> Options {
        Options { read, ..self }
    }

    pub fn write(self, write: bool) -> Options {
        Options { write, ..self }
    }

    /// Makes the file if there is none.
    pub fn create(self, create: bool) -> Options {
        Options { create, ..self }
    }

    /// Empties the file.
    pub fn truncate(self, truncate: bool) -> Options {
        Options { truncate, ..self }
    }

    /// Permissions of a file that is made.
    pub fn mode(self, mode: u32) -> Options {
        Options { mode, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Options { read: false, write: false, .. } => Err(Error::Usage("open the file for reading or for writing")),
            Options { create, truncate, write: false, .. } if *create || *truncate => {
                Err(Error::Usage("a file is made or emptied only when it is opened for writing"))
            }
            _ => Ok(()),
        }
    }
}

/// A part of a file to be read, of several at once.
pub struct Piece<'a> {
    pub offset: u64,
    pub bytes: &'a mut [u8],
    /// How much was read; less than asked for only at the end of the file.
    pub read: usize,
}

enum Way {
    Mounted(Box<Channel>),
    Direct(DirectFile),
}

/// An open file. Several threads may use it at once.
pub struct File {
    way: Way,
}

impl File {
    /// Opens a file of a mounted pool, by its path in the mount.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<File, Error> {
        options.check()?;
        let path = path.as_ref();
        let mut open = std::fs::OpenOptions::new();
        open.read(options.read).write(options.write).create(options.create).truncate(options.truncate);
        let file = open.mode(options.mode).open(path);
        File::from_file(file.map_err(|source| Error::Open { path: path.to_owned(), source })?)
    }

    /// Goes on with a file that was opened through the mount.
    pub fn from_file(file: std::fs::File) -> Result<File, Error> {
        Ok(File { way: Way::Mounted(Box::new(Channel::open(file)?)) })
    }

    pub(crate) fn direct(file: DirectFile) -> File {
        File { way: Way::Direct(file) }
    }

    /// Reads; fewer bytes than asked for only at the end of the file. Long reads overlap on the devices.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error> {
        match &self.way {
            Way::Mounted(channel) => channel.read(bytes, offset),
            Way::Direct(file) => file.read(bytes, offset),
        }
    }

    /// Reads several parts, many of them at a time.
    pub fn read_many(&self, pieces: &mut [Piece<'_>]) -> Result<(), Error> {
        match &self.way {
            Way::Mounted(channel) => channel.read_many(pieces),
            Way::Direct(file) => file.read_many(pieces),
        }
    }

    /// Writes; tells how much. Less than all only where the pool or a quota got full on the way; an error means that nothing at
    /// `offset` was written, though of a write of more than 1 MiB some of what is behind may have been.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        match &self.way {
            Way::Mounted(channel) => channel.write(bytes, offset),
            Way::Direct(file) => file.write(bytes, offset),
        }
    }

    /// Makes everything that was written before durable.
    pub fn sync(&self) -> Result<(), Error> {
        match &self.way {
            Way::Mounted(channel) => channel.sync(),
            Way::Direct(file) => file.sync(),
        }
    }

    /// Length in bytes.
    pub fn size(&self) -> Result<u64, Error> {
        match &self.way {
            Way::Mounted(channel) => channel.size(),
            Way::Direct(file) => file.size(),
        }
    }

    /// Ends the use of the file. What was written and not synced becomes durable as with close(2): later. Dropping does the same.
    pub fn close(self) -> Result<(), Error> {
        match self.way {
            // The daemon closes when the socket ends.
            Way::Mounted(channel) => {
                drop(channel);
                Ok(())
            }
            Way::Direct(file) => file.close(),
        }
    }
}
