//! What can be typed behind `stere node`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Serve a directory, or the folder `node` of a mounted pool, to pools on other machines (stere://HOST:PORT/NAME); stays in the foreground
    /// until SIGTERM. Whoever reaches the address can read and write: use a network of your own, or a tunnel
    Serve(ServeArguments),
}

#[derive(Debug, Args)]
pub struct ServeArguments {
    /// A pool that is mounted on this machine, or a directory
    #[arg(value_name = "POOL|DIRECTORY")]
    pub place: PathBuf,
    /// Where other machines reach it, such as 10.0.0.1:10809
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: String,
}
