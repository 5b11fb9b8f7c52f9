//! Accounts under random histories: limits refuse what the model refuses, and whatever is called, moved, deleted or lost, every account is
//! what a recount gives (the check counts anew).

use crate::support;

use proptest::prelude::*;
use stere_model::Limit;
use stere_naming::{Account, AccountsState, Error, Holder, Io, Limits};
use support::calls::{Call, call};
use support::pair::Pair;

fn cases() -> u32 {
    std::env::var("STERE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: cases(), max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() }
}

/// Background work to its end.
fn settle(pair: &Pair) {
    while pair.ask(|fs, c| fs.step(c, 100)).expect("a step") {}
}

fn limit_user(pair: &mut Pair, uid: u32, bytes: Option<u64>, inodes: Option<u64>) {
    let whose = Account { holder: Holder::User, number: uid };
    let limits = Limits { bytes: Some(bytes), inodes: Some(inodes), ..Limits::default() };
    pair.ask(|fs, c| fs.quotas().set_quota(c, whose, limits)).expect("a quota");
    pair.model.set_limit(uid, Limit { bytes, inodes });
    settle(pair);
}

/// A limit that nobody meets makes the pool count stored bytes.
fn count_stored(pair: &Pair) {
    let whose = Account { holder: Holder::User, number: 77 };
    let limits = Limits { stored: Some(Some(u64::MAX >> 1)), ..Limits::default() };
    pair.ask(|fs, c| fs.quotas().set_quota(c, whose, limits)).expect("a quota");
}

/// Copies and allocations stop half-way in their own ways; the model knows no room that is set aside.
fn is_plain(call: &Call) -> bool {
    !matches!(call, Call::Fallocate { .. } | Call::Copy { .. })
}

fn check_used(pair: &Pair, uid: u32) {
    let accounts = pair.fs().quotas().accounts(Io::BLOCKING, Holder::User).expect("accounts");
    let value = accounts.iter().find(|info| info.account.number == uid).map(|info| info.value).unwrap_or_default();
    assert_eq!((value.bytes, value.inodes), pair.model.used(uid), "user {uid}");
}

/// Something that is done with volumes, or a call.
#[derive(Debug, Clone)]
enum Step {
    Call(Call),
    Make(u8),
    Dissolve(u8),
    Delete(u8),
    Settle,
    /// Stored bytes are counted from now on.
    CountStored,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => call().prop_map(Step::Call),
        3 => any::<u8>().prop_map(Step::Make),
        1 => any::<u8>().prop_map(Step::Dissolve),
        1 => any::<u8>().prop_map(Step::Delete),
        1 => Just(Step::Settle),
        1 => Just(Step::CountStored),
    ]
}

/// Removes a directory of the model with all that is below it.
fn remove_tree(pair: &mut Pair, parent: u64, name: &[u8]) {
    let caller = stere_model::Caller { uid: 0, gid: 0, umask: 0o022, now: pair.now };
    let inode = pair.model.lookup(parent, name).expect("it is there");
    if let Ok(names) = pair.model.list(inode) {
        for (below, _) in names {
            remove_tree(pair, inode, &below);
        }
        return pair.model.rmdir(&caller, parent, name).expect("it is empty");
    }
    pair.model.unlink(&caller, parent, name).expect("it is a file");
}

