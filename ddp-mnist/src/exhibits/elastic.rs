//! The same training, which goes on in the same processes when a rank is lost, and with virtual ranks has the same
//! weights on any number of ranks: `--elastic` and `--virtual-ranks`.

use crate::checkpoint::{Checkpoint, training};
use crate::{Epoch, args::Args, evaluate, model};
use anyhow::Result;
use report::{Meters, Progress, Run};
use serde::{Deserialize, Serialize};
use tch::nn::{ModuleT, VarStore};
use tch_parallel::checkpoint::{check_destination, save};
use tch_parallel::data::{DataLoader, DataLoaderOptions, Dataset, DistributedSampler};
use tch_parallel::data::{SequentialSampler, Shard};
use tch_parallel::elastic::{self, State};
use tch_parallel::{distributed::DistributedDataParallel, optim::Sgd};

/// What a new rank must know, besides weights and optimizer.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Job {
    progress: Progress,
    /// Of the current epoch. A new rank begins with those of the rank whose state it takes.
    meters: Meters<1>,
    /// The samples of a step of all ranks together.
    batch_size: usize,
}

pub fn train(args: &Args) -> Result<()> {
    let (train_set, test_set) = args.data.load()?;
    let device = args.process_group.device()?;
    tch::manual_seed(args.seed);
    let mut vs = VarStore::new(device);
    let mlp = model::mlp(&vs.root());
    let mut optimizer = Sgd::new(&vs, args.sgd())?;
    let mut state = State::new(training(&mut vs, &mut optimizer), Job::default());

    // The samples per step, over all ranks that the job began with.
    let mut largest = 0;
    // What depends on the ranks is made anew whenever they change.
    elastic::run(args.process_group.options(), &mut state, |group, state| {
        let checkpoint = Checkpoint::new(args, group)?;
        let model =
            DistributedDataParallel::with_options(&mlp, state.training.vs, group, args.ddp()?)?;
        let shard = Shard::from(group).with_virtual_ranks(args.virtual_ranks)?;
        let has_begun = state.has_begun();
        if !has_begun {
            if group.rank() == 0 && !args.no_save {
                check_destination(&args.save)?;
            }
            // A rank may have been lost before the first step.
            largest = largest.max(args.batch_size * shard.num_replicas());
            largest = group.all_gather_object(&largest)?.into_iter().fold(largest, usize::max);
            state.progress = Job {
                meters: Meters::default(),
                progress: checkpoint.resume(state.training.vs, state.training.optimizer)?,
                batch_size: largest,
            };
        }
        let Job { progress, meters, batch_size } = state.progress;
        // Dropout differs from rank to rank, and is the same whenever the ranks change at this step.
        let steps_an_epoch = train_set.len().div_ceil(batch_size);
        let step = progress.epoch as usize * steps_an_epoch + progress.step;
        tch::manual_seed(args.seed.wrapping_add((group.rank() + step) as i64));

        let shuffle = !args.no_shuffle;
        let sampler =
            DistributedSampler { shuffle, ..DistributedSampler::new(shard, args.sampler_seed) };
        let options = args.loader(device.is_cuda());
        let share = batch_size.div_ceil(shard.num_replicas());
        let test_loader =
            DataLoader::with_options(test_set.clone(), SequentialSampler, options.clone())?;
        let options = DataLoaderOptions { batch_size: share * shard.parts(), ..options };
        let train_loader = DataLoader::with_options(train_set.clone(), sampler, options)?;

        let report = args.report.going_on(has_begun);
        let mut run =
            report.start(group, state.training.optimizer.lr(), progress)?.with_meters(meters);
        run = run.with_virtual_ranks(args.virtual_ranks);
        let job = |run: &Run<'_, 1>| Job {
            progress: run.progress(),
            meters: *run.pass().meters(),
            batch_size,
        };
        loop {
            let now @ Progress { epoch, .. } = run.progress();
            // Here too, not only after a commit: if a rank is lost during the save, the next call saves again.
            if state.has_begun() && checkpoint.is_due(now) {
                checkpoint.save(state.training.vs, state.training.optimizer, now)?;
            }
            if epoch >= args.epochs {
                break;
            }
            for batch in run.epoch(&train_loader)? {
                state.training.optimizer.zero_grad()?;
                let (mut losses, mut samples) = (Vec::new(), 0);
                // Without virtual ranks, the whole batch.
                for share in model.shares(batch?, run.step_seed(args.seed)) {
                    let (images, labels) = share?;
                    let logits = model.forward(|mlp| mlp.forward_t(&images, true))?;
                    let loss = logits.cross_entropy_for_logits(&labels);
                    model.backward(&loss)?;
                    losses.push(loss);
                    samples = labels.size()[0];
                }
                // This exchanges numbers, so it comes before the optimizer's step, which cannot be undone.
                let loss = model.mean_of_shares(&losses)?;
                state.training.optimizer.step()?;
                run.step([&loss], samples)?;
                // Steps that are committed are not made again, so their numbers must be there.
                run.wait()?;
                state.progress = job(&run);
                state.commit()?;
                let training = &mut state.training;
                checkpoint.save_if_due(training.vs, training.optimizer, &mut run)?;
            }

            let [train_loss] = run.end_epoch()?;
            let (val_loss, accuracy) = evaluate(&mlp, &test_loader, device)?;
            Epoch { epoch, train_loss, val_loss, accuracy }.tell(&mut run, group)?;
            state.progress = job(&run);
            state.commit()?;
        }
        if !args.no_save {
            save(&args.save, state.training.vs, group)?;
        }
        run.end()
    })
}
