//! Engines that are silent, gone, restarted, or older than they were; answers that are lost. Read next: `limits.rs`.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use stere_shared_log::{Bounds, Error, Put};

use crate::proxy::Proxy;
use crate::world::{DEADLINE, POOL, Server};

crate::on_both!(
    a_restarted_engine_is_found_again,
    a_paused_engine_is_away_in_time,
    a_lost_answer_is_settled,
    an_older_state_shows_in_the_bounds
);

const SHORT: Duration = Duration::from_secs(2);
/// Beyond the deadline, for a busy machine.
const GRACE: Duration = Duration::from_secs(1);

fn is_away<T>(outcome: Result<T, Error>) -> bool {
    outcome.is_err_and(|error| error.is_away())
}

fn a_restarted_engine_is_found_again(mut server: Server) {
    let log = server.create();
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    server.restart();
    assert_eq!(log.put(2, b"two").unwrap(), Put::Mine);
    server.kill_and_restart();
    assert_eq!(log.put(3, b"three").unwrap(), Put::Mine);
    assert_eq!(log.read(1, 100).unwrap().len(), 3);
}

fn a_paused_engine_is_away_in_time(server: Server) {
    server.create();
    let log = stere_log_engines::open_with(&server.address(), POOL, SHORT).unwrap();
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    server.pause();
    for sequence in 2..4 {
        let begun = Instant::now();
        assert!(is_away(log.put(sequence, b"two")), "with an old connection, and with a new one");
        assert!(begun.elapsed() < SHORT + GRACE, "{:?}", begun.elapsed());
    }
    let begun = Instant::now();
    assert!(is_away(stere_log_engines::open_with(&server.address(), POOL, SHORT).map(drop)));
    assert!(begun.elapsed() < 2 * SHORT + GRACE);
    server.resume();
    let other = server.open();
    let next = other.bounds().unwrap().next;
    assert!((2..4).contains(&next));
    assert_eq!(log.put(2, b"two").unwrap(), Put::Mine);
    assert_eq!(other.put(2, b"two").unwrap(), Put::Taken);
}

fn a_lost_answer_is_settled(server: Server) {
    let other = server.create();
    let proxy = Proxy::start(server.port());
    let log = stere_log_engines::open_with(&server.address_by(proxy.port), POOL, DEADLINE).unwrap();
    assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
    proxy.lose_answers(1);
    assert_eq!(log.put(2, b"two").unwrap(), Put::Mine, "it looked whose record is there");
    proxy.lose_answers(1000);
    assert!(is_away(log.put(3, b"three")));
    assert!(is_away(log.bounds()));
    proxy.lose_answers(0);
    assert_eq!(log.put(3, b"three").unwrap(), Put::Mine);
    assert_eq!(other.put(3, b"three").unwrap(), Put::Taken);
    assert_eq!(other.read(1, 100).unwrap().len(), 3, "nothing lies there twice");
}

fn an_older_state_shows_in_the_bounds(mut server: Server) {
    let log = server.create();
    for sequence in 1..=3 {
        assert_eq!(log.put(sequence, b"x").unwrap(), Put::Mine);
    }
    server.save_state();
    assert_eq!(log.put(4, b"x").unwrap(), Put::Mine);
    assert_eq!(log.put(5, b"x").unwrap(), Put::Mine);
    server.restore_state();
    assert_eq!(log.bounds().unwrap(), Bounds { first: 1, next: 4 });
    assert!(matches!(log.put(6, b"x"), Err(Error::Damaged { .. })));
}

/// It accepts, and never says a word.
#[test]
fn a_silent_server_is_away_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for address in [format!("postgres://u:secret@127.0.0.1:{port}/d"), format!("etcd://127.0.0.1:{port}")] {
        let begun = Instant::now();
        let error = stere_log_engines::open_with(&address, POOL, SHORT).map(drop).unwrap_err();
        assert!(error.is_away() && !error.to_string().contains("secret"), "{error}");
        assert!(begun.elapsed() < SHORT + GRACE, "{:?}", begun.elapsed());
    }
}

#[test]
fn the_host_that_can_be_written_to_is_found() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for server in [Server::postgres(), Server::etcd()].into_iter().flatten() {
        server.create();
        let own = server.port();
        let address = server.address().replace(&format!(":{own}"), &format!(":{port},127.0.0.1:1,127.0.0.1:{own}"));
        let log = stere_log_engines::open_with(&address, POOL, DEADLINE).unwrap();
        assert_eq!(log.put(1, b"one").unwrap(), Put::Mine);
        let begun = Instant::now();
        assert_eq!(log.put(2, b"two").unwrap(), Put::Mine);
        assert!(begun.elapsed() < SHORT, "the host that answered is asked first");
    }
}
