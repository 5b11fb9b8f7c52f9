//! `stere node serve`: files of a directory as devices of pools on other machines, until a signal ends it.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stere_node::{NodeError, Server};

use crate::arguments::node::{NodeCommand, ServeArguments};
use stere_control::connection;
use stere_machine::error::{At, DONE, Error, Result, refused};
use stere_machine::registry::Registry;

/// The folder of a mounted pool that is served.
const FOLDER: &str = "node";

pub fn run(registry: &Registry, command: &NodeCommand) -> Result<u8> {
    match command {
        NodeCommand::Serve(arguments) => serve(registry, arguments),
    }
}

fn serve(registry: &Registry, arguments: &ServeArguments) -> Result<u8> {
    let directory = directory(registry, arguments)?;
    // Before anybody is served, so that no signal is missed.
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Error::System)?;
    let server = Server::bind(&directory, &arguments.listen).map_err(told)?;
    let address = server.address();
    let running = server.start().map_err(Error::System)?;
    println!("serving {} at {address}; a device there is stere://{address}/NAME", directory.display());
    // Whoever waits for this line must get it.
    io::stdout().flush().map_err(Error::System)?;
    let signal = signals.forever().next();
    tracing::info!(signal, "the node ends");
    running.end().map_err(told)?;
    Ok(DONE)
}

/// What is served: a folder of a pool that is mounted, or the directory itself.
fn directory(registry: &Registry, arguments: &ServeArguments) -> Result<PathBuf> {
    let place = &arguments.place;
    let name = place.to_str().filter(|name| !name.contains('/'));
    let Some(name) = name else { return Ok(place.clone()) };
    if let Some(about) = connection::about(registry, name) {
        if about.read_only {
            return refused(format!(
                "the pool '{name}' is mounted for reading only; mount it for writing to serve from it"
            ));
        }
        let folder = about.mountpoint.join(FOLDER);
        fs::create_dir_all(&folder).at("make", &folder)?;
        return Ok(folder);
    }
    match registry.find(name)? {
        Some(_) if !place.is_dir() => {
            refused(format!("the pool '{name}' is not mounted here; mount it first, or name a directory"))
        }
        _ => Ok(place.clone()),
    }
}

fn told(error: NodeError) -> Error {
    Error::Refused(error.to_string())
}
