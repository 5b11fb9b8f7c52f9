//! Why a rescue ends before it is done. Damage is not an error: it goes into the report.

/// What stops a rescue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no device was named; name whatever is left of the pool, one device is enough")]
    NoDevices,

    #[error("none of these holds anything of a pool ({detail}); name a device that was part of one")]
    NothingFound { detail: String },

    #[error("{first} belongs to the pool {first_pool}, {second} to {second_pool}; rescue one pool at a time")]
    TwoPools { first: String, first_pool: String, second: String, second_pool: String },

    #[error(
        "no record of a key is left here, so no passphrase or key file opens anything; give a device or a medium that has the pool's metadata, or leave the secret out to copy the rest"
    )]
    NoKeys,

    #[error("nothing was copied: {detail}; leave it out to copy what is not encrypted")]
    WrongSecret { detail: String },

    #[error(
        "the copy cannot go on: {detail}; make room or choose another place, and start again in an empty directory"
    )]
    Target { detail: String },
}