fn run(pair: &mut Pair, step: &Step) {
    match step {
        Step::Call(call) => pair.run(call),
        Step::Settle => settle(pair),
        Step::CountStored => count_stored(pair),
        Step::Make(pick) => {
            let number = pair.number(pair.directory(*pick));
            // A directory without a name, or a volume already: nothing happens.
            let _whether = pair.ask(|fs, c| fs.quotas().create_volume(c, number, Limits::default()));
        }
        Step::Dissolve(pick) => {
            let number = pair.number(pair.directory(*pick));
            let _whether = pair.ask(|fs, c| fs.quotas().dissolve_volume(c, number));
        }
        Step::Delete(pick) => {
            let directory = pair.directory(*pick);
            let number = pair.number(directory);
            if pair.ask(|fs, c| fs.quotas().condemn_volume(c, number)).is_err() {
                return;
            }
            let parent = pair.model.inode(directory).expect("it is there").parent;
            let names = pair.model.list(parent).unwrap_or_default();
            let Some((name, _)) = names.into_iter().find(|(_, inode)| *inode == directory) else { return };
            pair.now += 1;
            let at = pair.number(parent);
            pair.ask(|fs, c| fs.rmdir(c, at, &name)).expect("a condemned volume goes whole");
            remove_tree(pair, parent, &name);
            settle(pair);
        }
    }
}

fn check_exact(pair: &Pair) {
    settle(pair);
    assert!(matches!(
        pair.fs().quotas().accounts_state(Io::BLOCKING).expect("a state"),
        AccountsState::Exact | AccountsState::Off
    ));
    pair.check_everything();
}

proptest! {
    #![proptest_config(config())]

    /// P-75, P-76: a limit refuses exactly what would go beyond it, and leaves everything else as it is.
    #[test]
    fn limits_refuse_what_the_model_refuses(
        calls in prop::collection::vec(call().prop_filter("plain", is_plain), 1..120),
        blocks in 0u64..400,
        inodes in 2u64..14,
    ) {
        let mut pair = Pair::new();
        limit_user(&mut pair, 0, Some(blocks * 4096 + 17), Some(inodes));
        limit_user(&mut pair, 7, Some(0), None);
        for call in &calls {
            pair.run(call);
            pair.check_attributes();
        }
        pair.ask(|fs, c| fs.syncfs(c)).expect("what was accepted is never refused");
        settle(&pair);
        check_used(&pair, 0);
        pair.check_everything();
    }

    /// P-75: accounts are what a recount gives, with volumes made, moved, dissolved and deleted at any moment.
    #[test]
    fn accounts_are_what_a_recount_gives(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        for step in &steps {
            run(&mut pair, step);
        }
        check_exact(&pair);
    }

    /// P-75: the same after a power loss at any moment, before and after the work that was left over is done.
    #[test]
    fn accounts_survive_a_power_loss(steps in prop::collection::vec(step(), 1..60), kept in any::<u64>()) {
        let mut pair = Pair::new();
        let is_remount = |step: &Step| matches!(step, Step::Call(Call::Remount { .. }));
        for step in steps.iter().filter(|step| !is_remount(step)) {
            run(&mut pair, step);
        }
        pair.lose_power(kept);
        pair.check_media();
        settle(&pair);
        pair.check_media();
    }

    /// P-75: a pool that kept no accounts is counted while it is changed.
    #[test]
    fn what_exists_is_counted_while_it_changes(
        before in prop::collection::vec(call(), 1..60),
        after in prop::collection::vec(call(), 1..60),
    ) {
        let mut pair = Pair::new();
        before.iter().for_each(|call| pair.run(call));
        let whose = Account { holder: Holder::User, number: 5 };
        pair.ask(|fs, c| fs.quotas().set_quota(c, whose, Limits::default())).expect("accounts are kept");
        count_stored(&pair);
        for call in &after {
            pair.run(call);
            pair.ask(|fs, c| fs.step(c, 1)).expect("a step");
            if let Call::Commit = call {
                pair.check_media();
            }
        }
        check_exact(&pair);
        check_inodes(&pair);
    }
}

fn check_inodes(pair: &Pair) {
    let accounts = pair.fs().quotas().accounts(Io::BLOCKING, Holder::User).expect("accounts");
    for info in accounts {
        assert_eq!(info.value.inodes, pair.model.used(info.account.number).1, "user {}", info.account.number);
    }
}

#[test]
fn errors_have_the_number_of_linux() {
    assert_eq!(Error::OverQuota(String::new()).errno(), stere_model::errno::EDQUOT);
}
