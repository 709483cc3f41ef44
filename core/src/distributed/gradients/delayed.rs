//! Gradients that are averaged together, apart from the buckets: `delay_all_reduce_named_params`.

use super::ddp_options::DdpOptions;
use crate::{Error, Result, check};
use tch::Tensor;

const OPTION: &str = "delay_all_reduce_named_params";
const HOOKED: &str = "param_to_hook_all_reduce";

/// The parameters that the options name, and the one that they wait for.
pub(super) type Named = (Vec<(String, Tensor)>, (String, Tensor));

/// Finds the parameters that the options name among those trained on all ranks.
pub(super) fn named(trained: &[(String, Tensor)], options: &DdpOptions) -> Result<Option<Named>> {
    let names = &options.delay_all_reduce_named_params;
    let hooked = options.param_to_hook_all_reduce.as_ref();
    let is_ok = names.is_empty() || hooked.is_some();
    check(is_ok, OPTION, format!("set without {HOOKED}"), "set with it")?;
    let Some(hooked) = hooked else { return Ok(None) };
    check(!names.is_empty(), HOOKED, format!("set without {OPTION}"), "set with it")?;
    let hook = options.comm_hook.as_ref().map(|hook| hook.name());
    for (other, is_set) in [
        // Nobody would know whether all ranks reach the exchange.
        ("find_unused_parameters", options.find_unused_parameters),
        ("static_graph", options.static_graph),
        ("mixed_precision", options.mixed_precision.is_some()),
        ("virtual_ranks", options.virtual_ranks.is_some()),
        // It steps parameters in buckets only. The name may be within that of a wrapper.
        ("HookThenOptimizer", hook.is_some_and(|name| name.contains("hook_then_optimizer"))),
    ] {
        check(!is_set, OPTION, format!("set with {other}"), "the only one of them")?;
    }
    let find = |option, name: &String| {
        let found = trained.iter().find(|(own, _)| own == name);
        found.map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).ok_or_else(|| {
            let found = format!("{name:?}, which is not trained on all ranks");
            Error::argument(option, found, "the name of a parameter that all ranks train")
        })
    };
    let (hooked, mut delayed) = (find(HOOKED, hooked)?, Vec::<(String, Tensor)>::new());
    for name in names {
        let (name, tensor) = find(OPTION, name)?;
        let is_new = delayed.iter().all(|(other, _)| *other != name);
        check(is_new, OPTION, format!("a list with {name:?} twice"), "a list of different names")?;
        let found = format!("a list with {name:?}, which is {HOOKED}");
        check(name != hooked.0, OPTION, found, "a list of other parameters")?;
        let (kind, expected) = (tensor.kind(), format!("{:?}, like {}", hooked.1.kind(), hooked.0));
        let what = format!("the kind of {name}");
        check(kind == hooked.1.kind(), what, format!("{kind:?}"), expected)?;
        let found = format!("a list with {name:?}, which is in sparse_gradients");
        let expected = "a list of parameters with dense gradients";
        check(!options.sparse_gradients.contains(&name), OPTION, found, expected)?;
        delayed.push((name, tensor));
    }
    Ok(Some((delayed, hooked)))
}
