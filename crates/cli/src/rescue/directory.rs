//! Files, directories and all else made in a directory of this machine.
//!
//! Names come from damaged media and may be anything: everything is made relative to an open directory, nothing that is a link
//! is ever followed, and nothing that is there is overwritten. Attributes come last: owner, then mode (a change of owner clears
//! bits of it), extended attributes, times; those that give rights only if they were asked for. The directory that is copied to keeps its own.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use stere_format::Timestamp;
use stere_rescue::{Attributes, Sink, SinkError, Told};

use crate::rescue::preserve::Preserved;
use stere_machine::error::{At, Result};

pub struct DirectorySink {
    root: OwnedFd,
    current: OwnedFd,
    depth: usize,
    open: Option<File>,
    is_root_user: bool,
    preserved: Preserved,
    /// Files that lost set-id bits or attributes that are trusted, that had other owners, and nodes that were not made.
    cut: u64,
    disowned: u64,
    nodes: u64,
}

type Done = std::result::Result<(), SinkError>;

fn failed(what: &str) -> impl Fn(Errno) -> SinkError + '_ {
    move |errno| match errno {
        Errno::EXIST => SinkError::Exists,
        Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO => SinkError::Stop(format!("{what}: {errno}")),
        _ => SinkError::Failed(format!("{what}: {errno}")),
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}

fn timestamps(attributes: &Attributes) -> Timestamps {
    Timestamps { last_access: timespec(attributes.atime), last_modification: timespec(attributes.mtime) }
}

impl DirectorySink {
    pub fn open(path: &Path, preserved: Preserved) -> Result<DirectorySink> {
        let open = || rustix::fs::openat(CWD, path, directory_flags() - OFlags::NOFOLLOW, Mode::empty());
        let (root, current) = (open().at("open this directory", path)?, open().at("open this directory", path)?);
        let is_root_user = rustix::process::geteuid().is_root();
        let (depth, open, cut, disowned, nodes) = (0, None, 0, 0, 0);
        Ok(DirectorySink { root, current, depth, open, is_root_user, preserved, cut, disowned, nodes })
    }

    /// What was not restored because nobody asked for it, in words.
    pub fn left_out(&self) -> Vec<String> {
        let lines = [
            (self.cut, "set-user-ID and set-group-ID bits, capabilities or trusted attributes", "setid"),
            (self.disowned, "owners and access control lists", "owners"),
            (self.nodes, "device nodes", "devices"),
        ];
        let told = lines.into_iter().filter(|(count, ..)| *count > 0);
        told.map(|(count, what, word)| {
            let files = if count == 1 { "1 file".into() } else { format!("{count} files") };
            format!("{what} of {files}; --preserve={word} restores them, if you trust whoever made the pool")
        })
        .collect()
    }

    /// Notes what these attributes lose.
    fn note(&mut self, attributes: &Attributes) {
        let kept = self.preserved;
        let is_trusted = |(name, _): &&(Vec<u8>, Vec<u8>)| !name.starts_with(b"system.") && !kept.keeps(name);
        let is_cut = kept.cuts(attributes.mode) || attributes.xattrs.iter().any(|xattr| is_trusted(&xattr));
        self.cut += u64::from(is_cut);
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let has_list = attributes.xattrs.iter().any(|(name, _)| name.starts_with(b"system."));
        let is_disowned = self.is_root_user && !kept.owners && ((attributes.uid, attributes.gid) != own || has_list);
        self.disowned += u64::from(is_disowned);
    }

    /// Sets all attributes of something open; tries them all and tells the first that failed.
    fn set(&self, fd: &impl std::os::fd::AsFd, attributes: &Attributes) -> Done {
        let mut outcome = Ok(());
        let mut try_it = |done: Done| {
            if outcome.is_ok() {
                outcome = done;
            }
        };
        if self.is_root_user && self.preserved.owners {
            let (owner, group) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
            try_it(rustix::fs::fchown(fd, Some(owner), Some(group)).map_err(failed("its owner cannot be set")));
        }
        try_it(rustix::fs::fchmod(fd, self.permissions(attributes)).map_err(failed("its mode cannot be set")));
        for (name, value) in attributes.xattrs.iter().filter(|(name, _)| self.preserved.keeps(name)) {
            let what = format!("its attribute {} cannot be set", String::from_utf8_lossy(name));
            let set = rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty());
            try_it(set.map_err(|errno| SinkError::Failed(format!("{what}: {errno}"))));
        }
        try_it(rustix::fs::futimens(fd, &timestamps(attributes)).map_err(failed("its times cannot be set")));
        outcome
    }

    /// The same for a name in the current directory that cannot be opened: a link or a special file.
    fn set_by_name(&self, name: &[u8], attributes: &Attributes, is_link: bool) -> Done {
        let current = &self.current;
        if self.is_root_user && self.preserved.owners {
            let (owner, group) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
            rustix::fs::chownat(current, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed("its owner cannot be set"))?;
        }
        if !is_link {
            rustix::fs::chmodat(current, name, self.permissions(attributes), AtFlags::empty())
                .map_err(failed("its mode cannot be set"))?;
        }
        let path = [format!("/proc/self/fd/{}/", current.as_raw_fd()).as_bytes(), name].concat();
        for (attribute, value) in attributes.xattrs.iter().filter(|(name, _)| self.preserved.keeps(name)) {
            rustix::fs::lsetxattr(path.as_slice(), attribute.as_slice(), value, XattrFlags::empty())
                .map_err(failed("an attribute of it cannot be set"))?;
        }
        rustix::fs::utimensat(current, name, &timestamps(attributes), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed("its times cannot be set"))
    }

    fn permissions(&self, attributes: &Attributes) -> Mode {
        Mode::from_raw_mode(self.preserved.mode(attributes.mode))
    }

    /// The directory of a path that was made before, and its last name. No link is followed.
    fn find<'a>(&self, path: &'a [u8]) -> std::result::Result<(OwnedFd, &'a [u8]), SinkError> {
        let mut names: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b"..").collect();
        let last = names.pop().ok_or_else(|| SinkError::Failed("it has no name".into()))?;
        let mut directory = rustix::io::dup(&self.root).map_err(failed("cannot go back to it"))?;
        for name in names {
            directory = rustix::fs::openat(&directory, name, directory_flags(), Mode::empty())
                .map_err(failed("cannot go back to it"))?;
        }
        Ok((directory, last))
    }
}

