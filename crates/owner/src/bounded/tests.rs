//! Who sends a byte now and then is not heard for ever.

use std::io::Write;
use std::net::TcpListener;

use super::*;

#[test]
fn a_slow_stranger_is_heard_for_so_long() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut stranger = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
    let (socket, _) = listener.accept().expect("a stranger");
    let drip = std::thread::spawn(move || {
        while stranger.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let begun = Instant::now();
    let mut bounded = Bounded::new(socket, Duration::from_secs(1), Duration::from_millis(200)).expect("a socket");
    assert!(bounded.read_exact(&mut [0; 10_000]).is_err());
    assert!(begun.elapsed() < Duration::from_secs(1));
    bounded.trust().expect("a socket");
    bounded.read_exact(&mut [0; 20]).expect("heard again");
    drop(bounded);
    drip.join().expect("no panic");
}
