//! Keys of the pool, and what of names, links and open files depends on them.
//!
//! What the pool says of a key lies in the tree, wrapped; unlocked keys are in the keyring, in memory only. Locking a key saves what
//! was accepted under it, wipes it, and tells the front end what the kernel may still have in memory ([`Stale`]). While a key is
//! locked, its files cannot be opened, its names are shown by their number in their directory, and both can be removed.
//! Read next: the crate crypt, `names.rs`, `docs/design/encryption.md`.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use stere_crypt::{CryptError, DataKey, KeyState, Keyring, PassphraseCost, Secret, WrappingSeed};
use stere_file::{Keys, inode_if_any};
use stere_format::dirent::DirentView;
use stere_format::{BlobValue, EncryptionKey, FileKind, InodeValue, Key, WrappedKey, Wrapping, key};
use stere_policy::{Effective, Encryption, Rule, RuleSet};
use stere_store::{Io, Store};
use zeroize::Zeroizing;

use crate::call::Caller;
use crate::error::Error;
use crate::inode::Core;
use crate::names::{ENCRYPTED, SEQUENCE_FIRST, damaged};
use crate::walk::Met;

/// Names that one transaction encrypts at most.
const NAMES_PER_STEP: usize = 64;

/// What the kernel may have in memory of encrypted files and directories.
#[derive(Default)]
struct Seen {
    directories: Mutex<FxHashSet<u64>>,
    files: Mutex<FxHashSet<u64>>,
}

/// What the kernel must forget, because a key was locked or unlocked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stale {
    /// Files and directories whose content it may have.
    pub inodes: Vec<u64>,
    /// Names in directories.
    pub names: Vec<(u64, Vec<u8>)>,
}

/// Random bytes for a new key, drawn by the caller.
pub struct KeySeed {
    /// The key itself.
    pub key: Zeroizing<[u8; 32]>,
    /// For its first wrapping.
    pub wrapping: WrappingSeed,
}

/// What there is to know of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    pub number: u16,
    pub name: String,
    pub state: KeyState,
    pub is_default: bool,
    pub made_seconds: i64,
    pub passphrases: usize,
    pub key_files: usize,
}

/// What a key encrypts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyUse {
    pub records: u64,
    pub names: u64,
    /// Files and directories that ask for it themselves.
    pub policies: u64,
}

