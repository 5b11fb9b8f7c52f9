//! `stere flush`: everything that was done before becomes durable.

use crate::arguments::FlushArguments;
use stere_control::connection;
use stere_control::locate;
use stere_control::message::{About, Request};
use stere_machine::error::{At, DONE, Result};
use stere_machine::registry::Registry;

pub fn run(registry: &Registry, arguments: &FlushArguments) -> Result<u8> {
    let daemons = connection::daemons(registry);
    let chosen: Vec<&About> = match &arguments.path {
        None => daemons.iter().collect(),
        Some(path) => vec![locate::mount_of(&daemons, path)?],
    };
    for about in chosen {
        flush_kernel(about, arguments.wait)?;
        let mut connection = locate::open(registry, about)?;
        connection.wait_without_limit()?;
        connection.ask(Request::Flush { wait: arguments.wait })?;
        if !arguments.wait {
            println!(
                "flushing {}; `stere flush {} --wait` returns when it is done",
                about.pool,
                about.mountpoint.display()
            );
        }
    }
    Ok(DONE)
}

/// What the kernel still holds must reach the daemon first.
fn flush_kernel(about: &About, wait: bool) -> Result<()> {
    if !wait {
        return Ok(());
    }
    let root = std::fs::File::open(&about.mountpoint).at("open", &about.mountpoint)?;
    rustix::fs::syncfs(root).at("sync", &about.mountpoint)
}
