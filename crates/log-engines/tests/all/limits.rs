//! What an engine refuses, and puts that are late. Read next: `contract.rs`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stere_log_engines::test_engines::{Etcd, PostgreSql};
use stere_shared_log::{Error, Put};

use crate::world::{DEADLINE, POOL, Server};

fn refusal<T>(outcome: Result<T, Error>) -> String {
    match outcome.map(drop).unwrap_err() {
        Error::Refused { why, .. } => why,
        other => panic!("it is no refusal: {other}"),
    }
}

/// Does something as another client.
fn by_hand(address: &str, statements: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        for statement in statements.split(';') {
            client.batch_execute(statement).await.unwrap();
        }
    });
}

/// The insert waits for a transaction in which its number is taken, trimmed and deleted: its snapshot knows none of it.
#[test]
fn a_put_that_began_before_the_trim_is_taken() {
    let Some(server) = Server::postgres() else { return };
    let log = server.create();
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    let address = server.address();
    let hand = std::thread::spawn(move || {
        let record = |number| {
            format!("INSERT INTO stere_log_record SELECT pool, {number}, '0123456789abcdef', 'x' FROM stere_log;")
        };
        let begin = format!("BEGIN; {} {} SELECT pg_sleep(2);", record(2), record(3));
        by_hand(
            &address,
            &format!("{begin} UPDATE stere_log SET first = 3; DELETE FROM stere_log_record WHERE number < 3; COMMIT"),
        );
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(log.put(2, b"late").unwrap(), Put::Taken);
    hand.join().unwrap();
    assert_eq!(log.bounds().unwrap().first, 3);
    assert_eq!(log.read(3, 100).unwrap().len(), 1);
}

#[test]
fn postgres_says_what_is_wrong() {
    let Some(mut server) = PostgreSql::start() else { return };
    let address = server.address();
    let log = stere_log_engines::create(&address, POOL, "test").unwrap();
    let open = |address: &str| stere_log_engines::open_with(address, POOL, DEADLINE);
    assert!(refusal(open(&address.replace("/postgres?", "/nowhere?"))).contains("create the database"));
    assert!(refusal(open(&address.replace("/postgres?", "/template1?"))).contains("no pool has a log"));
    assert!(refusal(open(&address.replace("stere@", "nobody@"))).contains("nobody"));
    by_hand(&address, "CREATE ROLE reader LOGIN; GRANT SELECT ON stere_log, stere_log_record TO reader");
    assert!(
        refusal(open(&address.replace("stere@", "reader@"))).contains("grant it SELECT, INSERT, UPDATE and DELETE")
    );
    assert!(
        refusal(stere_log_engines::create(
            &address.replace("/postgres?", "/template1?").replace("stere@", "reader@"),
            POOL,
            "x"
        ))
        .contains("own the database")
    );
    assert!(open(&address.replace("disable", "require")).is_err_and(|error| error.to_string().contains("TLS")));
    by_hand(
        &address,
        "ALTER ROLE stere SET synchronous_commit = off; ALTER ROLE stere SET default_transaction_isolation = 'serializable'",
    );
    server.restart();
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    by_hand(&address, "ALTER ROLE stere SET default_transaction_read_only = on");
    assert!(refusal(open(&address)).contains("only reads"));
    by_hand(&address, "BEGIN READ WRITE; ALTER ROLE stere RESET ALL; COMMIT");
    assert_eq!(open(&address).unwrap().bounds().unwrap().next, 2);
}

/// A password that was changed refuses whoever still has the old one, as a user that may not log in is refused.
#[test]
fn postgres_is_asked_anew_by_the_user_that_is_remembered_by_then() {
    let Some(server) = PostgreSql::start() else { return };
    let address = server.address();
    drop(stere_log_engines::create(&address, POOL, "test").unwrap());
    by_hand(&address, "CREATE ROLE one SUPERUSER LOGIN; CREATE ROLE two SUPERUSER LOGIN");
    let of_user = |user: &str| address.replace("stere@", &format!("{user}@"));
    let remembered = Arc::new(Mutex::new(of_user("one")));
    let now = remembered.clone();
    let renew = Box::new(move || Some(now.lock().unwrap().clone()));
    let log = stere_log_engines::open_renewed(&of_user("one"), POOL, renew).unwrap();
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    by_hand(
        &address,
        "ALTER ROLE one NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'one'",
    );
    assert!(refusal(log.put(2, b"two")).contains("log in"));
    *remembered.lock().unwrap() = of_user("two");
    assert_eq!(log.put(2, b"two").unwrap(), Put::Mine);
    // It is the same writer: what it put is settled as its own.
    assert_eq!(log.put(2, b"two").unwrap(), Put::Mine);
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
}

#[test]
fn postgres_without_fsync_is_refused() {
    let Some(server) = PostgreSql::start_with(&["fsync=off"]) else { return };
    assert!(refusal(stere_log_engines::create(&server.address(), POOL, "test")).contains("fsync=on"));
}

#[test]
fn a_gap_made_by_hand_is_damage() {
    let Some(server) = Server::postgres() else { return };
    let log = server.create();
    for sequence in 1..=5 {
        assert_eq!(log.put(sequence, b"x").unwrap(), Put::Mine);
    }
    by_hand(&server.address(), "DELETE FROM stere_log_record WHERE number = 3");
    assert!(matches!(log.read(1, 100), Err(Error::Damaged { .. })));
    assert!(matches!(log.put(3, b"x"), Err(Error::Damaged { .. })));
    by_hand(&server.address(), "DELETE FROM stere_log_record");
    assert!(matches!(log.put(6, b"x"), Err(Error::Damaged { .. })));
}

#[test]
fn a_full_etcd_refuses_and_trimming_keeps_it_small() {
    let Some(server) = Etcd::start_with(&["--quota-backend-bytes=25000000"]) else { return };
    let log = stere_log_engines::create(&server.address(), POOL, "test").unwrap();
    let record = vec![3; 1 << 20];
    for sequence in 1..=60 {
        assert_eq!(log.put(sequence, &record).unwrap(), Put::Mine, "record {sequence}");
        if sequence % 4 == 0 {
            log.trim(sequence).unwrap();
            // Compaction is done in the background.
            std::thread::sleep(Duration::from_millis(250));
        }
    }
    let mut refused = None;
    for sequence in 61..=120 {
        match log.put(sequence, &record) {
            Ok(put) => assert_eq!(put, Put::Mine),
            outcome => {
                refused = Some(refusal(outcome));
                break;
            }
        }
    }
    let why = refused.expect("25 MB are full");
    assert!(why.contains("space exceeded") && why.contains("disarm"), "{why}");
}

/// P-289: what a put costs does not grow with the log: the table is never read from one end to the other, whatever the server believes of it.
#[test]
fn postgres_reads_no_more_than_it_is_asked_for() {
    let Some(server) = PostgreSql::start() else { return };
    let log = stere_log_engines::create(&server.address(), POOL, "test").unwrap();
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    // Statements are planned by now; a server that then looks at its statistics plans them again.
    server.execute(
        "INSERT INTO stere_log_record SELECT pool, number, '0123456789abcdef', decode(repeat('ab', 600), 'hex')
         FROM stere_log, generate_series(2, 30000) AS number",
    );
    server.execute("ANALYZE");
    server.execute("SELECT pg_stat_reset()");
    for number in 30_001..30_050 {
        assert_eq!(log.put(number, b"another").unwrap(), Put::Mine);
    }
    assert_eq!(log.read(30_040, 1 << 20).unwrap().len(), 10);
    log.bounds().unwrap();
    log.trim(20_000).unwrap();
    assert_eq!(log.put(30_050, b"the last").unwrap(), Put::Mine);
    // A session that ends tells what it did.
    drop(log);
    std::thread::sleep(Duration::from_secs(2));
    server.execute(
        "SELECT 1 / CASE WHEN seq_tup_read = 0 THEN 1 ELSE 0 END FROM pg_stat_user_tables
         WHERE relname = 'stere_log_record'",
    );
}
