//! The book's exercises in code: each file has a task, a function with a hole, and a check that the finished function
//! passes on two ranks.

#![allow(clippy::todo, unused_variables, unreachable_code, reason = "holes are for the reader")]

mod agree;
pub mod e01_indices;
pub mod e02_mean_loss;
pub mod e03_same_start;
pub mod e04_average_gradients;
pub mod e05_learning_rate;
pub mod e06_resume;
pub mod e07_ring;
pub mod e08_buckets;
pub mod e09_accumulate;
pub mod e10_unused;
pub mod e11_bf16_hook;
pub mod e12_top_k;
pub mod e13_uneven_inputs;
pub mod e14_batch_statistics;
pub mod e15_scattered_mean;
pub mod e16_push_pull;
pub mod e17_same_bits;
pub mod e18_shared_state;
pub mod e19_sharded_step;
pub mod e20_clip_shards;
pub mod e21_contrastive_loss;
pub mod prelude;

pub use {
    e01_indices::indices, e02_mean_loss::mean_loss, e03_same_start::same_start,
    e04_average_gradients::average_gradients, e05_learning_rate::learning_rate, e06_resume::resume,
    e07_ring::ring, e08_buckets::buckets, e09_accumulate::accumulate, e10_unused::unused,
    e11_bf16_hook::bf16, e12_top_k::top_k, e13_uneven_inputs::uneven_inputs,
    e14_batch_statistics::batch_statistics, e15_scattered_mean::scattered_mean,
    e16_push_pull::push_pull, e17_same_bits::same_bits, e18_shared_state::shared_state,
    e19_sharded_step::sharded_step, e20_clip_shards::clip_shards,
    e21_contrastive_loss::contrastive_loss,
};

/// A check of one exercise on this rank.
pub type Check = fn(&prelude::ProcessGroup) -> anyhow::Result<()>;

/// The checks of all exercises, for the functions of a module: this crate's, or one with solutions.
#[macro_export]
macro_rules! checks {
    ($functions:ident) => {
        $crate::checks!($functions:
            e01_indices indices, e02_mean_loss mean_loss, e03_same_start same_start,
            e04_average_gradients average_gradients, e05_learning_rate learning_rate,
            e06_resume resume, e07_ring ring, e08_buckets buckets, e09_accumulate accumulate,
            e10_unused unused, e11_bf16_hook bf16, e12_top_k top_k,
            e13_uneven_inputs uneven_inputs, e14_batch_statistics batch_statistics,
            e15_scattered_mean scattered_mean, e16_push_pull push_pull,
            e17_same_bits same_bits, e18_shared_state shared_state,
            e19_sharded_step sharded_step, e20_clip_shards clip_shards,
            e21_contrastive_loss contrastive_loss)
    };
    ($functions:ident: $($module:ident $function:ident),*) => {{
        let checks: [$crate::Check; 21] =
            [$(|group| $crate::$module::check(group, $functions::$function)),*];
        checks
    }};
}
