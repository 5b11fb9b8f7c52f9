//! Very many files, to see what a file system keeps in memory: created in folders of a thousand, then found again.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::error::{At, BenchError};

const FILES_PER_FOLDER: u64 = 1000;
const FOLDERS_PER_FOLDER: u64 = 100;

/// Creates `files` files of `size` bytes; the content of each begins with its number.
pub fn create(directory: &Path, files: u64, size: usize) -> Result<Value, BenchError> {
    let start = Instant::now();
    let mut data = vec![b'x'; size];
    for number in 0..files {
        let folder_number = number / FILES_PER_FOLDER;
        let folder = directory.join(format!(
            "{:03}/{:03}",
            folder_number / FOLDERS_PER_FOLDER,
            folder_number % FOLDERS_PER_FOLDER
        ));
        if number % FILES_PER_FOLDER == 0 {
            fs::create_dir_all(&folder).at("mkdir", &folder)?;
        }
        let path = folder.join(format!("file-{number:08}"));
        let mut file = File::create_new(&path).at("create", &path)?;
        let label = number.to_le_bytes();
        let labelled = size.min(label.len());
        data[..labelled].copy_from_slice(&label[..labelled]);
        file.write_all(&data).at("write", &path)?;
    }
    Ok(json!({ "files": files, "size": size, "seconds": start.elapsed().as_secs_f64() }))
}