/// Puts what the pool says of its keys into the keyring. A record that is damaged is a key that is not there.
pub fn load(store: &Store, keyring: &Keyring) -> Result<(), Error> {
    let records = store.view(Io::BLOCKING, |view| {
        let mut records = Vec::new();
        let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        view.scan(from, to, |key, bytes| {
            if key.kind == key::kind::ENCRYPTION_KEY {
                records.push((key.object, EncryptionKey::decode(bytes)));
            }
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>(records)
    })?;
    for (number, record) in records {
        match record {
            Ok(record) if u64::from(record.number) == number => keyring.put(record),
            Ok(_) => keyring.put(unusable(number, "the record has another number")),
            Err(error) => keyring.put(unusable(number, &error.to_string())),
        }
    }
    Ok(())
}

/// What stands for a key whose record cannot be used, so that its number is not used for another.
fn unusable(number: u64, why: &str) -> EncryptionKey {
    tracing::error!(number, why, "the record of a key is damaged; the key cannot be used");
    let number = u16::try_from(number).unwrap_or(Encryption::KEY_MAX).max(1);
    EncryptionKey { number, name: "damaged".into(), is_default: false, made_seconds: 0, wrapped: Vec::new() }
}

fn check_key_name(name: &str) -> Result<(), Error> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if name.is_empty() || name.len() > EncryptionKey::NAME_BYTES_MAX || !is_plain || matches!(name, "yes" | "no") {
        return Err(Error::Invalid("a key's name is 1 to 64 letters, digits, '-', '_' and '.', and not yes or no"));
    }
    Ok(())
}

/// The keys of the pool, and what the kernel may know of what they encrypt.
pub struct EncryptionKeys {
    core: Arc<Core>,
    seen: Seen,
}

impl EncryptionKeys {
    pub fn new(core: Arc<Core>) -> EncryptionKeys {
        EncryptionKeys { core, seen: Seen::default() }
    }

    fn keyring(&self) -> &Arc<Keyring> {
        self.core.files.keyring()
    }

    /// The key that new names of a directory are encrypted with; an error if it is locked.
    pub fn name_key(
        &self,
        keys: &impl Keys,
        directory: u64,
        value: &InodeValue,
    ) -> Result<Option<Arc<DataKey>>, Error> {
        if !self.keyring().has_keys() {
            return Ok(None);
        }
        let encryption = self.core.files.policies.effective(keys, directory, value)?.wish.encryption;
        let number = self.keyring().meant(encryption)?;
        // Whoever asks for it is about to tell the kernel a name.
        self.note_encrypted(directory, number.unwrap_or(0));
        Ok(number.map(|number| self.keyring().open_key(number)).transpose()?)
    }

    /// Whether content that a file got before it had a name is encrypted otherwise than by the name.
    pub fn is_encrypted_otherwise(
        &self,
        keys: &impl Keys,
        inode: u64,
        before: &InodeValue,
        named: &InodeValue,
    ) -> Result<bool, Error> {
        if !self.keyring().has_keys() {
            return Ok(false);
        }
        let wish = |value| Ok::<_, Error>(self.core.files.policies.effective(keys, inode, value)?.wish.encryption);
        Ok(wish(before)? != wish(named)?)
    }

    /// Refuses to open a file whose key is locked.
    #[inline]
    pub fn check_key(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        if !self.keyring().has_keys() {
            return Ok(());
        }
        let effective = self.core.store.view(caller.io, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            let is_file = value.kind() == Some(FileKind::File);
            Ok::<_, Error>(if is_file { Some(self.core.files.policies.effective(view, inode, &value)?) } else { None })
        })?;
        let Some(effective) = effective.filter(|effective| effective.wish.encryption.is_on()) else { return Ok(()) };
        self.core.files.policies.check_key(&effective)?;
        self.seen.files.lock().insert(inode);
        Ok(())
    }

    /// Notes that the kernel may have content of a file that was just made, if it is encrypted.
    #[inline]
    pub fn note_open(&self, caller: &Caller<'_>, inode: u64) {
        // Noted too often does no harm.
        if self.check_key(caller, inode).is_err() {
            self.seen.files.lock().insert(inode);
        }
    }

    /// The same of a file that was encrypted in the background.
    pub fn note_stored_anew(&self, inode: u64) {
        if self.keyring().has_keys() {
            self.seen.files.lock().insert(inode);
        }
    }

    /// Notes that the kernel knows names of a directory, if they are encrypted.
    pub fn note_encrypted(&self, directory: u64, key: u16) {
        if key != 0 {
            self.seen.directories.lock().insert(directory);
        }
    }

    /// The target of a link.
    pub fn target(&self, inode: u64, value: &InodeValue) -> Result<Vec<u8>, Error> {
        if value.flags & ENCRYPTED == 0 {
            return Ok(value.symlink_target.clone());
        }
        let (number, sealed) =
            value.symlink_target.split_first_chunk::<2>().ok_or(CryptError::Malformed("encrypted link"))?;
        let key = self.keyring().open_key(u16::from_le_bytes(*number))?;
        Ok(key.open_target(inode, sealed)?)
    }

    /// Refuses rules that encrypt while the key is locked that they mean.
    pub fn check_rules_key(&self, set: &RuleSet) -> Result<(), Error> {
        let classes = self.core.files.resolver().classes();
        let of_class = |rule: &Rule| rule.own.class().and_then(|class| classes.encryption(class));
        let is_on = |rule: &Rule| rule.own.encryption().or(of_class(rule)).is_some_and(Encryption::is_on);
        if !set.rules().iter().any(is_on) {
            return Ok(());
        }
        self.check_default_key()
    }

    /// Refuses what encrypts with the pool's default key while that is locked, or there is none.
    pub fn check_default_key(&self) -> Result<(), Error> {
        let number = self.keyring().meant(Encryption::DEFAULT)?;
        number.map(|number| self.keyring().open_key(number)).transpose()?;
        Ok(())
    }

    fn wanted_key(&self, effective: &Effective) -> Result<u16, CryptError> {
        Ok(self.keyring().meant(effective.wish.encryption)?.unwrap_or(0))
    }

    /// Names of a directory that are not encrypted as its policy asks for; of a link, whether its target is not.
    pub fn pending_names(&self, caller: &Caller<'_>, inode: u64, effective: &Effective) -> Result<u64, Error> {
        if !self.keyring().has_keys() {
            return Ok(0);
        }
        // Without such a key nothing can be as it should.
        let wanted = self.wanted_key(effective).unwrap_or(u16::MAX);
        self.core.store.view(caller.io, |view| {
            let mut count = 0;
            view.scan(Key::dirent(inode, 0), Key::dirent(inode, u64::MAX), |_, bytes| {
                count += u64::from(DirentView::decode(bytes).is_ok_and(|entry| entry.key != wanted));
                ControlFlow::Continue(())
            })?;
            Ok(count)
        })
    }

    /// Encrypts names in a directory, or the target of a link, as its policy asks for. Gives how many wait for a key.
    pub fn reencrypt_names(&self, caller: &Caller<'_>, met: &Met) -> Result<u64, Error> {
        if !self.keyring().has_keys() {
            return Ok(0);
        }
        match met.kind {
            FileKind::Symlink => self.reencrypt_target(caller, met.inode),
            FileKind::Directory => {
                let (mut locked, mut next) = (0, Some(SEQUENCE_FIRST));
                while let Some(from) = next {
                    let step = self.reencrypt_some(caller, met.inode, from)?;
                    assert!(step.1.is_none_or(|next| next > from), "names are gone through in order, from {from}");
                    locked += step.0;
                    next = step.1;
                }
                Ok(locked)
            }
            _ => Ok(0),
        }
    }

    /// Names from a sequence on that are not encrypted as asked for, and where to go on.
    fn other_names(&self, io: Io<'_>, directory: u64, from: u64) -> Result<(Vec<u64>, Option<u64>), Error> {
        self.core.store.view(io, |view| {
            let Some(value) = inode_if_any(view, directory)? else { return Ok((Vec::new(), None)) };
            let wanted =
                self.wanted_key(&self.core.files.policies.effective(view, directory, &value)?).unwrap_or(u16::MAX);
            // Found without a key, whoever has one.
            let plain = self
                .core
                .version_directory(view, directory, &value)?
                .map(|version_directory| version_directory.sequence);
            let (mut others, mut next, mut failure) = (Vec::new(), None, None);
            view.scan(Key::dirent(directory, from), Key::dirent(directory, u64::MAX), |key, bytes| {
                match DirentView::decode(bytes) {
                    Ok(entry) if entry.key == wanted || plain == Some(key.position) => {}
                    Ok(_) => others.push(key.position),
                    Err(error) => failure = Some(damaged(directory, &error)),
                }
                next = (others.len() == NAMES_PER_STEP).then_some(key.position + 1);
                if next.is_some() || failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            assert!(others.is_sorted() && others.len() <= NAMES_PER_STEP, "so many names at most, in order");
            failure.map_or(Ok((others, next)), Err)
        })
    }

    /// Some names from a sequence on; gives how many wait for a key, and where to go on.
    fn reencrypt_some(&self, caller: &Caller<'_>, directory: u64, from: u64) -> Result<(u64, Option<u64>), Error> {
        let (others, next) = self.other_names(caller.io, directory, from)?;
        if others.is_empty() {
            return Ok((0, None));
        }
        let locked = self.core.store.update(caller.io, |transaction| {
            let Some(mut value) = inode_if_any(transaction, directory)? else { return Ok(0) };
            let effective = self.core.files.policies.effective(transaction, directory, &value)?;
            let key = match self.wanted_key(&effective) {
                Ok(0) => None,
                Ok(number) => match self.keyring().open_key(number) {
                    Ok(key) => Some(key),
                    Err(_) => return Ok(others.len() as u64),
                },
                Err(_) => return Ok(others.len() as u64),
            };
            let mut locked = 0;
            for sequence in &others {
                // It may be gone by now.
                if transaction.get(&Key::dirent(directory, *sequence))?.is_some() {
                    let is_done =
                        self.core.names.reencrypt(transaction, directory, &mut value, *sequence, key.as_deref())?;
                    locked += u64::from(!is_done);
                }
            }
            assert!(locked <= others.len() as u64, "{locked} names wait for a key, of {}", others.len());
            stere_file::put_inode(transaction, directory, &value);
            Ok::<_, Error>(locked)
        })?;
        // The kernel may know them.
        self.seen.directories.lock().insert(directory);
        Ok((locked, next))
    }

    fn reencrypt_target(&self, caller: &Caller<'_>, inode: u64) -> Result<u64, Error> {
        self.core.store.update(caller.io, |transaction| {
            let Some(mut value) = inode_if_any(transaction, inode)? else { return Ok(0) };
            let effective = self.core.files.policies.effective(transaction, inode, &value)?;
            let wanted = self.wanted_key(&effective).unwrap_or(u16::MAX);
            let is_encrypted = value.flags & ENCRYPTED != 0;
            let number = value.symlink_target.first_chunk::<2>().map_or(0, |number| u16::from_le_bytes(*number));
            let now = if is_encrypted { number } else { 0 };
            if now == wanted {
                return Ok(0);
            }
            let Ok(target) = self.target(inode, &value) else { return Ok(1) };
            match wanted {
                0 => (value.symlink_target, value.flags) = (target, value.flags & !ENCRYPTED),
                number => {
                    let Ok(key) = self.keyring().open_key(number) else { return Ok(1) };
                    value.symlink_target = key.seal_target(inode, &target);
                    value.flags |= ENCRYPTED;
                }
            }
            stere_file::put_inode(transaction, inode, &value);
            Ok(0)
        })
    }

    /// All keys that were not removed.
    pub fn keys(&self) -> Vec<KeyInfo> {
        let living = self.keyring().list().into_iter().filter(|(_, state)| *state != KeyState::Removed);
        living
            .map(|(record, state)| {
                let is_passphrase = |one: &&WrappedKey| matches!(one.wrapping, Wrapping::Passphrase { .. });
                let passphrases = record.wrapped.iter().filter(is_passphrase).count();
                let key_files = record.wrapped.len() - passphrases;
                let EncryptionKey { number, name, is_default, made_seconds, .. } = record;
                KeyInfo { number, name, state, is_default, made_seconds, passphrases, key_files }
            })
            .collect()
    }

    /// What the pool has of keys that were not removed, as it is on media.
    pub fn wrapped_keys(&self) -> Vec<Vec<u8>> {
        let living = self.keyring().list().into_iter().filter(|(_, state)| *state != KeyState::Removed);
        living.map(|(record, _)| record.encode()).collect()
    }

    fn named_key(&self, name: &str) -> Result<EncryptionKey, Error> {
        self.keyring().find(name).ok_or(Error::Invalid("the pool has no key of this name; see `stere key list`"))
    }

    fn put_key(&self, caller: &Caller<'_>, record: EncryptionKey) -> Result<(), Error> {
        assert_ne!(record.number, 0, "0 stands for no key");
        assert!(
            record.wrapped.len() <= EncryptionKey::WRAPPINGS_MAX,
            "a key is wrapped {} times",
            record.wrapped.len()
        );
        let (key, bytes) = (Key::encryption_key(record.number), record.encode());
        self.core.store.update(caller.io, |transaction| {
            transaction.put(key, &bytes);
            Ok::<_, Error>(())
        })?;
        self.core.store.commit(caller.io)?;
        self.keyring().put(record);
        Ok(())
    }

    /// Makes a key, and unlocks it. The first one is the pool's default.
    pub fn create_key(
        &self,
        caller: &Caller<'_>,
        name: &str,
        secret: &Secret,
        cost: PassphraseCost,
        seed: &KeySeed,
    ) -> Result<u16, Error> {
        check_key_name(name)?;
        if self.keyring().find(name).is_some() {
            return Err(Error::Exists);
        }
        let known = self.keyring().list();
        let number = known.iter().map(|(record, _)| record.number).max().unwrap_or(0) + 1;
        if number > Encryption::KEY_MAX {
            return Err(Error::TooMany("keys in this pool"));
        }
        let is_default = !known.iter().any(|(record, _)| record.is_default && !record.is_removed());
        assert!(known.iter().all(|(record, _)| record.number != number), "numbers of keys are used once");
        let key = DataKey::new(number, seed.key.clone());
        let wrapped = vec![stere_crypt::wrap(&key, secret, cost, &seed.wrapping)?];
        let made_seconds = caller.now.seconds;
        self.put_key(caller, EncryptionKey { number, name: name.into(), is_default, made_seconds, wrapped })?;
        self.keyring().unlock(key)?;
        Ok(number)
    }

    /// Unlocks the key of this name, or without one all that the secret opens. Gives their names, and what the kernel must forget.
    pub fn unlock_keys(&self, name: Option<&str>, secret: &Secret) -> Result<(Vec<String>, Stale), Error> {
        let records = match name {
            Some(name) => vec![self.named_key(name)?],
            None => self.keyring().list().into_iter().map(|(record, _)| record).filter(|it| !it.is_removed()).collect(),
        };
        let (mut unlocked, mut refused) = (Vec::new(), None);
        let mut stale = Stale::default();
        for record in records {
            match stere_crypt::unwrap(&record, secret) {
                Ok((key, _)) => {
                    if unlocked.is_empty() {
                        stale = self.stale(Io::BLOCKING)?;
                    }
                    self.keyring().unlock(key)?;
                    unlocked.push(record.name);
                }
                Err(error) => refused = Some(error),
            }
        }
        match refused.filter(|_| unlocked.is_empty()) {
            Some(error) => Err(error.into()),
            None => Ok((unlocked, stale)),
        }
    }

    /// Locks a key, when everything that was accepted under it is handed to the store. Gives what the kernel must forget.
    pub fn lock_key(&self, caller: &Caller<'_>, name: &str) -> Result<Stale, Error> {
        let record = self.named_key(name)?;
        self.lock_number(caller, record.number)
    }

    fn lock_number(&self, caller: &Caller<'_>, number: u16) -> Result<Stale, Error> {
        // From here on nothing more is told of it, and what was told can still be found out.
        self.keyring().begin_lock(number);
        let locked = self.stale(caller.io).and_then(|stale| {
            self.core.files.finish_lock(&caller.context(), number)?;
            Ok(stale)
        });
        if locked.is_err() {
            self.keyring().abandon_lock(number);
        }
        let stale = locked?;
        self.core.store.commit(caller.io)?;
        Ok(stale)
    }

    /// Encrypted files that the kernel may have content of; also such as it has not handed over yet.
    pub fn seen_encrypted(&self) -> Vec<u64> {
        self.seen.files.lock().iter().copied().collect()
    }

    /// The kernel does not have an inode in memory any more.
    pub fn unsee(&self, inode: u64) {
        if self.keyring().has_keys() {
            self.seen.directories.lock().remove(&inode);
            self.seen.files.lock().remove(&inode);
        }
    }

    /// What the kernel may know of encrypted things, as it knows it now.
    fn stale(&self, io: Io<'_>) -> Result<Stale, Error> {
        let directories: Vec<u64> = self.seen.directories.lock().iter().copied().collect();
        let mut stale = Stale { inodes: self.seen.files.lock().iter().copied().collect(), names: Vec::new() };
        for directory in directories {
            let (names, links) = self.core.store.view(io, |view| {
                let (mut names, mut links) = (Vec::new(), Vec::new());
                view.scan(Key::dirent(directory, 0), Key::dirent(directory, u64::MAX), |key, bytes| {
                    if let Some(entry) = DirentView::decode(bytes).ok().filter(|entry| entry.key != 0) {
                        let name = self.core.names.shown_before(directory, key.position, &entry).into_owned();
                        names.push((directory, name));
                        links.extend((entry.kind == FileKind::Symlink).then_some(entry.inode));
                    }
                    ControlFlow::Continue(())
                })?;
                Ok::<_, Error>((names, links))
            })?;
            stale.names.extend(names);
            stale.inodes.extend(links);
            stale.inodes.push(directory);
        }
        Ok(stale)
    }

    /// Wraps an unlocked key once more. With `instead`, in the place of what that opens.
    pub fn wrap_key(
        &self,
        caller: &Caller<'_>,
        name: &str,
        instead: Option<&Secret>,
        secret: &Secret,
        cost: PassphraseCost,
        seed: &WrappingSeed,
    ) -> Result<(), Error> {
        let mut record = self.named_key(name)?;
        let opened = instead.map(|old| stere_crypt::unwrap(&record, old)).transpose()?;
        let wrapped = match &opened {
            Some((key, _)) => stere_crypt::wrap(key, secret, cost, seed)?,
            None => stere_crypt::wrap(&*self.keyring().open_key(record.number)?, secret, cost, seed)?,
        };
        match opened {
            Some((_, index)) => record.wrapped[index] = wrapped,
            None if record.wrapped.len() >= EncryptionKey::WRAPPINGS_MAX => {
                return Err(Error::Invalid("a key has at most 16 passphrases and key files; change one of them"));
            }
            None => record.wrapped.push(wrapped),
        }
        self.put_key(caller, record)
    }

    /// What a key encrypts, from what is stored.
    pub fn key_use(&self, name: &str) -> Result<KeyUse, Error> {
        let record = self.named_key(name)?;
        let mut used = KeyUse::default();
        let is_meant = |code: u16| {
            Encryption::from_code(code)
                .is_some_and(|it| it.key() == Some(record.number) || (it == Encryption::DEFAULT && record.is_default))
        };
        let tree = |tree: u8| (Key::new(tree, 0, 0, 0), Key::new(tree + 1, 0, 0, 0));
        let (from, to) = tree(key::tree::NAMES);
        self.core.store.for_each_key(from, to, |key, bytes| match key.kind {
            key::kind::DIRENT => {
                used.names += u64::from(DirentView::decode(bytes).is_ok_and(|entry| entry.key == record.number));
            }
            key::kind::INODE => {
                let policy = InodeValue::decode(bytes).ok().and_then(|value| value.policy).unwrap_or_default();
                let (own, ruled) = (policy.encryption, u16::from(policy.ruled.encryption));
                used.policies += u64::from(is_meant(own) || is_meant(ruled));
            }
            _ => {}
        })?;
        let (from, to) = tree(key::tree::BLOBS);
        self.core.store.for_each_key(from, to, |_, bytes| {
            used.records += u64::from(BlobValue::decode(bytes).is_ok_and(|value| value.key == record.number));
        })?;
        Ok(used)
    }

    /// Removes a key for ever; what it encrypts cannot be read by anybody any more. Refused while it encrypts something, unless
    /// `destroys`. Gives what the kernel must forget.
    pub fn remove_key(&self, caller: &Caller<'_>, name: &str, destroys: bool) -> Result<Stale, Error> {
        let record = self.named_key(name)?;
        // What was encrypted elsewhere before the policy changed is entered, and counts.
        self.core.files.direct_writes.wait_for_all(caller.io)?;
        let used = self.key_use(name)?;
        if !destroys && used != KeyUse::default() {
            let KeyUse { records, names, policies } = used;
            let used = format!("it encrypts {records} records and {names} names, and {policies} policies ask for it");
            return Err(Error::KeyInUse { name: name.into(), used });
        }
        let stale = self.lock_number(caller, record.number)?;
        self.put_key(caller, EncryptionKey { wrapped: Vec::new(), is_default: false, ..record })?;
        Ok(stale)
    }
}
