//! What can be typed behind `stere provenance` and `stere audit`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct ProvenanceArguments {
    /// A file; note who writes it with `stere policy set PATH provenance=yes`
    pub path: PathBuf,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditArguments {
    /// A mounted pool, a directory with everything below it, or a file; note what happens with `stere policy set PATH audit=yes`
    #[arg(value_name = "POOL|PATH")]
    pub place: String,
    /// An object a line, for programs
    #[arg(long)]
    pub json: bool,
}
