use proptest::prelude::*;

use super::*;

fn request(ticket: u64, cartridge: u8, file: u32) -> Request {
    Request { ticket, cartridge: format!("C{cartridge}"), file, passed: 0 }
}

/// Serves everything with so many drives, one after the other; the order, and how often a cartridge was fetched.
fn serve(mut requests: Vec<Request>, drives: usize) -> (Vec<(String, u32)>, usize) {
    let mut bays = vec![Bay { loaded: None, file: 0, is_free: true }; drives];
    let (mut order, mut fetched) = (Vec::new(), 0);
    while !requests.is_empty() {
        let (bay, at) = choose(&bays, &requests).expect("free drives serve somebody");
        let request = requests.remove(at);
        requests.iter_mut().for_each(|other| other.passed += 1);
        fetched += usize::from(bays[bay].loaded.as_ref() != Some(&request.cartridge));
        bays[bay] = Bay { loaded: Some(request.cartridge.clone()), file: request.file + 1, is_free: true };
        order.push((request.cartridge, request.file));
    }
    (order, fetched)
}

#[test]
fn cartridges_are_fetched_once_and_read_onwards() {
    let files = [(0, 9), (1, 5), (0, 3), (1, 1), (0, 6)];
    let requests = files.iter().enumerate().map(|(at, (cartridge, file))| request(at as u64, *cartridge, *file));
    let (order, fetched) = serve(requests.collect(), 1);
    let order: Vec<_> = order.iter().map(|(cartridge, file)| (cartridge.as_str(), *file)).collect();
    assert_eq!(order, [("C0", 3), ("C0", 6), ("C0", 9), ("C1", 1), ("C1", 5)]);
    assert_eq!(fetched, 2);
}

#[test]
fn what_is_in_a_busy_drive_waits_for_it() {
    let busy = Bay { loaded: Some("C0".into()), file: 0, is_free: false };
    let free = Bay { loaded: None, file: 0, is_free: true };
    let mut overdue = request(0, 0, 1);
    overdue.passed = PATIENCE;
    assert_eq!(choose(&[busy.clone(), free.clone()], &[overdue.clone()]), None);
    assert_eq!(choose(&[busy, free], &[overdue, request(1, 1, 1)]), Some((1, 1)));
}

proptest! {
    /// P-102
    #[test]
    fn everybody_is_served_with_few_fetches(cartridges in proptest::collection::vec((0u8..6, 0u32..50), 1..60), drives in 1usize..4) {
        let requests: Vec<_> = cartridges.iter().enumerate().map(|(at, (cartridge, file))| request(at as u64, *cartridge, *file)).collect();
        let different: std::collections::BTreeSet<_> = cartridges.iter().map(|(cartridge, _)| cartridge).collect();
        let (order, fetched) = serve(requests.clone(), drives);
        prop_assert_eq!(order.len(), requests.len());
        // Fewer requests than anybody's patience: no cartridge is fetched twice.
        prop_assert_eq!(fetched, different.len());
    }

    #[test]
    fn nobody_waits_for_ever(busy_file in 0u32..50) {
        let mut waiting = request(0, 1, 0);
        let bay = Bay { loaded: Some("C0".into()), file: 0, is_free: true };
        let mut rounds = 0;
        while choose(std::slice::from_ref(&bay), &[waiting.clone(), request(1, 0, busy_file)]) == Some((0, 1)) {
            waiting.passed += 1;
            rounds += 1;
            prop_assert!(rounds <= PATIENCE);
        }
    }
}
