//! Classes of the pool: told, made, changed, deleted.

use stere_naming::{FileSystem, Io};

use stere_control::class::{ClassLine, Order};
use stere_control::message::Answer;
use stere_machine::clock;
use stere_machine::error::Result;

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    let mut unkept = None;
    match order {
        Order::List => {
            let classes = filesystem.classes().list_classes(Io::BLOCKING)?.into_iter().map(ClassLine::from).collect();
            return Ok(Answer::Classes { classes });
        }
        Order::Create { name, settings } => {
            filesystem.command(&caller, || filesystem.policy().create_class(&caller, &name, &settings))?;
            unkept = filesystem.unmet_policies().why_class_unkept(&name);
        }
        Order::Change { name, settings } => {
            if !filesystem.command(&caller, || filesystem.policy().change_class(&caller, &name, &settings))? {
                return Ok(Answer::Said { said: format!("the class '{name}' is so already") });
            }
            unkept = filesystem.unmet_policies().why_class_unkept(&name);
        }
        Order::Delete { name, into } => {
            filesystem.command(&caller, || filesystem.policy().delete_class(&caller, &name, &into))?;
        }
    }
    filesystem.store().commit(Io::BLOCKING).map_err(stere_naming::Error::from)?;
    Ok(unkept.map_or(Answer::Done, |why| Answer::DoneBut { why }))
}
