use super::*;

const STALE: &str = "a read returns what was acknowledged";
const LOST: &str = "an acknowledged request is in the log";
const TWICE: &str = "a request takes effect at most once";
const OVERWRITTEN: &str = "a slot holds what the commit record names";
const BELIEVED: &str = "a machine believes what is so";
const KEPT: &str = "what a machine was told is there";
const MADE_TWICE: &str = "a change is made at most once";
const SHOWN: &str = "what is read shows what was answered before";
const NEWER: &str = "no old bytes come over newer ones";
const ALONE: &str = "nobody gathers what another one has open";

/// What each bug violates, and after how many steps at least; `docs/design/protocol-model.md` has the same numbers.
const FOUND: [(Bug, &str, usize); 34] = [
    (Bug::AcknowledgedBeforePut, LOST, 7),
    (Bug::CommitRepeatedTwice, TWICE, 15),
    (Bug::FencedStillAcknowledges, LOST, 11),
    (Bug::LostAnswerTakenForNo, TWICE, 9),
    (Bug::StaleReadAfterLease, STALE, 15),
    (Bug::EpochRecordSkipped, STALE, 14),
    (Bug::SilenceBeforeEpochRecord, STALE, 15),
    (Bug::TrimForgetsRequests, TWICE, 20),
    (Bug::SlotGrantedTwice, OVERWRITTEN, 13),
    (Bug::LateWriteIntoReusedSlot, OVERWRITTEN, 14),
    (Bug::PutBeforeFlush, OVERWRITTEN, 8),
    (Bug::WriteBeforeGrant, OVERWRITTEN, 11),
    (Bug::LeasedWhileChanging, BELIEVED, 8),
    (Bug::LeasedThoughChangedSince, BELIEVED, 9),
    (Bug::ChangeBelievedAmongOthers, BELIEVED, 10),
    (Bug::BelievedThoughRecalled, BELIEVED, 8),
    (Bug::ChangedBeforeHeard, BELIEVED, 8),
    (Bug::GivenUpBeforeLeaseIsOver, BELIEVED, 10),
    (Bug::EarlyThoughOthersMayLose, KEPT, 9),
    (Bug::SeenBeforeCommitted, KEPT, 4),
    (Bug::EarlyAmongOthers, KEPT, 7),
    (Bug::RedoneThoughNoted, MADE_TWICE, 7),
    (Bug::EarlyAfterLostAnswer, KEPT, 9),
    (Bug::ServedBeforeAllIsTold, KEPT, 7),
    (Bug::CommitCoversLater, KEPT, 8),
    (Bug::ServedThoughGathered, NEWER, 9),
    (Bug::GatheredThoughOpen, ALONE, 9),
    (Bug::GatheredThoughRecalled, NEWER, 11),
    (Bug::ReturnedBeforeSent, NEWER, 10),
    (Bug::FoundThoughGathered, SHOWN, 9),
    (Bug::AnsweredWhileAway, SHOWN, 10),
    (Bug::WrittenAfterGivenUp, NEWER, 12),
    (Bug::ServedBeforeGatheredIsTold, NEWER, 10),
    (Bug::SentOnceMore, NEWER, 12),
];

fn assert_found(bug: Bug) {
    let (_, property, steps) = FOUND.into_iter().find(|(found, ..)| *found == bug).unwrap();
    let report = check(bug.part(), Some(bug));
    let counterexample = report.counterexample.unwrap();
    assert_eq!(counterexample.property, property, "{bug:?}: {:#?}", counterexample.steps);
    assert_eq!(counterexample.steps.len(), steps, "{bug:?}: {:#?}", counterexample.steps);
}

fn assert_holds(part: Part) {
    let report = check(part, None);
    println!("{report}");
    assert!(report.counterexample.is_none(), "{report}");
    assert!(report.missing.is_empty(), "{report}");
}

#[test]
fn the_model_of_acknowledgements_holds_without_a_bug() {
    assert_holds(Part::Acknowledgement);
}

#[test]
fn the_model_of_slots_holds_without_a_bug() {
    assert_holds(Part::Slots);
}

#[test]
fn the_model_of_leases_holds_without_a_bug() {
    assert_holds(Part::Leases);
}

