//! Which ranks each node has: consecutive ones, in the order of the nodes.

use super::{job::NodeId, terms::Terms};
use crate::protocol::{Node, Placement};
use std::collections::BTreeMap;

/// The places of as many nodes as the job takes: by `--node-rank`, or node 0 and then the others by arrival.
pub(crate) fn places(
    terms: &Terms,
    nodes: &BTreeMap<NodeId, Node>,
    generation: u32,
    restarts: u32,
) -> Vec<(NodeId, Placement)> {
    let mut order: Vec<(&NodeId, &Node)> = nodes.iter().collect();
    order.sort_by_key(|(id, node)| (!terms.is_own(node), node.node_rank, **id));
    order.truncate(terms.own.nodes.max.into());

    let ranks = |role: Option<&str>| -> u32 {
        let counted = order.iter().filter(|(_, node)| role.is_none_or(|role| node.role == role));
        counted.map(|(_, node)| u32::from(node.ranks)).sum()
    };
    let count = u16::try_from(order.len()).unwrap_or(u16::MAX);
    let world_size = ranks(None);
    let mut first_rank = 0;
    let mut first_role_rank: BTreeMap<&str, u32> = BTreeMap::new();
    let mut placed = Vec::new();
    for (node_rank, (id, node)) in (0..).zip(&order) {
        let first_role_rank = first_role_rank.entry(&node.role).or_default();
        let placement = Placement {
            generation,
            restarts,
            node_rank,
            nodes: count,
            first_rank,
            world_size,
            first_role_rank: *first_role_rank,
            role_world_size: ranks(Some(&node.role)),
        };
        placed.push((**id, placement));
        first_rank += u32::from(node.ranks);
        *first_role_rank += u32::from(node.ranks);
    }
    placed
}
