//! `stere check --repair`: everything that can be made right again on a pool that nobody uses.
//!
//! Opening the pool already writes journal records to mirrors that lack them. Then the accounts of segments are counted, and
//! names, inodes, extents and counts are made to agree (the rescue crate's `mend`); a scrub pass writes bad blocks of all chunks
//! anew from good ones, and two checkpoints all superblock copies. What is lost beyond copies is not made up: it is told by the check that follows.

use std::time::Duration;

use stere_device::Access;
use stere_multihost::Multihost;
use stere_pool::{Degraded, OpenOptions, Opened};
use stere_rescue::{Mended, mend};
use stere_store::Store;

use stere_machine::devices::Target;
use stere_machine::error::{Result, refused};
use stere_machine::registry::Registry;
use stere_machine::{claim, clock};

const MEMORY_BYTES: usize = 256 << 20;

/// Mends, and tells what was mended.
pub fn run(registry: &Registry, words: &[String]) -> Result<Vec<Mended>> {
    let target = Target::parse(registry, words)?;
    let (assembly, claim) =
        claim::assemble(registry, &target, Access::ReadWrite, Duration::ZERO, None, Multihost::default())?;
    let path_of =
        |entry: &stere_format::DeviceEntry| registry.path_of(&assembly.newest.pool_name, &entry.id.to_string());
    let options = OpenOptions {
        memory_bytes: MEMORY_BYTES,
        degraded: Degraded::Ask,
        epoch_nonce: stere_machine::random::epoch_nonce(),
        ..OpenOptions::default()
    };
    let Opened { store, recovery, read_only, .. } = match assembly.open(&options, &path_of) {
        Ok(opened) => opened,
        Err(stere_pool::Error::Store(error)) => return Ok(vec![fact(format!("nothing could be mended: {error}"))]),
        Err(error) => return Err(error.into()),
    };
    if read_only {
        return refused("the pool can only be read, so nothing can be mended; bring its missing devices back");
    }
    stere_online::media::open_for_names(&store, registry, &assembly);
    let mut mended = Vec::new();
    for member in assembly.members.iter().filter(|member| !member.damaged.is_empty()) {
        mended.push(fact(format!("{}: {} superblock copies written anew", member.path, member.damaged.len())));
    }
    if recovery.records_repaired > 0 {
        mended.push(fact(format!("{} journal records written to mirrors that lacked them", recovery.records_repaired)));
    }
    // Where the tree is damaged beyond its copies the check that follows tells by path what is lost.
    if let Err(error) = mend_keys(&store, &mut mended) {
        mended.push(fact(format!("names and counts cannot be mended: {error}")));
    }
    match store.scrubber.scrub() {
        Ok(scrubbed) if scrubbed.repaired_blocks > 0 => {
            let blocks = scrubbed.repaired_blocks;
            mended.push(fact(format!("{blocks} bad blocks on devices written anew from good ones")));
        }
        Ok(_) => {}
        Err(error) => mended.push(fact(format!("blocks cannot be mended: {error}"))),
    }
    // Each checkpoint writes two of the four superblock copies.
    let written = store.checkpoint().and_then(|()| store.checkpoint()).and_then(|()| store.close());
    if let Err(error) = written {
        mended.push(fact(format!("superblocks cannot be written anew: {error}")));
    }
    drop(claim);
    Ok(mended)
}

fn fact(text: String) -> Mended {
    Mended { inode: None, data_lost: false, text }
}

fn mend_keys(store: &Store, mended: &mut Vec<Mended>) -> Result<()> {
    // First, because mending changes the accounts by what it frees.
    let corrected = store.checker.correct_accounts()?;
    mended.extend(mend(store, clock::now())?);
    let corrected = corrected + store.checker.correct_accounts()?;
    if corrected > 0 {
        mended.push(fact(format!("live bytes of {corrected} segments counted anew")));
    }
    Ok(())
}
