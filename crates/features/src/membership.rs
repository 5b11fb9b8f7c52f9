//! For whom a file counts: its volume, its class, the directory above it. For those who count calls.
//!
//! Invariant: nothing here waits unless the caller may. Read next: the crate fuse's `io_profiles.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;

use stere_file::inode_if_any;
use stere_format::{Holder, Key};
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::rules::PolicyRules;
use stere_policy::Compression;
use stere_store::Io;

/// Of which volume, class and directory something is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Whose {
    /// 0 for none.
    pub volume: u32,
    /// Code of the class that holds for it.
    pub class: u8,
    /// A directory that it has a name in; of the root the root.
    pub parent: u64,
}

/// Tells for whom files count.
pub struct Membership {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
}

/// How new content of something is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredAs {
    pub record_bytes: u64,
    pub is_compressed: bool,
    /// Units of data and of parity, with the devices there are.
    pub data: u8,
    pub parity: u8,
}

impl Membership {
    /// How new content of an inode, or in a directory, is stored; none where it is gone.
    pub fn stored_as(&self, io: Io<'_>, inode: u64) -> Option<StoredAs> {
        let core = &self.core;
        let found = core.store.view(io, |view| {
            let Some(value) = inode_if_any(view, inode)? else { return Ok(None) };
            Ok::<_, Error>(Some(core.files.policies.effective(view, inode, &value)?))
        });
        let effective = found.ok().flatten()?;
        let scheme = core.files.policies.scheme_now(&effective);
        let (record_bytes, is_compressed) =
            (effective.wish.record.bytes(), effective.wish.compression != Compression::NONE);
        Some(StoredAs { record_bytes, is_compressed, data: scheme.data, parity: scheme.parity })
    }

    /// Of whom an inode is; none where it is gone, or that cannot be told without waiting.
    pub fn whose(&self, io: Io<'_>, inode: u64) -> Option<Whose> {
        let found = self.core.store.view(io, |view| {
            let Some(value) = inode_if_any(view, inode)? else { return Ok(None) };
            let effective = self.core.files.policies.effective(view, inode, &value)?;
            let class = effective.wish.class.code();
            Ok::<_, Error>(Some(Whose { volume: value.volume, class, parent: value.parent }))
        });
        found.ok().flatten()
    }

    /// Whether files may be of several classes or volumes: somebody named a class, or made a volume.
    pub fn has_classes_or_volumes(&self, io: Io<'_>) -> bool {
        let by_pool = self.rules.pool_rules();
        let by_pool = by_pool.is_some_and(|set| set.rules().iter().any(|rule| rule.own.class().is_some()));
        let classes = self.core.files.resolver().classes();
        let codes: Vec<u8> = classes.in_use().map(|(class, _)| class.code()).collect();
        let by_some = self.core.store.view(io, |view| {
            let mut is_any = false;
            let of_volumes = (Key::account(Holder::Volume, 0), Key::account(Holder::Volume, u32::MAX));
            let ends = |code: u8, of: fn(u8, u64) -> Key| (of(code, 0), of(code, u64::MAX));
            let of_classes =
                codes.iter().flat_map(|code| [ends(*code, Key::class_member), ends(*code, Key::class_rules)]);
            for (from, to) in of_classes.chain([of_volumes]) {
                view.scan(from, to, |_, _| {
                    is_any = true;
                    ControlFlow::Break(())
                })?;
            }
            Ok::<_, Error>(is_any)
        });
        by_pool || by_some.unwrap_or(true)
    }

    /// The class of what says nothing else.
    pub fn usual_class(&self) -> u8 {
        self.core.files.resolver().default_class().code()
    }

    /// How people call the class of this code.
    pub fn class_name(&self, code: u8) -> Option<String> {
        let classes = self.core.files.resolver().classes();
        Some(classes.name(stere_policy::Class::from_code(code)?))
    }

    /// Where an inode is; none where that cannot be told, or not without waiting.
    pub fn path_if_known(&self, io: Io<'_>, inode: u64) -> Option<String> {
        let path = self.core.path_of(io, inode).ok()?;
        Some(String::from_utf8_lossy(&path).into_owned())
    }
}
