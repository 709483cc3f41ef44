//! What a launcher says of the end of its ranks.

use crate::{failure::Failure, prelude::*, rank::Rank};

/// How many of the ranks that failed later are listed one by one.
const LISTED: usize = 8;

/// Names the culprit, with the reason, then the other ranks of this node that failed.
pub(crate) fn ended(end: &End, ranks: &[Rank]) {
    say(&end.reason);
    end.hint.iter().for_each(say);
    let mut followers: Vec<_> = ranks.iter().filter_map(Rank::failure).collect();
    followers.retain(|failure| end.culprit.is_some_and(|culprit| culprit != failure.rank));
    followers.sort_by_key(|failure| (failure.fault, failure.at));
    if followers.is_empty() {
        return;
    }
    let sentence = |failure: &Failure| format!("rank {} {}", failure.rank, failure.ending);
    let mut listed: Vec<String> = followers.iter().take(LISTED).map(sentence).collect();
    if followers.len() > LISTED {
        listed.push(format!("{} more failed", followers.len() - LISTED));
    }
    say(format_args!("after that, {}", listed.join(", ")));
}

/// Names the ranks that a signal did not end in time.
pub(crate) fn killed(ranks: &[Rank]) {
    let seconds = GRACE.as_secs();
    for Rank { rank, pid, .. } in ranks.iter().filter(|rank| rank.is_running()) {
        say(format_args!("rank {rank} (pid {pid}) did not end within {seconds} s and is killed"));
    }
}
