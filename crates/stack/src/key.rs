//! The key of a source: random, and kept in it under a name that the mount hides, wrapped by a key file or passphrase. The record
//! is that of a pool's key (`docs/format/encryption-key.md`).

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use stere_crypt::{DataKey, PassphraseCost, Secret, WrappingSeed};
use stere_format::EncryptionKey;
use zeroize::Zeroizing;

use crate::coder::random;
use crate::error::Error;

/// Where a source keeps its key.
pub const KEY_FILE_NAME: &str = ".stere-stack-key";

/// The key of a source, made if it has none yet.
pub fn key_of(source: &Path, secret: &Secret) -> Result<DataKey, Error> {
    let path = source.join(KEY_FILE_NAME);
    match fs::read(&path) {
        Ok(bytes) => {
            let record = EncryptionKey::decode(&bytes);
            let record = record.map_err(|error| Error::Damaged(format!("{}: {error}", path.display())))?;
            Ok(stere_crypt::unwrap(&record, secret)?.0)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = DataKey::new(1, Zeroizing::new(random()));
            let seed = WrappingSeed { salt: random(), nonce: random() };
            let wrapped = vec![stere_crypt::wrap(&key, secret, PassphraseCost::default(), &seed)?];
            let record = EncryptionKey { number: 1, name: "stack".into(), is_default: true, made_seconds: 0, wrapped };
            // A crash must not leave half a key that files were encrypted with.
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(&record.encode())?;
            file.sync_all()?;
            fs::File::open(source)?.sync_all()?;
            Ok(key)
        }
        Err(error) => Err(error.into()),
    }
}
