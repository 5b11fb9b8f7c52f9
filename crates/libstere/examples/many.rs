//! For `cargo xtask bench files`: fills folders of an unmounted pool with very many small files, so that a pool with ten million is
//! made in minutes; through a mount it takes half an hour.
//!
//!     many FILES SIZE DEVICE
//!
//! The folders must be there already (`stere-bench many --only-folders`). Names and contents are those of `stere-bench many`.

use std::time::Instant;

use stere::{Options, Pool, PoolOptions};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const FILES_PER_FOLDER: u64 = 1000;
const FOLDERS_PER_FOLDER: u64 = 100;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [files, size, device] = &words[..] else {
        return Err("usage: many FILES SIZE DEVICE".into());
    };
    let (files, size): (u64, usize) = (files.parse()?, size.parse()?);
    let begun = Instant::now();
    let pool = Pool::open(&[device], PoolOptions { memory_bytes: 1 << 30, ..PoolOptions::default() })?;
    let options = Options::new().read(true).write(true).create(true);
    let mut bytes = vec![b'x'; size];
    for number in 0..files {
        let folder = number / FILES_PER_FOLDER;
        let (upper, lower) = (folder / FOLDERS_PER_FOLDER, folder % FOLDERS_PER_FOLDER);
        let file = pool.file(format!("many/{upper:03}/{lower:03}/file-{number:08}"), options)?;
        let label = number.to_le_bytes();
        let labelled = size.min(label.len());
        bytes[..labelled].copy_from_slice(&label[..labelled]);
        if file.write_at(&bytes, 0)? != size {
            return Err(format!("file {number} was not written whole").into());
        }
        file.close()?;
    }
    pool.close()?;
    println!("{files} files in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}
