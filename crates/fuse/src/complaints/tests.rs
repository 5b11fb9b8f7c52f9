//! Limits of logging.

use super::{Complaints, PER_SECOND_MAX};

#[test]
fn a_second_takes_a_few() {
    let complaints = Complaints::default();
    let logged = |second| (0..100).filter(|_| complaints.may_log(second)).count();
    assert_eq!(logged(5), PER_SECOND_MAX as usize);
    assert_eq!(logged(5), 0);
    assert_eq!(logged(6), PER_SECOND_MAX as usize);
}
