//! Who waits for whom (P-280): answers are let go when nobody holds them any more.

use super::*;

struct Writer {
    asked: Mutex<Vec<Arc<Answer>>>,
}

struct Answer;

type Tested = Appends<Writer, Answer>;

fn confirm(writer: &Arc<Writer>, answer: &Arc<Answer>) {
    writer.asked.lock().push(Arc::clone(answer));
}

struct Site {
    appends: Arc<Tested>,
    writers: [Arc<Writer>; 2],
}

impl Site {
    fn new() -> Site {
        let writer = || Arc::new(Writer { asked: Mutex::default() });
        Site { appends: Arc::new(Appends::new(confirm)), writers: [writer(), writer()] }
    }

    fn begin(&self, who: usize) -> Appending<Writer, Answer> {
        self.appends.begin(&self.writers[who], who as u64, 5)
    }

    /// Performed; the answer is waited for as long as somebody holds it.
    fn placed(&self, one: &Appending<Writer, Answer>, range: (u64, u64), mark: u64) -> Weak<Answer> {
        let answer = Arc::new(Answer);
        self.appends.placed(&one.under_way(), 5, range, mark, &answer);
        Arc::downgrade(&answer)
    }
}

fn waits(answer: &Weak<Answer>) -> bool {
    answer.strong_count() > 0
}

#[test]
fn an_append_waits_until_the_one_before_is_answered_and_heard() {
    let site = Site::new();
    let (first, second) = (site.begin(0), site.begin(1));
    let of_second = site.placed(&second, (10, 20), 2);
    assert!(waits(&of_second), "the first may lie before it");
    let of_first = site.placed(&first, (0, 10), 1);
    assert!(waits(&of_second) && !waits(&of_first));
    drop(first);
    assert!(waits(&of_second), "its client is to say that it has the answer");
    site.writers[0].asked.lock().clear();
    assert!(!waits(&of_second));
}

#[test]
fn nobody_waits_in_a_circle() {
    let site = Site::new();
    let (first, second) = (site.begin(0), site.begin(1));
    let of_second = site.placed(&second, (0, 10), 1);
    let of_first = site.placed(&first, (10, 20), 2);
    assert!(!waits(&of_second), "it lies before");
    assert!(waits(&of_first));
    drop(second);
    site.writers[1].asked.lock().clear();
    assert!(!waits(&of_first));
}

#[test]
fn what_was_answered_a_moment_ago_is_to_be_heard_too_until_it_is_durable() {
    let site = Site::new();
    let first = site.begin(0);
    site.placed(&first, (0, 10), 1);
    drop(first);
    let second = site.begin(1);
    let answer = site.placed(&second, (10, 20), 2);
    assert!(waits(&answer) && site.writers[0].asked.lock().len() == 1);
    drop(second);
    let again = site.begin(1);
    assert!(!waits(&site.placed(&again, (20, 30), 3)), "its own answers come in order");
    drop(again);
    site.appends.let_go(3);
    let other = site.begin(0);
    assert!(!waits(&site.placed(&other, (30, 40), 4)));
    drop(other);
    site.appends.let_go(4);
    assert!(site.appends.files.lock().is_empty());
}

#[test]
fn an_append_that_fails_holds_nobody_up() {
    let site = Site::new();
    let (first, second) = (site.begin(0), site.begin(1));
    let answer = site.placed(&second, (0, 10), 1);
    assert!(waits(&answer));
    drop(first);
    assert!(!waits(&answer) && site.writers[0].asked.lock().is_empty());
}
