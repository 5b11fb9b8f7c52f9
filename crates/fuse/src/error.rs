//! What can go wrong around a mount. Errors of single requests are errno numbers and never come here.

/// Why a pool could not be mounted, served or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From the kernel's side: no permission, mount point in use, no FUSE.
    #[error(transparent)]
    Wire(#[from] fuse_wire::Error),
    /// No thread for the workers.
    #[error("a worker thread could not be started: {0}; check the limits on processes and memory")]
    Thread(std::io::Error),
    /// A bug; the mount was taken down.
    #[error(
        "a worker panicked, so the mount was taken down rather than served in an unknown state; everything that was \
         synced is safe: mount again, and please report the panic message above"
    )]
    WorkerPanicked,
    /// The last changes could not be made durable.
    #[error("the mount has ended, but its last changes could not be made durable: {0}")]
    Close(stere_naming::Error),
}
