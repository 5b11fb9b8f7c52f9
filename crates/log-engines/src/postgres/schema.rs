//! The tables in PostgreSQL and the statements on them; `docs/format/shared-log.md` describes them.
//!
//! Invariant: rows of `stere_log_record` vanish only after a transaction, or in one, that moves `first` past them. So an
//! insert that finds a number free because its row is gone already sees the moved `first` in its next statement (`CHECK`),
//! however old the snapshot of the insert was. Read next: `../postgres.rs`.

/// The version of what lies there.
pub(super) const VERSION: i32 = 1;

/// Held while tables are made, so that two who make them do not meet.
pub(super) const LOCK_FOR_TABLES: &str = "SELECT pg_advisory_xact_lock(8391171954871430516)";

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS stere_log (
    pool bytea PRIMARY KEY CHECK (octet_length(pool) = 16),
    version int4 NOT NULL,
    name text NOT NULL,
    first int8 NOT NULL CHECK (first >= 1),
    beat bytea NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS stere_log_record (
    pool bytea NOT NULL,
    number int8 NOT NULL CHECK (number >= 1),
    writer bytea NOT NULL CHECK (octet_length(writer) = 16),
    record bytea NOT NULL,
    PRIMARY KEY (pool, number)
);
ALTER TABLE stere_log_record ALTER COLUMN record SET STORAGE EXTERNAL";

/// Made on demand: logs that were made before there was a registry have none.
pub(super) const MACHINE_TABLE: &str = "
CREATE TABLE IF NOT EXISTS stere_log_machine (
    pool bytea NOT NULL,
    machine bytea NOT NULL CHECK (octet_length(machine) = 16),
    entry bytea NOT NULL,
    PRIMARY KEY (pool, machine)
)";
pub(super) const HAS_MACHINE_TABLE: &str = "SELECT to_regclass('stere_log_machine') IS NOT NULL";

/// One row at least where there is a log.
pub(super) const MACHINES: &str = "SELECT one.machine, one.entry FROM stere_log AS log
    LEFT JOIN stere_log_machine AS one ON one.pool = log.pool WHERE log.pool = $1 ORDER BY one.machine";
/// Also where it is there already: an answer was lost. The log's row is locked, so that it is not removed meanwhile, and
/// machines are counted one after the other.
pub(super) const LOCK_LOG: &str = "SELECT FROM stere_log WHERE pool = $1 FOR NO KEY UPDATE";
pub(super) const ADD_MACHINE: &str = "INSERT INTO stere_log_machine (pool, machine, entry)
    SELECT $1::bytea, $2::bytea, $3::bytea
    WHERE (SELECT count(*) FROM stere_log_machine WHERE pool = $1) < $4::int8
    ON CONFLICT DO NOTHING";
pub(super) const REPLACE_MACHINE: &str = "UPDATE stere_log_machine SET entry = $3
    WHERE pool = $1 AND machine = $2 AND entry IN ($3, $4)";
pub(super) const MACHINE: &str = "SELECT entry FROM stere_log_machine WHERE pool = $1 AND machine = $2";
pub(super) const DELETE_MACHINES: &str = "DELETE FROM stere_log_machine WHERE pool = $1";

/// In a snapshot of its own for each statement, whatever the database's default is.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// Nothing happens unless the number is free, is not trimmed, and follows the last one: holes are never filled. The last one is asked for
/// in its order: of "none is greater" a planner that counts on finding some soon reads the whole table.
pub(super) const INSERT: &str = "INSERT INTO stere_log_record (pool, number, writer, record)
    SELECT $1::bytea, $2::int8, $3::bytea, $4::bytea FROM stere_log AS log
    WHERE log.pool = $1 AND log.first <= $2
        AND coalesce((SELECT number FROM stere_log_record WHERE pool = $1 ORDER BY number DESC LIMIT 1), 0) = $2 - 1
    ON CONFLICT DO NOTHING";

/// Fails, and the transaction with it, when the number is trimmed by now or the log is gone.
pub(super) const CHECK: &str =
    "SELECT 1 / CASE WHEN (SELECT first FROM stere_log WHERE pool = $1) <= $2 THEN 1 ELSE 0 END";

/// Who has a number, and where the log ends.
pub(super) const WHOSE: &str = "SELECT log.first, found.writer, found.record,
        (SELECT max(number) FROM stere_log_record WHERE pool = $1)
    FROM stere_log AS log LEFT JOIN stere_log_record AS found ON found.pool = $1 AND found.number = $2
    WHERE log.pool = $1";

pub(super) const BOUNDS: &str = "SELECT log.first, (SELECT max(number) FROM stere_log_record WHERE pool = $1),
        EXISTS (SELECT FROM stere_log_record WHERE pool = $1 AND number = log.first)
    FROM stere_log AS log WHERE log.pool = $1";

/// One page; one snapshot for `first` and the records.
pub(super) const PAGE: &str = "SELECT log.first, page.number, page.record FROM stere_log AS log
    LEFT JOIN (
        SELECT number, record FROM (
            SELECT number, record, row_number() OVER (ORDER BY number) AS place,
                sum(octet_length(record)) OVER (ORDER BY number) AS bytes
            FROM (
                SELECT number, record FROM stere_log_record
                WHERE pool = $1 AND number >= $2 ORDER BY number LIMIT $4
            ) AS next
        ) AS counted
        WHERE place = 1 OR bytes <= $3
    ) AS page ON true
    WHERE log.pool = $1 ORDER BY page.number";

/// Moves `first`, never past the last record, and says where it is.
pub(super) const MOVE_FIRST: &str = "UPDATE stere_log SET first = greatest(first,
        least($2, coalesce((SELECT max(number) FROM stere_log_record WHERE pool = $1), 1)))
    WHERE pool = $1 RETURNING first";

