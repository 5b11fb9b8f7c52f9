//! SQLite: rows are inserted in transactions of one and of a thousand, with a write-ahead log and with a rollback journal.
//!
//! `synchronous` is FULL, so that a transaction is durable when its commit returns. Afterwards the database is read cold:
//! its own check of integrity, the number of rows, and every row's content.

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use super::{Run, warm};
use crate::error::{At, BenchError};
use crate::pattern::{BLOCK_SIZE, Pattern};
use crate::report::Metric;

const ROW_BYTES: usize = 100;

/// Name of the metric, journal mode of SQLite, rows, and rows in a transaction.
const CASES: [(&str, &str, u64, u64); 4] = [
    ("sqlite_wal_1", "wal", 2_000, 1),
    ("sqlite_wal_1000", "wal", 200_000, 1_000),
    ("sqlite_rollback_1", "delete", 1_000, 1),
    ("sqlite_rollback_1000", "delete", 200_000, 1_000),
];

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    CASES.iter().map(|(name, mode, rows, rows_each)| case(run, name, mode, run.scaled(*rows), *rows_each)).collect()
}

fn case(run: &Run, name: &'static str, mode: &str, rows: u64, rows_each: u64) -> Result<Metric, BenchError> {
    let path = run.path(name);
    let connection = create(&path, mode).map_err(|error| failed(&path, &error))?;
    run.sync_file_system()?;
    let (spent, ()) = run.time(|| {
        let inserted = insert(&connection, &run.pattern, rows, rows_each);
        inserted.map_err(|error| failed(&path, &error))
    })?;
    drop(connection);
    run.cold.make()?;
    check(&path, &run.pattern, rows)?;
    remove(&path)?;
    Ok(warm(Metric::count(name, rows, spent).durable("every transaction, by its commit")))
}

fn create(path: &Path, mode: &str) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", mode)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection
        .execute_batch("CREATE TABLE rows (number INTEGER PRIMARY KEY, key TEXT NOT NULL, content BLOB NOT NULL);")?;
    Ok(connection)
}

fn insert(connection: &Connection, pattern: &Pattern, rows: u64, rows_each: u64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("INSERT INTO rows VALUES (?1, ?2, ?3)")?;
    for first in (0..rows).step_by(rows_each as usize) {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for number in first..rows.min(first + rows_each) {
            statement.execute(params![number as i64, key_of(number), &content(pattern, number)[..]])?;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
}

fn check(path: &Path, pattern: &Pattern, rows: u64) -> Result<(), BenchError> {
    let wrong = |what: String| BenchError::WrongData { path: path.to_owned(), what };
    let connection = Connection::open(path).map_err(|error| failed(path, &error))?;
    let sound: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(|error| failed(path, &error))?;
    if sound != "ok" {
        return Err(wrong(sound));
    }
    let found = read_all(&connection).map_err(|error| failed(path, &error))?;
    if found.len() as u64 != rows {
        return Err(wrong(format!("{} rows, {rows} were inserted", found.len())));
    }
    for (number, (key, bytes)) in (0..).zip(&found) {
        if *key != key_of(number) || bytes[..] != content(pattern, number) {
            return Err(wrong(format!("row {number} is not as it was inserted")));
        }
    }
    Ok(())
}

fn read_all(connection: &Connection) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    let mut statement = connection.prepare("SELECT key, content FROM rows ORDER BY number")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn key_of(number: u64) -> String {
    format!("key-{number:08}")
}

fn content(pattern: &Pattern, number: u64) -> [u8; ROW_BYTES] {
    let mut block = [0; BLOCK_SIZE];
    pattern.fill(0, number, 0, &mut block);
    let mut row = [0; ROW_BYTES];
    row.copy_from_slice(&block[..ROW_BYTES]);
    row
}

/// The database with whatever SQLite left beside it.
fn remove(path: &Path) -> Result<(), BenchError> {
    for ending in ["", "-wal", "-shm", "-journal"] {
        let file = PathBuf::from(format!("{}{ending}", path.display()));
        if file.exists() {
            fs::remove_file(&file).at("unlink", &file)?;
        }
    }
    Ok(())
}

fn failed(path: &Path, error: &rusqlite::Error) -> BenchError {
    BenchError::Database { path: path.to_owned(), what: error.to_string() }
}
