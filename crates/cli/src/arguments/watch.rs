//! What can be typed behind `stere provenance` and `stere audit`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct ProvenanceArguments {
    /// A file; record who writes it with `stere policy set PATH provenance=yes`
    pub path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AuditArguments {
    /// A mounted pool, a directory with everything below it, or a file; record what happens with `stere policy set PATH audit=yes`
    #[arg(value_name = "POOL|PATH")]
    pub place: String,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}