#[test]
fn the_model_of_early_answers_holds_without_a_bug() {
    assert_holds(Part::Early);
}

#[test]
fn the_model_of_gathered_writes_holds_without_a_bug() {
    assert_holds(Part::Gather);
}

macro_rules! bugs {
    ($($test:ident: $bug:ident,)*) => {
        $(
            #[test]
            fn $test() {
                assert_found(Bug::$bug);
            }
        )*

        #[test]
        fn every_bug_has_a_test() {
            assert_eq!([$(Bug::$bug),*], Bug::ALL);
        }
    };
}

bugs! {
    an_acknowledgement_before_the_put_loses_a_request: AcknowledgedBeforePut,
    a_repeated_request_is_executed_twice: CommitRepeatedTwice,
    a_fenced_owner_that_acknowledges_loses_a_request: FencedStillAcknowledges,
    a_lost_answer_taken_for_no_executes_twice: LostAnswerTakenForNo,
    a_read_after_the_lease_is_stale: StaleReadAfterLease,
    an_owner_without_epoch_record_answers_stale_reads: EpochRecordSkipped,
    silence_before_the_epoch_record_is_not_enough: SilenceBeforeEpochRecord,
    a_trim_that_forgets_requests_executes_twice: TrimForgetsRequests,
    a_slot_granted_twice_is_overwritten: SlotGrantedTwice,
    a_late_write_overwrites_a_reused_slot: LateWriteIntoReusedSlot,
    a_put_before_the_flush_names_lost_bytes: PutBeforeFlush,
    a_write_before_its_grant_overwrites: WriteBeforeGrant,
    what_is_leased_while_it_changes_is_stale: LeasedWhileChanging,
    an_answer_from_before_a_change_is_stale: LeasedThoughChangedSince,
    the_answer_to_one_of_two_changes_is_stale: ChangeBelievedAmongOthers,
    an_answer_that_a_recall_overtakes_is_stale: BelievedThoughRecalled,
    a_change_that_waits_for_nobody_is_not_heard_of: ChangedBeforeHeard,
    a_machine_that_is_given_up_too_early_believes: GivenUpBeforeLeaseIsOver,
    what_came_of_others_changes_is_lost_with_them: EarlyThoughOthersMayLose,
    what_was_seen_too_early_is_lost: SeenBeforeCommitted,
    changes_at_the_same_time_are_made_again_in_another_order: EarlyAmongOthers,
    what_is_kept_and_committed_is_made_twice: RedoneThoughNoted,
    what_came_of_a_lost_answer_is_lost: EarlyAfterLostAnswer,
    what_is_kept_is_overtaken_at_the_next_owner: ServedBeforeAllIsTold,
    what_a_commit_did_not_cover_is_lost: CommitCoversLater,
    what_is_gathered_comes_over_what_was_not_waited_with: ServedThoughGathered,
    what_is_open_elsewhere_is_gathered: GatheredThoughOpen,
    what_is_gathered_after_a_recall_comes_over_newer_bytes: GatheredThoughRecalled,
    what_is_sent_after_the_lease_comes_over_newer_bytes: ReturnedBeforeSent,
    a_name_shows_what_was_before_what_is_gathered: FoundThoughGathered,
    a_machine_that_is_not_waited_for_has_newer_bytes: AnsweredWhileAway,
    a_machine_that_was_given_up_writes_over_newer_bytes: WrittenAfterGivenUp,
    what_the_next_owner_is_told_late_comes_over_newer_bytes: ServedBeforeGatheredIsTold,
    what_is_sent_once_more_comes_over_newer_bytes: SentOnceMore,
}

#[test]
fn a_report_tells_the_way_in_plain_lines() {
    let text = check(Part::Slots, Some(Bug::PutBeforeFlush)).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("violated after 8 steps"), "{text}");
    assert!(lines.last().unwrap().contains("crashes and loses its cache"), "{text}");
}

#[test]
fn a_bug_is_found_by_its_name() {
    assert_eq!(Bug::named("PutBeforeFlush"), Some(Bug::PutBeforeFlush));
    assert_eq!(Bug::named("putbeforeflush"), None);
}
