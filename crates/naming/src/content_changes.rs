//! The cores of calls on contents and attributes: what is left of them when checks and followers are taken away.
//!
//! Read next: `pipeline`, which goes around these; stere-file, which does the work.

use std::sync::Arc;

use stere_features::features::Features;
use stere_features::versions::Versions;
use stere_file::inode_if_any;
use stere_format::InodeValue;
use stere_namespace::access_times::LazyTimes;
use stere_namespace::attributes::{SetAttributes, apply};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::namespace::Namespace;
use stere_residency::eviction::Eviction;
use stere_residency::residency::Residency;

/// Changes contents and attributes.
pub(crate) struct ContentChanges {
    pub core: Arc<Core>,
    pub access_times: Arc<LazyTimes>,
    pub versions: Arc<Versions>,
    pub eviction: Arc<Eviction>,
}

impl ContentChanges {
    pub fn new(namespace: &Namespace, residency: &Residency, features: &Features) -> ContentChanges {
        ContentChanges {
            core: namespace.core.clone(),
            access_times: namespace.access_times.clone(),
            versions: features.versions.clone(),
            eviction: residency.eviction.clone(),
        }
    }

    /// Where room ends in the middle of a write, it is made for the rest as for the whole; a write ends early only where none is left.
    pub fn write(&self, caller: &Caller<'_>, inode: u64, offset: u64, data: &[u8]) -> Result<usize, Error> {
        let write = |done: usize| {
            self.eviction.with_room(caller, || {
                let (offset, rest) = (offset + done as u64, &data[done..]);
                self.core.told(caller.io, inode, self.core.files.writer.write(&caller.context(), inode, offset, rest))
            })
        };
        let mut done = write(0)?;
        while done < data.len() && done > 0 {
            match write(done) {
                Ok(more) if more > 0 => done += more,
                _ => break,
            }
        }
        assert!(done <= data.len(), "no more is written than was given");
        Ok(done)
    }

    /// As `write`, at the end; tells where that was.
    pub fn append(&self, caller: &Caller<'_>, inode: u64, data: &[u8]) -> Result<(u64, usize), Error> {
        let (offset, done) = self.eviction.with_room(caller, || {
            self.core.told(caller.io, inode, self.core.files.writer.append(&caller.context(), inode, data))
        })?;
        let rest = match done {
            done if done == data.len() || done == 0 => 0,
            done => self.write(caller, inode, offset + done as u64, &data[done..]).unwrap_or(0),
        };
        Ok((offset, done + rest))
    }

    /// Copies between files. What is shared lies as the source wants it, until it is looked at: requested before, so that no crash
    /// comes between, and after, so that a look that came too early is repeated.
    pub fn copy(
        &self,
        caller: &Caller<'_>,
        (inode_in, offset_in): (u64, u64),
        (inode_out, offset_out): (u64, u64),
        length: u64,
    ) -> Result<u64, Error> {
        let is_other_policy = self.are_stored_otherwise(caller, inode_in, inode_out)?;
        if is_other_policy {
            self.core.request_reconcile(caller, inode_out)?;
        }
        let context = caller.context();
        let copied = self.core.files.copier.copy_range(&context, inode_in, offset_in, inode_out, offset_out, length)?;
        assert!(copied <= length, "no more is copied than was asked for");
        if is_other_policy {
            self.core.request_reconcile(caller, inode_out)?;
        }
        Ok(copied)
    }

    /// Whether two files are to be stored in different ways.
    fn are_stored_otherwise(&self, caller: &Caller<'_>, one: u64, other: u64) -> Result<bool, Error> {
        self.core.store.view(caller.io, |view| {
            let wish = |inode| {
                let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
                Ok::<_, Error>(self.core.files.policies.effective(view, inode, &value)?.wish.scheme)
            };
            Ok(wish(one)? != wish(other)?)
        })
    }

    /// Sets attributes, all in one transaction; gives the inode as it is now.
    pub fn set_attributes(&self, caller: &Caller<'_>, inode: u64, set: &SetAttributes) -> Result<InodeValue, Error> {
        if set.atime.is_some() {
            // Before too, so that nobody saves an older one after this.
            self.access_times.remove(inode);
        }
        let value = self.core.changing(caller, inode, set.size, |transaction, value| {
            self.versions.check_no_version(inode, value)?;
            apply(transaction, caller, inode, value, set)?;
            if set.size.is_none() {
                stere_file::requests::note(transaction, caller.request.as_ref(), 0);
            }
            self.versions.follow_access(transaction, inode, value)
        })?;
        if set.atime.is_some() {
            self.access_times.remove(inode);
        }
        assert!(set.size.is_none_or(|size| value.size == size), "a size that was set is the inode's");
        Ok(value)
    }

    /// Clears set-id bits and capabilities, as a write by somebody without privilege does.
    pub fn kill_set_id(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        // It is not what was asked for, and not noted as that.
        let caller = Caller { request: None, ..*caller };
        self.set_attributes(&caller, inode, &SetAttributes { kill_suid_sgid: true, ..SetAttributes::default() })
            .map(drop)
    }
}
