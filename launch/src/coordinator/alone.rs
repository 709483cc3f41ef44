//! The coordinator of a job of one node: no network, and no thread.

use super::job::{Event, Job, NodeId};
use super::{Ports, choose, perform, terms::Terms};
use crate::prelude::*;
use std::cell::RefCell;

const ID: NodeId = 0;

/// Starts it, and returns how to tell it something. `answer` gets what it says, always after a message of the node.
pub(crate) fn start(
    args: &Args,
    own: Node,
    answer: impl Fn(ToAgent) + 'static,
) -> Result<Box<dyn Fn(ToCoordinator)>> {
    port::check(args)?;
    let state = RefCell::new((Job::new(Terms::new(args, &own), Instant::now()), Ports::new()));
    let handle = move |event| {
        let (job, ports) = &mut *state.borrow_mut();
        let now = Instant::now();
        let mut actions = job.handle(ID, event, now);
        actions.extend(job.pass_time(now));
        let choose = |fixed_port| choose(ports, fixed_port);
        if let Err(error) = perform(actions, choose, |_, message| answer(message)) {
            answer(ToAgent::End(End::because(format!("{error:#}"))));
        }
    };
    handle(Event::Joined(own));
    Ok(Box::new(move |message| handle(Event::Said(message))))
}
