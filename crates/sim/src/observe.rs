//! Reads a whole mounted file system back into a model: every name, attribute and byte.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use stere_naming::{Caller, Error, FileSystem};

use crate::content::Content;
use crate::model::{Kind, Model, Node, ROOT};

/// What went wrong while looking.
#[derive(Debug)]
pub enum Trouble {
    /// A call failed; whether that may be depends on the faults.
    Call { what: String, errno: i32 },
    /// Two answers contradict one another.
    Contradiction(String),
}

fn call<T>(what: impl FnOnce() -> String, result: Result<T, Error>) -> Result<T, Trouble> {
    result.map_err(|error| Trouble::Call { what: format!("{}: {error}", what()), errno: error.errno() })
}

/// Reads a file from start to end.
pub fn read_file(files: &FileSystem, caller: &Caller<'_>, inode: u64) -> Result<Content, Trouble> {
    let size = call(|| format!("getattr of inode {inode}"), files.getattr(caller, inode))?.size;
    let mut content = Content::default();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        let length = call(|| format!("read of inode {inode} at {at}"), files.read(caller, inode, at, &mut buffer))?;
        if length == 0 {
            return Err(Trouble::Contradiction(format!("inode {inode} has size {size} but ends at {at} when read")));
        }
        write_without_zeros(&mut content, at, &buffer[..length]);
        at += length as u64;
    }
    content.grow(size);
    Ok(content)
}

/// Blocks of zeros stay away, so that the contents of sparse files stay small.
fn write_without_zeros(content: &mut Content, offset: u64, bytes: &[u8]) {
    for (index, piece) in bytes.chunks(4096).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            content.write(offset + index as u64 * 4096, piece);
        }
    }
}

/// An attribute as it stays: volumes that a file goes to are called otherwise once one of them is retired or removed.
pub fn lasting(name: &[u8], value: Vec<u8>) -> Vec<u8> {
    match name == crate::tertiary::TIER && value != b"none" {
        true => b"volumes".to_vec(),
        false => value,
    }
}

fn attributes(files: &FileSystem, caller: &Caller<'_>, inode: u64) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Trouble> {
    let mut attributes = BTreeMap::new();
    let listed = call(|| format!("listxattr of inode {inode}"), files.listxattr(caller, inode))?;
    // What is encrypted may change with a name, and what plugins note whenever they are told: for neither the model has a rule.
    let is_foreign = |name: &[u8]| name == crate::encryption::ATTRIBUTE || name == crate::followers::NOTE;
    for name in listed.into_iter().filter(|name| !is_foreign(name)) {
        let value = call(
            || format!("getxattr of inode {inode}, {}", String::from_utf8_lossy(&name)),
            files.getxattr(caller, inode, &name),
        )?;
        let value = lasting(&name, value);
        attributes.insert(name, value);
    }
    Ok(attributes)
}

/// The names of a directory, with what "." and ".." must say.
pub fn list(files: &FileSystem, caller: &Caller<'_>, inode: u64) -> Result<BTreeMap<Vec<u8>, u64>, Trouble> {
    let mut names = BTreeMap::new();
    let mut twice = None;
    let mut cookies = Vec::new();
    let outcome = files.readdir(caller, inode, 0, false, &mut |entry| {
        cookies.push(entry.next_cookie);
        if names.insert(entry.name.to_vec(), entry.inode).is_some() {
            twice = Some(entry.name.to_vec());
        }
        ControlFlow::Continue(())
    });
    call(|| format!("readdir of inode {inode}"), outcome)?;
    if let Some(name) = twice {
        return Err(Trouble::Contradiction(format!("inode {inode} lists {} twice", String::from_utf8_lossy(&name))));
    }
    if !cookies.is_sorted() {
        return Err(Trouble::Contradiction(format!("the cookies of inode {inode} do not grow: {cookies:?}")));
    }
    if names.remove(&b"."[..]) != Some(inode) || names.remove(&b".."[..]).is_none() {
        return Err(Trouble::Contradiction(format!("inode {inode} lists no or a wrong \".\" or \"..\"")));
    }
    Ok(names)
}

/// Reads everything that can be reached by name.
pub fn observe(files: &FileSystem, caller: &Caller<'_>) -> Result<Model, Trouble> {
    observe_with(files, caller, &|inode| read_file(files, caller, inode))
}

/// The same, where somebody else reads files.
pub fn observe_with(
    files: &FileSystem,
    caller: &Caller<'_>,
    read: &dyn Fn(u64) -> Result<Content, Trouble>,
) -> Result<Model, Trouble> {
    let mut model = Model { nodes: BTreeMap::new(), now_seconds: 0 };
    let mut left = vec![(ROOT, ROOT)];
    while let Some((inode, parent)) = left.pop() {
        if let Some(known) = model.nodes.get(&inode) {
            if matches!(known.kind, Kind::Directory(_)) {
                return Err(Trouble::Contradiction(format!("directory {inode} has two names")));
            }
            continue;
        }
        let seen = call(|| format!("getattr of inode {inode}"), files.getattr(caller, inode))?;
        let kind = match seen.mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File(Rc::new(read(inode)?)),
            libc::S_IFDIR => Kind::Directory(list(files, caller, inode)?),
            libc::S_IFLNK => Kind::Symlink(call(|| format!("readlink of {inode}"), files.readlink(caller, inode))?),
            libc::S_IFIFO => Kind::Fifo,
            other => return Err(Trouble::Contradiction(format!("inode {inode} has type {other:o}"))),
        };
        if let Kind::Directory(names) = &kind {
            for (name, number) in names {
                let what = || format!("lookup of a listed name {} in {inode}", String::from_utf8_lossy(name));
                let found = call(what, files.lookup(caller, inode, name))?;
                if found.inode != *number {
                    return Err(Trouble::Contradiction(format!("{}: another inode than listed", what())));
                }
                left.push((*number, inode));
            }
        }
        let mut node = Node::new(kind, seen.mode & 0o7777);
        node.nlink = seen.nlink;
        node.owner = (seen.uid, seen.gid);
        node.parent = parent;
        node.attributes = attributes(files, caller, inode)?;
        model.nodes.insert(inode, node);
    }
    Ok(model)
}
