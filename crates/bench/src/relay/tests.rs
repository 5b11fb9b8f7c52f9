use super::*;

const DELAY: Duration = Duration::from_millis(200);
/// Some thirty pieces.
const ANSWER_BYTES: usize = 2_000_000;

/// A byte of the answer to a question.
fn answered(at: usize, question: u8) -> u8 {
    (at % 251) as u8 ^ question
}

/// Answers at once.
fn server() -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in server.incoming() {
            let mut client = client.unwrap();
            std::thread::spawn(move || {
                let mut question = [0; 4];
                while client.read_exact(&mut question).is_ok() {
                    let answer: Vec<u8> = (0..ANSWER_BYTES).map(|at| answered(at, question[0])).collect();
                    client.write_all(&answer).unwrap();
                }
            });
        }
    });
    address
}

/// How long the first byte of an answer and all of it take, for one question after another over one connection to there.
fn rounds(address: &str) -> Vec<(Duration, Duration)> {
    let mut client = TcpStream::connect(address).unwrap();
    let round = |number: u8| {
        let start = Instant::now();
        client.write_all(&[number; 4]).unwrap();
        let mut answer = vec![0; ANSWER_BYTES];
        client.read_exact(&mut answer[..1]).unwrap();
        let first = start.elapsed();
        client.read_exact(&mut answer[1..]).unwrap();
        assert!(answer.iter().enumerate().all(|(at, byte)| *byte == answered(at, number)));
        (first, start.elapsed())
    };
    (1..=3).map(round).collect()
}

/// What is said arrives whole, in order, no sooner than it may, and without one piece's delay being added to another's.
#[test]
fn answers_come_later_and_whole() {
    let address = server();
    // What proves nothing is known as such: the server itself is far quicker than one way takes.
    assert!(rounds(&address).iter().all(|(first, _)| *first < DELAY));
    let (sender, receiver) = channel();
    std::thread::spawn(move || run(&address, DELAY, |at| sender.send(at).unwrap()));
    // The first time the connection is made too.
    for ((first, whole), ways) in rounds(&receiver.recv().unwrap()).into_iter().zip([4, 2, 2]) {
        assert!(first >= DELAY * ways, "the first byte after {first:?}, and it is {ways} ways");
        assert!(whole < DELAY * (ways + 10), "all of it after {whole:?}, and it is {ways} ways");
    }
}