pub(super) const DELETE_TRIMMED: &str = "DELETE FROM stere_log_record WHERE pool = $1 AND number IN (
        SELECT number FROM stere_log_record
        WHERE pool = $1 AND number < (SELECT first FROM stere_log WHERE pool = $1) ORDER BY number LIMIT $2
    )";

pub(super) const BEAT: &str = "UPDATE stere_log SET beat = $2 WHERE pool = $1";
pub(super) const LAST_BEAT: &str = "SELECT beat FROM stere_log WHERE pool = $1";
/// A beat need not survive, and must not wait for a standby.
pub(super) const BEAT_IS_LIGHT: &str = "SET LOCAL synchronous_commit = off";

pub(super) const OPEN: &str = "SELECT version,
        has_table_privilege('stere_log', 'SELECT') AND has_table_privilege('stere_log', 'UPDATE')
        AND has_table_privilege('stere_log_record', 'SELECT') AND has_table_privilege('stere_log_record', 'INSERT')
        AND has_table_privilege('stere_log_record', 'DELETE')
    FROM stere_log WHERE pool = $1";

pub(super) const POOLS: &str = "SELECT pool, name FROM stere_log ORDER BY pool";
pub(super) const HAS_TABLES: &str = "SELECT to_regclass('stere_log') IS NOT NULL";

/// Waits for the puts that are under way, and lets none begin.
pub(super) const LOCK_RECORDS: &str = "LOCK TABLE stere_log_record IN SHARE ROW EXCLUSIVE MODE";
pub(super) const IS_USED: &str = "SELECT first > 1 OR EXISTS (SELECT FROM stere_log_record WHERE pool = $1)
    FROM stere_log WHERE pool = $1";
pub(super) const ADD: &str = "INSERT INTO stere_log (pool, version, name, first, beat) VALUES ($1, $2, $3, 1, '')
    ON CONFLICT (pool) DO UPDATE SET version = $2, name = $3, beat = ''";
pub(super) const DELETE_LOG: &str = "DELETE FROM stere_log WHERE pool = $1";
pub(super) const DELETE_RECORDS: &str = "DELETE FROM stere_log_record WHERE pool = $1";
