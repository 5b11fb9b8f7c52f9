//! Users and groups by their names, where a mount through the owner goes by them: this machine's are listed, and the owner says which numbers
//! they have there.
//!
//! Until that was said once, the mount's calls wait. Read next: `crates/client/src/identities.rs`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use stere_client::identities::Ids;
use stere_control::message::{Answer, Request};
use stere_machine::error::{Result, refused};

use crate::client_control::ClientControl;
use crate::daemon::spawn;
use crate::options::Options;

/// How long a name that is new, or another one's, waits to be noticed.
const AGAIN: Duration = Duration::from_secs(30);
/// Between two attempts while the owner has said nothing yet.
const AT_FIRST: Duration = Duration::from_millis(500);
/// Users, and groups, that are asked about.
const NAMES_MAX: usize = 65_536;

/// Looks names up until the mount ends, if they count.
pub fn start(control: &Arc<ClientControl>, options: &Options) -> Result<()> {
    if options.users != Ids::Names && options.group_ids() != Ids::Names {
        return Ok(());
    }
    let control: Weak<ClientControl> = Arc::downgrade(control);
    spawn("names", move || {
        let mut is_known = false;
        let mut last_complaint = String::new();
        while let Some(control) = control.upgrade() {
            match look_up(&control) {
                Ok(()) => is_known = true,
                Err(error) if error.to_string() != last_complaint => {
                    last_complaint = error.to_string();
                    tracing::warn!(%error, "users' names cannot be looked up at the owner");
                }
                Err(_) => {}
            }
            drop(control);
            std::thread::sleep(if is_known { AGAIN } else { AT_FIRST });
        }
    })
}

/// The numbers of one kind of names, here and at the owner, where both know the name.
fn pairs(here: &[(String, u32)], there: &[Option<u32>]) -> Vec<(u32, u32)> {
    here.iter().zip(there).filter_map(|((_, here), there)| Some((*here, (*there)?))).collect()
}

fn look_up(control: &ClientControl) -> Result<()> {
    let (users, groups) = (stere_people::all(false, NAMES_MAX), stere_people::all(true, NAMES_MAX));
    let names = |all: &[(String, u32)]| all.iter().map(|(name, _)| name.clone()).collect();
    let request = Request::Numbers { users: names(&users), groups: names(&groups) };
    let Answer::Numbers { users: user_numbers, groups: group_numbers } = control.ask_for(request)? else {
        return refused("the owner gave an answer that was not asked for");
    };
    control.link.set_names(&pairs(&users, &user_numbers), &pairs(&groups, &group_numbers));
    Ok(())
}
