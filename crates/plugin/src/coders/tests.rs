use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Threads that are started for each call, and how many jobs each call had.
#[derive(Default)]
struct Fresh(Mutex<Vec<usize>>);

impl Parallel for Fresh {
    fn run<'a>(&self, jobs: Vec<Job<'a>>) {
        self.0.lock().push(jobs.len());
        std::thread::scope(|scope| jobs.into_iter().for_each(|job| drop(scope.spawn(job))));
    }
}

#[test]
fn what_comes_out_is_in_order_whoever_did_it() {
    let threads = Arc::new(Fresh::default());
    let coders = Coders::new(4, threads.clone());
    let items: Vec<usize> = (0..1000).collect();
    assert_eq!(coders.map(items.clone(), |item| item * 3), items.iter().map(|item| item * 3).collect::<Vec<_>>());
    assert_eq!((coders.map(vec![7, 8], |item| item), coders.map(vec![9], |item| item)), (vec![7, 8], vec![9]));
    assert_eq!(coders.map(Vec::<u8>::new(), |item| item), []);
    assert_eq!(*threads.0.lock(), [4, 2], "no more jobs than items, and no thread for one item");
    assert_eq!(Coders::default().map(items.clone(), |item| item), items);
}

#[test]
fn others_help_with_processors_that_nobody_has() {
    let threads = Arc::new(Fresh::default());
    let coders = Coders::new(3, threads.clone());
    // One request has one processor, a second inside of it finds two, a third none.
    let third = |_: u8| coders.map(vec![1, 2, 3], |item| item).len();
    let second = |_: u8| coders.map(vec![1, 2, 3], third);
    assert_eq!(coders.map(vec![0], second), [[3, 3, 3]]);
    assert_eq!(*threads.0.lock(), [2]);
    // All that were counted are counted no more.
    coders.map(vec![1, 2, 3], |item| item);
    assert_eq!(*threads.0.lock(), [2, 3]);
}

#[test]
fn who_panics_works_no_longer() {
    let threads = Arc::new(Fresh::default());
    let coders = Coders::new(2, threads.clone());
    for _ in 0..3 {
        let work = |item: u32| assert!(item < 2, "the third item");
        assert!(catch_unwind(AssertUnwindSafe(|| coders.map(vec![0, 1, 2], work))).is_err());
    }
    assert_eq!(*threads.0.lock(), [2, 2, 2]);
}