impl Sink for DirectorySink {
    fn enter(&mut self, name: &[u8]) -> Done {
        let what = "the directory cannot be made";
        rustix::fs::mkdirat(&self.current, name, Mode::RWXU).map_err(failed(what))?;
        let opened = rustix::fs::openat(&self.current, name, directory_flags(), Mode::empty());
        self.current = opened.map_err(failed(what))?;
        self.depth += 1;
        Ok(())
    }

    fn leave(&mut self, attributes: Option<&Attributes>) -> Done {
        // Before the directory gets its mode, which may forbid to look into it.
        let above = match self.depth {
            0 => None,
            _ => Some(rustix::fs::openat(&self.current, "..", directory_flags(), Mode::empty())),
        };
        // The directory that is copied to is not the pool's: it stays as it is.
        let Some(above) = above else { return Ok(()) };
        let outcome = attributes.map_or(Ok(()), |attributes| self.set(&self.current, attributes));
        attributes.into_iter().for_each(|attributes| self.note(attributes));
        // Without the way back nothing would lie where it belongs.
        self.current = above.map_err(|errno| SinkError::Stop(format!("cannot go back to the parent: {errno}")))?;
        self.depth -= 1;
        outcome
    }

    fn create(&mut self, name: &[u8]) -> Done {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.current, name, flags, Mode::RUSR | Mode::WUSR);
        self.open = Some(File::from(file.map_err(failed("the file cannot be made"))?));
        Ok(())
    }

    fn reopen(&mut self, path: &[u8]) -> Done {
        let (directory, name) = self.find(path)?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
            Err(Errno::ACCESS) => {
                // It has its own mode by now, which is given back when it is closed again.
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::chmodat(&directory, name, mode, AtFlags::empty()).map_err(failed("cannot be reopened"))?;
                rustix::fs::openat(&directory, name, flags, Mode::empty())
            }
            other => other,
        };
        let file = File::from(opened.map_err(failed("the file cannot be reopened"))?);
        if file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            return Err(SinkError::Failed("it is no file".into()));
        }
        self.open = Some(file);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Done {
        let Some(file) = &self.open else { return Err(SinkError::Failed("no file is open".into())) };
        file.write_all_at(bytes, offset).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
            failed("the file cannot be written")(errno)
        })
    }

    fn finish(&mut self, size: Option<u64>, attributes: Option<&Attributes>) -> Done {
        let Some(file) = self.open.take() else { return Err(SinkError::Failed("no file is open".into())) };
        let sized =
            size.map_or(Ok(()), |size| rustix::fs::ftruncate(&file, size).map_err(failed("it cannot get its size")));
        attributes.into_iter().for_each(|attributes| self.note(attributes));
        sized.and(attributes.map_or(Ok(()), |attributes| self.set(&file, attributes)))
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], attributes: &Attributes) -> Done {
        rustix::fs::symlinkat(target, &self.current, name).map_err(failed("the link cannot be made"))?;
        self.note(attributes);
        self.set_by_name(name, attributes, true)
    }

    fn special(&mut self, name: &[u8], rdev: u32, attributes: &Attributes) -> Done {
        let kind = rustix::fs::FileType::from_raw_mode(attributes.mode);
        if (kind.is_block_device() || kind.is_char_device()) && !self.preserved.devices {
            self.nodes += 1;
            return Err(SinkError::Failed("a device node, which is made only with --preserve=devices".into()));
        }
        self.note(attributes);
        rustix::fs::mknodat(&self.current, name, kind, Mode::RUSR | Mode::WUSR, rdev.into())
            .map_err(failed("the special file cannot be made (only root can make devices)"))?;
        self.set_by_name(name, attributes, false)
    }

    fn link(&mut self, existing: &[u8], name: &[u8]) -> Done {
        let (directory, from) = self.find(existing)?;
        rustix::fs::linkat(&directory, from, &self.current, name, AtFlags::empty())
            .map_err(failed("its other name cannot be made"))
    }

    fn told(&mut self, _: &Told<'_>) {}
}
