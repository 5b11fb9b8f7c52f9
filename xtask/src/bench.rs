//! Benches.
use crate::error::Result;
use std::path::Path;
#[derive(clap::Args)]
pub struct BenchArguments {}
pub fn run(_root: &Path, _arguments: &BenchArguments) -> Result<()> {
    Ok(())
}
