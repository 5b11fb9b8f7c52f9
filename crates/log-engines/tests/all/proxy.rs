//! A line to an engine that loses answers. Read next: `absence.rs`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

pub struct Proxy {
    pub port: u16,
    /// So many of the next answers are lost, and their connections end.
    lost: Arc<AtomicI64>,
}

impl Proxy {
    pub fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let lost = Arc::new(AtomicI64::new(0));
        let proxy = Proxy { port, lost: lost.clone() };
        // These threads end with the test program, or when a side goes.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", to)) {
                    serve(client, server, lost.clone());
                }
            }
        });
        proxy
    }

    pub fn lose_answers(&self, count: i64) {
        self.lost.store(count, Ordering::SeqCst);
    }
}

fn serve(client: TcpStream, server: TcpStream, lost: Arc<AtomicI64>) {
    let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(std::net::Shutdown::Both);
    });
    std::thread::spawn(move || {
        let (mut client, mut server) = (client, server);
        let mut buffer = [0; 65536];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            if lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left > 0).then(|| left - 1)).is_ok() {
                break;
            }
            if client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (client.shutdown(std::net::Shutdown::Both), server.shutdown(std::net::Shutdown::Both));
    });
}
