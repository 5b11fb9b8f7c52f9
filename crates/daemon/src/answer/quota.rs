//! Accounts: told, limited; volumes made and dissolved.

use stere_naming::{Account, AccountValue, AccountsState, FileSystem, Holder, Io};

use stere_control::message::Answer;
use stere_control::quota::{AccountLine, AccountsReport, Order, Wanted};
use stere_machine::clock;
use stere_machine::error::{Result, refused};

fn gather(filesystem: &FileSystem) -> Result<AccountsReport> {
    let lines = |holder| -> Result<Vec<AccountLine>> {
        Ok(filesystem.quotas().accounts(Io::BLOCKING, holder)?.into_iter().map(AccountLine::from).collect())
    };
    let state = filesystem.quotas().accounts_state(Io::BLOCKING)?;
    let word = match state {
        AccountsState::Off => "off",
        AccountsState::Counting(_) | AccountsState::Charging => "counting",
        AccountsState::Moving => "moving",
        AccountsState::Exact => "exact",
    };
    let (mut users, mut groups, volumes) = (lines(Holder::User)?, lines(Holder::Group)?, lines(Holder::Volume)?);
    let take_others = |lines: &mut Vec<AccountLine>| {
        lines.iter().position(|line| line.number == AccountValue::OTHERS).map(|at| lines.remove(at))
    };
    let (default_user, default_group) = (take_others(&mut users), take_others(&mut groups));
    let is_emptying = state != AccountsState::Off && filesystem.quotas().is_emptying(Io::BLOCKING)?;
    let keeps_stored = filesystem.quotas().keeps_stored();
    let state = word.into();
    Ok(AccountsReport { state, is_emptying, keeps_stored, users, groups, volumes, default_user, default_group })
}

/// A volume in which other pools are mounted is not deleted: they would be nowhere.
fn refuse_junctions(filesystem: &FileSystem, inode: u64) -> Result<()> {
    let mut above = filesystem.path_of(Io::BLOCKING, inode)?;
    above.push(b'/');
    let junctions = stere_naming::junctions_of(filesystem).list(Io::BLOCKING)?;
    let inside = junctions.into_iter().find(|junction| junction.path.starts_with(&above));
    inside.map_or(Ok(()), |junction| {
        let path = String::from_utf8_lossy(&junction.path).into_owned();
        refused(format!(
            "the pool '{}' is mounted in it, at {path}: end that with `stere volume detach` first",
            junction.value.pool_name
        ))
    })
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    let set = |holder, number: Option<u32>, name: &str, limits: Wanted| {
        let Some(number) = number.or_else(|| name.parse().ok()) else {
            return refused(format!("there is nobody called '{name}' on this machine; give a name or a number"));
        };
        let limits = limits.into();
        Ok(filesystem
            .command(&caller, || filesystem.quotas().set_quota(&caller, Account { holder, number }, limits))?)
    };
    let known = stere_people::system();
    let known = known.as_deref();
    match order {
        Order::List => return Ok(Answer::Accounts(Box::new(gather(filesystem)?))),
        Order::CreateVolume { inode, limits } => {
            let limits = limits.into();
            filesystem.command(&caller, || filesystem.quotas().create_volume(&caller, inode, limits)).map(drop)?;
        }
        Order::SetVolume { inode, limits } => {
            let limits = limits.into();
            filesystem.command(&caller, || filesystem.quotas().set_volume(&caller, inode, limits))?;
        }
        Order::Dissolve { inode } => filesystem.quotas().dissolve_volume(&caller, inode)?,
        Order::Condemn { inode } => {
            refuse_junctions(filesystem, inode)?;
            filesystem.quotas().condemn_volume(&caller, inode)?;
        }
        Order::Spare => filesystem.quotas().spare_volume(),
        Order::SetUser { name, limits } => {
            set(Holder::User, known.and_then(|people| people.user(&name)), &name, limits)?;
        }
        Order::SetGroup { name, limits } => {
            set(Holder::Group, known.and_then(|people| people.group(&name)), &name, limits)?;
        }
        Order::SetOthers { groups, limits } => {
            let holder = if groups { Holder::Group } else { Holder::User };
            set(holder, Some(AccountValue::OTHERS), "", limits)?;
        }
    }
    filesystem.store().commit(Io::BLOCKING).map_err(stere_naming::Error::from)?;
    Ok(Answer::Done)
}
