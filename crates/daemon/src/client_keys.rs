//! Keys that were unlocked on a machine which mounts a pool through its owner: with them it encrypts and decrypts past the owner.
//!
//! A secret that unlocks keys is given to the owner, which needs them for names, and opens the same keys here, of which the owner sends
//! only what is wrapped. Invariants: a key is here only if it was unlocked on this machine; one that is locked at the owner is wiped here
//! within `LOOK`. Read next: the crates `crypt` and `direct`, `docs/design/encryption.md`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use stere_control::keys::Order;
use stere_control::message::{Answer, Request};
use stere_control::secret::{self, SentSecret};
use stere_crypt::{KeyState, Keyring};
use stere_format::EncryptionKey;
use stere_machine::error::{Result, refused};
use stere_machine::{memory, random::random};

use crate::client_control::ClientControl;
use crate::daemon::spawn;

/// Between two looks whether the owner has locked what is unlocked here.
const LOOK: Duration = Duration::from_secs(5);

/// The keys of this machine.
pub struct ClientKeys {
    keyring: Keyring,
    /// Whether any is unlocked.
    has_keys: AtomicBool,
}

impl ClientKeys {
    pub fn new() -> Arc<ClientKeys> {
        Arc::new(ClientKeys { keyring: Keyring::new(Some(random())), has_keys: AtomicBool::new(false) })
    }

    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Whether any key is unlocked here.
    pub fn has_keys(&self) -> bool {
        self.has_keys.load(Ordering::Acquire)
    }

    /// Has the owner unlock what a secret opens, and unlocks the same here.
    pub fn unlock(&self, control: &ClientControl, name: Option<String>, secret: SentSecret) -> Result<Answer> {
        let order = Order::Unlock { name: name.clone(), secret: secret.clone() };
        let said = control.ask_for(Request::Keys { order })?;
        let Answer::WrappedKeys { keys } = control.ask_for(Request::Keys { order: Order::Wrapped })? else {
            return refused("the owner gave an answer that was not asked for");
        };
        let secret = secret.into_secret();
        for bytes in keys {
            let record = EncryptionKey::decode(&bytes).map_err(|error| {
                stere_machine::error::Error::Refused(format!("the owner told a key that is none: {error}"))
            })?;
            let is_meant = name.as_ref().is_none_or(|name| *name == record.name);
            // Of all keys a secret opens some.
            if let Some((key, _)) = is_meant.then(|| stere_crypt::unwrap(&record, &secret).ok()).flatten() {
                self.keyring.put(record);
                let unlocked = self.keyring.unlock(key);
                assert!(unlocked.is_ok(), "a key that was put is there: {unlocked:?}");
                self.has_keys.store(true, Ordering::Release);
            }
        }
        Ok(said)
    }

    /// Wipes a key here, or all, and then has the owner lock it.
    pub fn lock_everywhere(&self, control: &ClientControl, name: Option<String>) -> Result<Answer> {
        self.lock(|key| name.as_ref().is_none_or(|name| *name == key.name));
        control.ask_for(Request::Keys { order: Order::Lock { name } })
    }

    fn lock(&self, is_meant: impl Fn(&EncryptionKey) -> bool) {
        let unlocked = self.keyring.list().into_iter().filter(|(_, state)| *state == KeyState::Unlocked);
        let (meant, others): (Vec<_>, Vec<_>) = unlocked.partition(|(key, _)| is_meant(key));
        if meant.is_empty() {
            return;
        }
        self.has_keys.store(!others.is_empty(), Ordering::Release);
        meant.iter().for_each(|(key, _)| self.keyring.finish_lock(key.number));
        memory::give_back_free();
    }

    /// Wipes what the owner has locked. One that cannot be asked has locked nothing.
    fn look(&self, control: &ClientControl) {
        let Ok(Answer::Keys { keys }) = control.ask_for(Request::Keys { order: Order::List }) else { return };
        let is_unlocked = |number: u16| keys.iter().any(|key| key.number == number && key.state == "unlocked");
        self.lock(|key| !is_unlocked(key.number));
    }

    /// Unlocks what these key files open as soon as there is an owner, and follows what the owner locks, until the mount ends.
    pub fn start(self: &Arc<Self>, control: &Arc<ClientControl>, key_files: &[PathBuf]) -> Result<()> {
        let mut secrets = key_files.iter().map(|path| secret::key_file(path)).collect::<Result<Vec<SentSecret>>>()?;
        let (keys, control): (_, Weak<ClientControl>) = (self.clone(), Arc::downgrade(control));
        spawn("keys", move || {
            while let Some(control) = control.upgrade() {
                secrets.retain(|secret| {
                    let unlocked = keys.unlock(&control, None, secret.clone());
                    if let Err(error) = &unlocked {
                        tracing::warn!(%error, "a key file has opened nothing yet");
                    }
                    unlocked.is_err()
                });
                if keys.has_keys() {
                    keys.look(&control);
                }
                drop(control);
                std::thread::sleep(LOOK);
            }
        })
    }
}
