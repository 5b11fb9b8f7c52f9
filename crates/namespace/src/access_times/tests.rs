use super::*;

#[test]
fn what_is_noted_while_others_are_saved_is_counted() {
    let gathered = Gathered::default();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for seconds in 0..500_000 {
                gathered.set(1, Timestamp { seconds, nanoseconds: 0 });
            }
        });
        while !reader.is_finished() {
            gathered.saved(&gathered.all());
        }
    });
    gathered.saved(&gathered.all());
    assert_eq!(gathered.count.load(Ordering::Acquire), 0);
}
