use super::*;

/// What is said arrives whole, in order, and no sooner than it may.
#[test]
fn answers_come_later_and_whole() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in server.incoming() {
            let mut client = client.unwrap();
            std::thread::spawn(move || {
                let mut question = [0; 4];
                while client.read_exact(&mut question).is_ok() {
                    let answer: Vec<u8> = (0..300_000).map(|at: u32| (at % 251) as u8 ^ question[0]).collect();
                    client.write_all(&answer).unwrap();
                }
            });
        }
    });
    let delay = Duration::from_millis(200);
    let (sender, receiver) = channel();
    std::thread::spawn(move || run(&address, delay, |at| sender.send(at).unwrap()));
    let mut client = TcpStream::connect(receiver.recv().unwrap()).unwrap();
    for (round, ways) in [(1, 4), (2, 2)] {
        let start = Instant::now();
        client.write_all(&[round; 4]).unwrap();
        let mut answer = vec![0; 300_000];
        client.read_exact(&mut answer).unwrap();
        assert!(answer.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8 ^ round));
        // The first time the connection is made too.
        assert!(start.elapsed() >= delay * ways, "{:?}", start.elapsed());
    }
}
