use super::*;

#[test]
fn errors_come_back_with_their_tags() {
    let completion = Completion::new();
    assert!(completion.is_done());
    let (good, bad) = (completion.ticket(1), completion.ticket(2));
    assert!(completion.try_wait().is_none());
    good.finish(Ok(()));
    bad.finish(Err(DeviceError::Absent { device: "d".into() }));
    let errors = completion.wait();
    assert_eq!(errors.len(), 1);
    assert!(matches!(errors[0], (2, DeviceError::Absent { .. })));
    assert!(completion.wait().is_empty(), "errors are handed out once");
}

#[test]
fn a_dropped_ticket_is_a_failed_write() {
    let completion = Completion::new();
    drop(completion.ticket(9));
    assert!(matches!(completion.wait()[..], [(9, DeviceError::Abandoned)]));
}

#[test]
fn wait_blocks_until_another_thread_finishes() {
    let completion = Completion::new();
    let tickets: Vec<Ticket> = (0..8).map(|tag| completion.ticket(tag)).collect();
    std::thread::scope(|scope| {
        scope.spawn(move || tickets.into_iter().for_each(|ticket| ticket.finish(Ok(()))));
        assert!(completion.wait().is_empty());
    });
}

#[test]
fn a_counter_counts_every_end() {
    let (completion, counter, failed) = (Completion::new(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    completion.ticket(1).counted_in(&counter, &failed).finish(Ok(()));
    drop(completion.ticket(2).counted_in(&counter, &failed));
    assert_eq!((counter.load(Ordering::SeqCst), failed.load(Ordering::SeqCst)), (2, 1));
    assert_eq!(completion.wait().len(), 1);
}
