//! When each bucket is complete and when its exchange ends, drawn to scale.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example overlap overlap.svg
//! ```

use anyhow::{Context, Result};
use exhibit_kit::plot::{self, Lane, Span, Timeline};
use std::{iter, sync::Arc, sync::Mutex, sync::PoisonError, thread, time::Instant};
use tch::{Kind, Tensor, nn, nn::VarStore};
use tch_parallel::distributed::hooks::{self, CommHook};
use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup, ReduceOp};
use tch_parallel::nn::{LinearOptions, linear};

/// Layers of 4 MiB, each of which fills a bucket.
const LAYERS: usize = 6;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("expected the path of a picture to draw")?;
    let group = ProcessGroup::from_env()?;
    let vs = VarStore::new(group.device());
    let layers = (0..LAYERS).fold(nn::seq_t(), |layers, number| {
        layers.add(linear(vs.root() / number, 1024, 1024, LinearOptions::default()))
    });
    let (comm_hook, buckets) = watch();
    let comm_hook = Some(comm_hook);
    let options = DdpOptions { bucket_cap_mb: Some(4.0), comm_hook, ..Default::default() };
    let model = DistributedDataParallel::with_options(layers, &vs, &group, options)?;

    let mut begin = Instant::now();
    for _ in 0..5 {
        let images = Tensor::randn([512, 1024], (Kind::Float, group.device()));
        let loss = model.f_forward_t(&images, true)?.square().mean(Kind::Float);
        buckets.lock().unwrap_or_else(PoisonError::into_inner).clear();
        begin = Instant::now();
        model.backward(&loss)?;
    }
    let buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
    if group.rank() == 0 {
        println!("bucket  complete after ms  exchanged after ms");
        for (number, bucket) in buckets.iter().enumerate() {
            let millis = |moment: Instant| (moment - begin).as_secs_f64() * 1e3;
            println!("{number:6} {:18.3} {:19.3}", millis(bucket.start), millis(bucket.end));
        }
        draw(path.as_ref(), begin, &buckets)?;
    }
    Ok(())
}

struct Bucket {
    start: Instant,
    end: Instant,
}

/// A hook that writes down when each bucket is complete and when its average is there, and where it writes that.
fn watch() -> (Box<dyn CommHook>, Arc<Mutex<Vec<Bucket>>>) {
    let buckets = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&buckets);
    // ANCHOR: hook
    let hook = hooks::from_fn("watch and average", move |group, bucket| {
        let start = Instant::now();
        let gradients = bucket.buffer()? / group.world_size() as i64;
        let exchange = group.all_reduce_async(gradients, ReduceOp::Sum)?;
        // Another thread waits, so as not to stop the backward pass.
        let waiting = thread::spawn(move || (exchange.wait(), Instant::now()));
        let written = Arc::clone(&written);
        Ok(Box::new(move || {
            let (average, end) =
                waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.lock().unwrap_or_else(PoisonError::into_inner).push(Bucket { start, end });
            average
        }))
    });
    // ANCHOR_END: hook
    (Box::new(hook), buckets)
}

fn draw(path: &std::path::Path, begin: Instant, buckets: &[Bucket]) -> Result<()> {
    let categories: Vec<_> = (0..buckets.len()).map(|number| format!("bucket {number}")).collect();
    let span = |number: usize, from: Instant, to: Instant| Span {
        category: categories[number].clone(),
        start: from - begin,
        duration: to - from,
    };
    let begins = iter::once(begin).chain(buckets.iter().map(|bucket| bucket.start));
    let backward = begins.zip(buckets).enumerate();
    let backward = backward.map(|(number, (from, bucket))| span(number, from, bucket.start));
    let exchange = buckets.iter().enumerate();
    let exchange = exchange.map(|(number, bucket)| span(number, bucket.start, bucket.end));
    let chart = Timeline {
        title: "A backward pass and its exchange".into(),
        lanes: vec![
            Lane { name: "backward".into(), spans: backward.collect() },
            Lane { name: "exchange".into(), spans: exchange.collect() },
        ],
        categories: categories.clone(),
    };
    Ok(report::save(path, &plot::timeline(&chart)?)?)
}
