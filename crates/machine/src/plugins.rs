//! What runs users' plugins on this machine.

use std::sync::Arc;

use stere_plugin::Loader;
use stere_sandbox::{Limits, Sandbox};

/// What runs plugins in this process; none where the machine cannot, and then files that have some cannot be used.
pub fn loader() -> Option<Arc<dyn Loader>> {
    match Sandbox::new(Limits::default()) {
        Ok(sandbox) => Some(Arc::new(sandbox)),
        Err(failure) => {
            tracing::error!(%failure, "plugins cannot be run here");
            None
        }
    }
}

/// Whether plugins can be run on this machine.
pub fn can_run() -> bool {
    Sandbox::new(Limits::default()).is_ok()
}
