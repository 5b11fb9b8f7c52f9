//! The file system and the reference model side by side, given the same calls.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_model::{Caller as ModelCaller, Kind, Model};
use stere_naming::{
    Caller, Error, FileSystem, Handle, Io, OpenFlags, ROOT, SetAttributes, SetMode, SetTime, Timestamp, Whence,
};

use super::Rig;
use super::calls::Call;

/// Both file systems, and which of their inodes are the same.
pub struct Pair {
    pub rig: Rig,
    pub fs: Option<FileSystem>,
    pub model: Model,
    /// From the model's number to the file system's.
    pub numbers: BTreeMap<u64, u64>,
    pub handles: Vec<(u64, Handle)>,
    pub now: i64,
}

const NAMES: [&[u8]; 5] = [b"a", b"b", b"a longer name", b"\xff\xfe\n", b"e"];
const MODES: [u32; 11] = [0, 1, 3, 0x10, 0x11, 0x08, 0x20, 0x40, 3, 0x09, 2];

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}

impl Pair {
    /// A power cut: of what was not flushed the devices keep what a random number says.
    pub fn lose_power(&mut self, kept: u64) {
        let fs = self.fs.take().expect("mounted");
        let mut state = kept | 1;
        self.fs = Some(self.rig.crash(fs, |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 63 == 1
        }));
    }

    pub fn new() -> Pair {
        let (rig, fs) = Rig::new(2, 256 << 20);
        let numbers = BTreeMap::from([(stere_model::ROOT, ROOT)]);
        Pair { rig, fs: Some(fs), model: Model::new(1), numbers, handles: Vec::new(), now: 1 }
    }

    pub fn fs(&self) -> &FileSystem {
        self.fs.as_ref().expect("mounted")
    }

    pub fn caller<'a>(&self, io: Io<'a>) -> Caller<'a> {
        let now = Timestamp { seconds: self.now, nanoseconds: 0 };
        Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io, process: 0, request: None }
    }

    fn model_caller(&self) -> ModelCaller {
        ModelCaller { uid: 0, gid: 0, umask: 0o022, now: self.now }
    }

    /// Makes a call without waiting, and again with waiting if that is not possible.
    pub fn ask<T>(&self, call: impl Fn(&FileSystem, &Caller<'_>) -> Result<T, Error>) -> Result<T, i32> {
        match call(self.fs(), &self.caller(Io::NON_BLOCKING)) {
            Err(Error::WouldBlock) => call(self.fs(), &self.caller(Io::BLOCKING)).map_err(|error| error.errno()),
            outcome => outcome.map_err(|error| error.errno()),
        }
    }

    pub fn number(&self, inode: u64) -> u64 {
        self.numbers[&inode]
    }

    pub fn directory(&self, pick: u8) -> u64 {
        let directories: Vec<u64> = self
            .model
            .inodes()
            .filter(|(_, inode)| matches!(inode.kind, Kind::Directory(_)))
            .map(|(number, _)| number)
            .collect();
        directories[usize::from(pick) % directories.len()]
    }

    fn inode(&self, pick: u8) -> u64 {
        let inodes: Vec<u64> = self.model.inodes().map(|(number, _)| number).collect();
        inodes[usize::from(pick) % inodes.len()]
    }

    /// Prefers regular files.
    fn file(&self, pick: u8) -> u64 {
        let files: Vec<u64> = self
            .model
            .inodes()
            .filter(|(_, inode)| matches!(inode.kind, Kind::File(_)))
            .map(|(number, _)| number)
            .collect();
        if files.is_empty() || pick > 245 { self.inode(pick) } else { files[usize::from(pick) % files.len()] }
    }

    fn made(&mut self, model: Result<u64, i32>, ours: Result<u64, i32>) {
        match (model, ours) {
            (Ok(inode), Ok(number)) => {
                self.numbers.insert(inode, number);
            }
            (model, ours) => assert_eq!(model.map(|_| ()), ours.map(|_| ())),
        }
    }

    pub fn run(&mut self, call: &Call) {
        self.now += 1;
        match call {
            Call::Create { .. }
            | Call::Mkdir { .. }
            | Call::Symlink { .. }
            | Call::Mknod { .. }
            | Call::Tmpfile { .. }
            | Call::Link { .. }
            | Call::Unlink { .. }
            | Call::Rmdir { .. }
            | Call::Rename { .. } => self.run_on_names(call),
            Call::Write { .. }
            | Call::Read { .. }
            | Call::Truncate { .. }
            | Call::Fallocate { .. }
            | Call::Copy { .. }
            | Call::Seek { .. } => self.run_on_content(call),
            Call::Chmod { .. }
            | Call::Chown { .. }
            | Call::SetMtime { .. }
            | Call::SetXattr { .. }
            | Call::RemoveXattr { .. } => self.run_on_attributes(call),
            _ => self.run_on_handles(call),
        }
    }

    fn run_on_names(&mut self, call: &Call) {
        let c = self.model_caller();
        let name = |pick: &u8| NAMES[usize::from(*pick) % NAMES.len()];
        match call {
            Call::Create { directory, name: n, mode } => {
                let d = self.directory(*directory);
                let (at, mode) = (self.number(d), u32::from(*mode) & 0o7777);
                let flags = OpenFlags { write: true, exclusive: true, truncate: false, read: false };
                let ours = self.ask(|fs, c| fs.create(c, at, name(n), mode, flags));
                let model = self.model.create(&c, d, name(n), mode);
                if let (Ok(inode), Ok((_, handle))) = (model, &ours) {
                    self.model.open(inode).expect("just made");
                    self.handles.push((inode, *handle));
                }
                self.made(model, ours.map(|(attributes, _)| attributes.inode));
            }
            Call::Mkdir { directory, name: n, mode } => {
                let d = self.directory(*directory);
                let (at, mode) = (self.number(d), u32::from(*mode) & 0o7777);
                let ours = self.ask(|fs, c| fs.mkdir(c, at, name(n), mode));
                let model = self.model.mkdir(&c, d, name(n), mode);
                self.made(model, ours.map(|attributes| attributes.inode));
            }
            Call::Symlink { directory, name: n } => {
                let d = self.directory(*directory);
                let at = self.number(d);
                let ours = self.ask(|fs, c| fs.symlink(c, at, name(n), b"some/where"));
                let model = self.model.symlink(&c, d, name(n), b"some/where");
                self.made(model, ours.map(|attributes| attributes.inode));
            }
            Call::Mknod { directory, name: n } => {
                let d = self.directory(*directory);
                let at = self.number(d);
                let ours = self.ask(|fs, c| fs.mknod(c, at, name(n), 0o020600, 77));
                let model = self.model.mknod(&c, d, name(n), 0o020600, 77);
                self.made(model, ours.map(|attributes| attributes.inode));
            }
            Call::Tmpfile { directory } => {
                let d = self.directory(*directory);
                let at = self.number(d);
                let ours = self.ask(|fs, c| fs.tmpfile(c, at, 0o600, OpenFlags::default()));
                let model = self.model.tmpfile(&c, d, 0o600);
                if let (Ok(inode), Ok((_, handle))) = (model, &ours) {
                    self.handles.push((inode, *handle));
                }
                self.made(model, ours.map(|(attributes, _)| attributes.inode));
            }
            _ => self.run_on_old_names(call),
        }
    }

    fn run_on_old_names(&mut self, call: &Call) {
        let c = self.model_caller();
        let name = |pick: &u8| NAMES[usize::from(*pick) % NAMES.len()];
        match call {
            Call::Link { inode, directory, name: n } => {
                let (inode, d) = (self.inode(*inode), self.directory(*directory));
                let (number, at) = (self.number(inode), self.number(d));
                let ours = self.ask(|fs, c| fs.link(c, number, at, name(n)));
                assert_eq!(self.model.link(&c, inode, d, name(n)), ours.map(|_| ()));
            }
            Call::Unlink { directory, name: n } => {
                let d = self.directory(*directory);
                let at = self.number(d);
                let ours = self.ask(|fs, c| fs.unlink(c, at, name(n)));
                assert_eq!(self.model.unlink(&c, d, name(n)), ours);
            }
            Call::Rmdir { directory, name: n } => {
                let d = self.directory(*directory);
                let at = self.number(d);
                let ours = self.ask(|fs, c| fs.rmdir(c, at, name(n)));
                assert_eq!(self.model.rmdir(&c, d, name(n)), ours);
            }
            Call::Rename { directory, name: n, new_directory, new_name, flags } => {
                let (d, e) = (self.directory(*directory), self.directory(*new_directory));
                let (from, to) = (self.number(d), self.number(e));
                let flags = u32::from(*flags).saturating_sub(2);
                let ours = self.ask(|fs, c| fs.rename(c, from, name(n), to, name(new_name), flags));
                assert_eq!(self.model.rename(&c, d, name(n), e, name(new_name), flags), ours);
            }
            _ => unreachable!("not a call on names"),
        }
    }

    fn run_on_content(&mut self, call: &Call) {
        let c = self.model_caller();
        match call {
            Call::Write { inode, offset, length, seed } => {
                let inode = self.file(*inode);
                let (number, data) = (self.number(inode), bytes(*seed, *length));
                let ours = self.ask(|fs, c| fs.write(c, number, *offset, &data, false));
                assert_eq!(self.model.write(&c, inode, *offset, &data), ours);
            }
            Call::Read { inode, offset, length } => {
                let inode = self.file(*inode);
                let number = self.number(inode);
                let ours = self.ask(|fs, c| {
                    let mut out = vec![0xee; *length];
                    let read = fs.read(c, number, *offset, &mut out)?;
                    out.truncate(read);
                    Ok(out)
                });
                assert!(self.model.read(inode, *offset, *length) == ours, "bytes at {offset} of inode {number}");
            }
            Call::Truncate { inode, size } => {
                let inode = self.file(*inode);
                let number = self.number(inode);
                let set = SetAttributes { size: Some(*size), ..SetAttributes::default() };
                let ours = self.ask(|fs, c| fs.setattr(c, number, &set));
                assert_eq!(self.model.truncate(&c, inode, *size), ours.map(|_| ()));
            }
            Call::Fallocate { inode, offset, length, mode } => {
                let inode = self.file(*inode);
                let number = self.number(inode);
                let mode = MODES[usize::from(*mode) % MODES.len()];
                // Room that is set aside counts: keep it small.
                let (offset, length) = (offset % (1 << 20), length % (1 << 20));
                let ours = self.ask(|fs, c| fs.fallocate(c, number, offset, length, mode));
                assert_eq!(self.model.fallocate(&c, inode, offset, length, mode), ours);
            }
            Call::Copy { source, from, target, to, length } => {
                let (source, target) = (self.file(*source), self.file(*target));
                let (number, other) = (self.number(source), self.number(target));
                let ours = self.ask(|fs, c| fs.copy_range(c, number, *from, other, *to, *length));
                assert_eq!(self.model.copy_range(&c, source, *from, target, *to, *length), ours);
            }
            Call::Seek { inode, offset } => {
                let inode = self.file(*inode);
                self.check_seek(inode, *offset);
            }
            _ => unreachable!("not a call on content"),
        }
    }

    /// Holes may be data that is zero, but never the other way round.
    fn check_seek(&self, inode: u64, offset: u64) {
        let Ok(Kind::File(content)) = self.model.inode(inode).map(|inode| &inode.kind) else { return };
        let number = self.number(inode);
        let data = self.ask(|fs, c| fs.seek(c, number, offset, Whence::Data));
        let hole = self.ask(|fs, c| fs.seek(c, number, offset, Whence::Hole));
        if offset >= content.size() {
            assert_eq!((data, hole), (Err(6), Err(6)));
            return;
        }
        match data {
            Ok(at) => assert!(at >= offset && at < content.size() && content.is_zero(offset, at)),
            Err(errno) => assert!(errno == 6 && content.is_zero(offset, content.size())),
        }
        let hole = hole.expect("the end is a hole");
        assert!(hole >= offset && hole <= content.size());
    }

    fn run_on_attributes(&mut self, call: &Call) {
        let c = self.model_caller();
        let mut set = SetAttributes::default();
        let mut model = stere_model::SetAttributes::default();
        let inode = match call {
            Call::Chmod { inode, mode } => {
                set.mode = Some(u32::from(*mode) & 0o7777);
                model.mode = set.mode;
                self.inode(*inode)
            }
            Call::Chown { inode, uid, gid } => {
                set.uid = (*uid < 200).then_some(u32::from(*uid));
                set.gid = Some(u32::from(*gid));
                (model.uid, model.gid) = (set.uid, set.gid);
                self.inode(*inode)
            }
            Call::SetMtime { inode, time } => {
                set.mtime = Some(SetTime::At(Timestamp { seconds: i64::from(*time) - 100, nanoseconds: 0 }));
                model.mtime = Some(i64::from(*time) - 100);
                self.inode(*inode)
            }
            Call::SetXattr { inode, name, length, mode } => {
                return self.run_set_xattr(*inode, *name, *length, *mode);
            }
            Call::RemoveXattr { inode, name } => {
                let inode = self.inode(*inode);
                let number = self.number(inode);
                let name = format!("user.{}", name % 4);
                let ours = self.ask(|fs, c| fs.removexattr(c, number, name.as_bytes()));
                assert_eq!(self.model.removexattr(&c, inode, name.as_bytes()), ours);
                return;
            }
            _ => unreachable!("not a call on attributes"),
        };
        let number = self.number(inode);
        let ours = self.ask(|fs, c| fs.setattr(c, number, &set));
        assert_eq!(self.model.setattr(&c, inode, &model), ours.map(|_| ()));
    }

    fn run_set_xattr(&mut self, inode: u8, name: u8, length: usize, mode: u8) {
        let c = self.model_caller();
        let inode = self.inode(inode);
        let number = self.number(inode);
        let name = format!("user.{}", name % 4);
        let value = bytes(name.as_bytes()[5], length);
        let (mode, model) = match mode % 3 {
            0 => (SetMode::Any, stere_model::XattrMode::Any),
            1 => (SetMode::Create, stere_model::XattrMode::Create),
            _ => (SetMode::Replace, stere_model::XattrMode::Replace),
        };
        let ours = self.ask(|fs, c| fs.setxattr(c, number, name.as_bytes(), &value, mode, false));
        assert_eq!(self.model.setxattr(&c, inode, name.as_bytes(), &value, model), ours);
    }

    fn run_on_handles(&mut self, call: &Call) {
        match call {
            Call::Open { inode } => {
                let inode = self.inode(*inode);
                let number = self.number(inode);
                let handle = self.ask(|fs, c| fs.open(c, number, OpenFlags::default())).expect("it exists");
                self.model.open(inode).expect("it exists");
                self.handles.push((inode, handle));
            }
            Call::Release { inode } => {
                if !self.handles.is_empty() {
                    let at = usize::from(*inode) % self.handles.len();
                    let (inode, handle) = self.handles.swap_remove(at);
                    let number = self.number(inode);
                    self.ask(|fs, c| fs.release(c, number, handle)).expect("closing");
                    self.model.release(inode).expect("it is open");
                }
            }
            Call::Fsync { inode } => {
                let number = self.number(self.inode(*inode));
                self.ask(|fs, c| fs.fsync(c, number, false)).expect("fsync");
            }
            Call::Step => {
                self.ask(|fs, c| fs.step(c, 3)).expect("a step");
            }
            Call::Commit => self.fs().store().commit(Io::BLOCKING).expect("a commit"),
            Call::Sync => self.ask(|fs, c| fs.syncfs(c)).expect("sync"),
            Call::Remount { power_loss } => {
                self.ask(|fs, c| fs.syncfs(c)).expect("sync");
                let fs = self.fs.take().expect("mounted");
                self.fs = Some(self.rig.reopen(fs, *power_loss));
                self.handles.clear();
                self.model.release_all();
                while self.ask(|fs, c| fs.step(c, 100)).expect("a step") {}
                self.check_everything();
            }
            _ => unreachable!("not a call on handles"),
        }
    }

    /// Every count and reference on media is exact.
    pub fn check_media(&self) {
        let store = self.fs().store();
        let report = store.checker.check(true).expect("the check runs");
        assert_eq!(report.findings, []);
        assert_eq!(stere_naming::check(store).expect("the check runs"), []);
    }

    pub fn check_attributes(&self) {
        for (inode, wanted) in self.model.inodes() {
            let number = self.number(inode);
            let got = self.ask(|fs, c| fs.getattr(c, number)).expect("the inode exists");
            let size = match &wanted.kind {
                Kind::File(content) => content.size(),
                Kind::Symlink(target) => target.len() as u64,
                Kind::Directory(_) => got.size,
                Kind::Special => 0,
            };
            assert_eq!(
                (got.mode, got.uid, got.gid, got.nlink, got.rdev, got.size, got.mtime.seconds, got.ctime.seconds),
                (wanted.mode, wanted.uid, wanted.gid, wanted.nlink, wanted.rdev, size, wanted.mtime, wanted.ctime),
                "attributes of inode {number}"
            );
        }
    }

    pub fn check_everything(&self) {
        self.check_attributes();
        self.check_media();
        for (inode, wanted) in self.model.inodes() {
            let number = self.number(inode);
            match &wanted.kind {
                Kind::File(content) => self.check_content(number, content),
                Kind::Directory(names) => self.check_names(number, names),
                Kind::Symlink(target) => {
                    assert_eq!(&self.ask(|fs, c| fs.readlink(c, number)).expect("a link"), target);
                }
                Kind::Special => {}
            }
            let listed = self.ask(|fs, c| fs.listxattr(c, number)).expect("a list");
            assert_eq!(listed, wanted.xattrs.keys().cloned().collect::<Vec<_>>());
            for (name, value) in &wanted.xattrs {
                assert!(&self.ask(|fs, c| fs.getxattr(c, number, name)).expect("an attribute") == value);
            }
        }
    }

    fn check_content(&self, number: u64, content: &stere_model::Content) {
        // Of huge sparse files, both ends.
        let pieces = [(0, content.size().min(2 << 20)), (content.size().saturating_sub(20_000), 30_000)];
        for (offset, length) in pieces {
            let got = self.ask(|fs, c| {
                let mut out = vec![0xee; length as usize];
                let read = fs.read(c, number, offset, &mut out)?;
                out.truncate(read);
                Ok(out)
            });
            let wanted = content.read(offset, length as usize);
            let got = got.expect("a read");
            let different = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
            assert!(
                got == wanted,
                "content of inode {number} at {offset}: {different:?}, {} {}",
                got.len(),
                wanted.len()
            );
        }
    }

    fn check_names(&self, number: u64, names: &[(Vec<u8>, u64)]) {
        let mut got = Vec::new();
        self.ask(|fs, c| {
            fs.readdir(c, number, 2, true, &mut |entry| {
                got_push(entry, &mut Vec::new());
                ControlFlow::Continue(())
            })
        })
        .expect("a listing");
        // Again piece by piece, going on from cookies.
        let mut cookie = 2;
        loop {
            let mut piece = Vec::new();
            let mut next = cookie;
            self.fs()
                .readdir(&self.caller(Io::BLOCKING), number, cookie, false, &mut |entry| {
                    piece.push((entry.name.to_vec(), entry.inode));
                    next = entry.next_cookie;
                    if piece.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
                .expect("a listing");
            if piece.is_empty() {
                break;
            }
            got.extend(piece);
            cookie = next;
        }
        let wanted: Vec<_> = names.iter().map(|(name, inode)| (name.clone(), self.number(*inode))).collect();
        assert_eq!(got, wanted, "names of directory {number}");
        for (name, inode) in wanted {
            let found = self.ask(|fs, c| fs.lookup(c, number, &name)).expect("a listed name is found");
            assert_eq!(found.inode, inode);
        }
    }
}

fn got_push(entry: &stere_naming::DirectoryEntry<'_>, into: &mut Vec<u64>) {
    assert!(entry.attributes.is_some_and(|attributes| attributes.inode == entry.inode));
    into.push(entry.inode);
}
