//! The order of gradients in DistributedDataParallel's buckets.
//!
//! It is that of the first backward pass. With three ranks or more, the order in which gloo adds depends on a
//! gradient's place in its bucket, so a resumed training rounds as an uninterrupted one only with the same buckets.

use crate::{Error, Result};
use tch::nn::VarStore;
use tch_parallel_base::parameters::named_parameters;

/// The parameters' names in that order. `None` if no model is wrapped, or has made a backward pass.
pub(crate) fn state_dict(vs: &VarStore) -> Result<Option<Vec<String>>> {
    let (names, parameters): (Vec<_>, Vec<_>) = named_parameters(vs).into_iter().unzip();
    let order = c10d_sys::bucket_order(&parameters).map_err(Error::engine("bucket_order"))?;
    Ok(order.map(|order| order.into_iter().map(|position| names[position].clone()).collect()))
}

/// Makes the next forward pass arrange the buckets in this order.
pub(crate) fn load_state_dict(vs: &VarStore, names: &[String]) -> Result<()> {
    let variables = vs.variables();
    let parameters: Vec<_> =
        names.iter().filter_map(|name| Some(variables.get(name)?.shallow_clone())).collect();
    c10d_sys::set_bucket_order(&parameters).map_err(Error::engine("set_bucket_order"))
}
