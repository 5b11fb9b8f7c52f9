//! Follows up what was changed: tells plugins, which note something with the file, and copies files to a second directory.
//!
//! Copies are made of what lies in the source, in its form: what is encrypted there is so in the copy, and the copy of a source is one
//! that can be mounted like it. What was removed keeps its last copy. Invariant: a copy gets its name when it is whole and durable.
//! Read next: `queue.rs`, `docs/design/stack.md`.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stere_plugin::{Event, EventKind, Member, Stack};

use crate::coder::Coder;
use crate::error::Error;
use crate::key::KEY_FILE_NAME;
use crate::queue::Queue;
use crate::stacked::{Found, Stacked, find};
use crate::way::Rules;

/// Begins the name of a copy that is not whole yet.
const UNFINISHED: &str = ".stere-stack-copy";

/// What follows a source up.
pub struct Follower {
    pub source: PathBuf,
    pub rules: Rules,
    pub coder: Arc<Coder>,
    pub queue: Arc<Queue>,
    /// Where files with `backup=yes` are copied to.
    pub backup: Option<PathBuf>,
}

impl Follower {
    /// Serves what is due; `is_stopped` is asked between pieces. Tells how many files were served.
    pub fn step(&self, now_seconds: i64, is_stopped: &dyn Fn() -> bool) -> usize {
        let (mut served, mut behind) = (0, Vec::new());
        while let Some((path, waiting)) = self.queue.due(&behind, now_seconds) {
            assert!(path > behind, "a file is served once in a step");
            if is_stopped() {
                break;
            }
            let outcome = self.serve(&path, is_stopped).map_err(|error| error.to_string());
            if is_stopped() && outcome.is_err() {
                break;
            }
            self.queue.served(&path, &waiting, outcome, now_seconds);
            (served, behind) = (served + 1, path);
        }
        served
    }

    fn serve(&self, path: &[u8], is_stopped: &dyn Fn() -> bool) -> Result<(), Error> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let Some(follows) = self.rules.follows(name, path) else { return Ok(()) };
        let whole = self.source.join(OsStr::from_bytes(path));
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&whole) {
            Ok(file) => Some(file).filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file())),
            // A link, or nothing any more.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => None,
            Err(error) => return Err(error.into()),
        };
        if !follows.plugins.is_empty() {
            self.tell(&whole, name, file.as_ref(), &follows.plugins, is_stopped)?;
        }
        match (&self.backup, file) {
            (Some(backup), Some(file)) if follows.backup => self.copy(backup, path, &file, is_stopped),
            _ => Ok(()),
        }
    }

    fn tell(
        &self,
        whole: &Path,
        name: &[u8],
        file: Option<&File>,
        plugins: &[(String, String)],
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let member = |(name, parameters): &(String, String)| {
            let plugin = self.coder.plugins.get(name).cloned().ok_or_else(|| Error::NoPlugin(name.clone()))?;
            Ok(Member { name: name.clone(), parameters: parameters.clone(), plugin })
        };
        let stack = Stack { members: plugins.iter().map(member).collect::<Result<_, Error>>()? };
        let mut content = file.map(|file| Content::open(file, &self.coder)).transpose()?;
        let kind = if file.is_some() { EventKind::Close } else { EventKind::Delete };
        let owner = file.map(File::metadata).transpose()?.map_or((0, 0), |metadata| (metadata.uid(), metadata.gid()));
        let size = content.as_ref().map_or(0, Content::size);
        let (user, group) = owner;
        let event = Event { kind, user, group, offset: 0, length: size, size, name, new_name: b"" };
        let mut read = |offset: u64, out: &mut [u8]| match &mut content {
            _ if is_stopped() => Err("it is being unmounted".to_owned()),
            Some(content) => content.read(offset, out).map_err(|error| error.to_string()),
            None => Err("the file was removed".to_owned()),
        };
        for (plugin, note) in stack.follow(&event, &mut read)? {
            if file.is_some() {
                let name = format!("user.plugin.{plugin}");
                rustix::fs::setxattr(whole, name.as_str(), &note, rustix::fs::XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    fn copy(&self, backup: &Path, path: &[u8], file: &File, is_stopped: &dyn Fn() -> bool) -> Result<(), Error> {
        if self.coder.key.is_some() {
            self.copy_key(backup)?;
        }
        let target = backup.join(OsStr::from_bytes(path));
        let directory = target.parent().unwrap_or(backup);
        fs::create_dir_all(directory)?;
        let unfinished = directory.join(UNFINISHED);
        let before = file.metadata()?;
        let new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        let (mut offset, mut piece) = (0, vec![0; 1 << 20]);
        loop {
            let length = file.read_at(&mut piece, offset)?;
            if length == 0 {
                break;
            }
            if is_stopped() {
                return Err(io::Error::from(io::ErrorKind::Interrupted).into());
            }
            // Zeros stay holes.
            if piece[..length].iter().any(|byte| *byte != 0) {
                new.write_all_at(&piece[..length], offset)?;
            }
            offset += length as u64;
        }
        new.set_len(offset)?;
        let after = file.metadata()?;
        let looks = |one: &fs::Metadata| (one.len(), one.mtime(), one.mtime_nsec());
        if looks(&before) != looks(&after) {
            return Err(io::Error::other("it was changed while it was copied").into());
        }
        new.set_permissions(before.permissions())?;
        new.set_modified(before.modified()?)?;
        new.sync_all()?;
        fs::rename(&unfinished, &target)?;
        Ok(File::open(directory)?.sync_all()?)
    }

    /// Copies of what is encrypted are of use only with the key, which is wrapped.
    fn copy_key(&self, backup: &Path) -> io::Result<()> {
        let target = backup.join(KEY_FILE_NAME);
        if target.exists() {
            return Ok(());
        }
        // Half a key would stay one, for it is copied once.
        let unfinished = backup.join(UNFINISHED);
        let mut new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        io::Write::write_all(&mut new, &fs::read(self.source.join(KEY_FILE_NAME))?)?;
        new.sync_all()?;
        fs::rename(&unfinished, &target)?;
        File::open(backup)?.sync_all()
    }
}

/// Content of a file, whatever its form.
enum Content {
    Plain(File, u64),
    Stacked(Box<Stacked>),
}

impl Content {
    fn open(file: &File, coder: &Arc<Coder>) -> Result<Content, Error> {
        let own = file.try_clone()?;
        Ok(match find(file)? {
            Found::Plain => Content::Plain(own, file.metadata()?.len()),
            Found::Stacked { .. } => Content::Stacked(Box::new(Stacked::open(own, coder.clone())?)),
        })
    }

    fn size(&self) -> u64 {
        match self {
            Content::Plain(_, size) => *size,
            Content::Stacked(stacked) => stacked.size(),
        }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        match self {
            Content::Plain(file, _) => Ok(file.read_at(out, offset)?),
            Content::Stacked(stacked) => stacked.read(offset, out),
        }
    }
}
