//! Gradients that are averaged together, apart from the buckets: `delay_all_reduce_named_params`.

use super::ddp_options::DdpOptions;
use crate::{Error, Result, check};
use tch::Tensor;

const OPTION: &str = "delay_all_reduce_named_params";

/// The parameters that the options name, and the one that they wait for.
pub(super) type Named = (Vec<(String, Tensor)>, (String, Tensor));

/// Out of the parameters that are trained on all ranks.
pub(super) fn named(trained: &[(String, Tensor)], options: &DdpOptions) -> Result<Option<Named>> {
    let names = &options.delay_all_reduce_named_params;
    let hooked = options.param_to_hook_all_reduce.as_ref();
    let found = "without param_to_hook_all_reduce";
    let expected = "set together with it, or neither";
    check(names.is_empty() == hooked.is_none(), OPTION, found, expected)?;
    let Some(hooked) = hooked else { return Ok(None) };
    for (other, is_set) in [
        // Nobody would know whether all ranks reach the exchange.
        ("find_unused_parameters", options.find_unused_parameters),
        ("static_graph", options.static_graph),
        ("mixed_precision", options.mixed_precision.is_some()),
        ("virtual_ranks", options.virtual_ranks.is_some()),
    ] {
        check(!is_set, OPTION, format!("set with {other}"), "the only one of them")?;
    }
    let find = |name: &String| {
        let found = trained.iter().find(|(own, _)| own == name);
        found.map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).ok_or_else(|| {
            let found = format!("{name:?}, which is not trained on all ranks");
            Error::argument(OPTION, found, "made of the names of such parameters")
        })
    };
    let (hooked, mut delayed) = (find(hooked)?, Vec::<(String, Tensor)>::new());
    for name in names {
        let (name, tensor) = find(name)?;
        let is_new = name != hooked.0 && delayed.iter().all(|(other, _)| *other != name);
        let found = format!("{name:?} twice, or {name:?} waits for itself");
        check(is_new, OPTION, found, "each once")?;
        let (kind, expected) = (tensor.kind(), format!("{:?}, like {}", hooked.1.kind(), hooked.0));
        let what = format!("the kind of {name}");
        check(kind == hooked.1.kind(), what, format!("{kind:?}"), expected)?;
        let found = format!("with {name:?} of sparse_gradients");
        check(!options.sparse_gradients.contains(&name), OPTION, found, "of dense gradients")?;
        delayed.push((name, tensor));
    }
    Ok(Some((delayed, hooked)))
}
