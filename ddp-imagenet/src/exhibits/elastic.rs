//! The same training, which goes on in the same processes when a rank is lost: `--elastic`.

use crate::args::TrainArgs;
use crate::meter::{Numbers, train_line};
use crate::train_state::{TrainState, resume, save};
use crate::{Epoch, cross_entropy, validate};
use anyhow::Result;
use report::{Meters, Precision, Progress, Run, say};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tch::nn::{ModuleT, VarStore};
use tch_parallel::amp::autocast;
use tch_parallel::checkpoint::{self, check_destination};
use tch_parallel::data::{DataLoader, Dataset, ImageSource, ShardSampler};
use tch_parallel::distributed::DistributedDataParallel;
use tch_parallel::elastic::{self, State};
use tch_parallel::nn::{NormLayer, channels_last_weights};

/// What a new rank must know, besides the parts of the training.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Job {
    progress: Progress,
    /// Of the current epoch. A new rank begins with those of the rank whose state it takes.
    meters: Meters<3>,
    best_accuracy: f64,
    /// Whether the last epoch reached it.
    is_best: bool,
    /// The images of a step of all ranks together.
    batch_size: usize,
}

pub fn train(args: &TrainArgs) -> Result<()> {
    let seed = args.seed.unwrap_or(0);
    let (train_set, val_set) = args.data.load(args.arch, seed)?;
    let (train_set, val_set) = (Arc::new(train_set), Arc::new(val_set));
    let device = args.process_group.device()?;
    tch::manual_seed(seed as i64);
    let vs = VarStore::new(device);
    let num_classes = train_set.source().classes().len() as i64;
    let net = args.arch.build(&vs.root(), num_classes, &NormLayer::BatchNorm);
    if args.channels_last {
        channels_last_weights(&vs)?;
    }
    let mut state = State::new(TrainState::new(args, vs, None)?, Job::default());
    let precision = args.recipe.amp.map(Precision::kind);
    let own = args.checkpoint();

    // The samples per step, over all ranks that the job began with.
    let mut largest = 0;
    // What depends on the ranks is made anew whenever they change.
    elastic::run(args.process_group.options(), &mut state, |group, state| {
        let vs = &state.training.vs;
        let model = DistributedDataParallel::with_options(&net, vs, group, args.ddp()?)?;
        let options = args.data.loader(group.local_world_size(), device.is_cuda())?;
        let (sampler, mut share) = args.share(group, &options)?;
        let shard = sampler.shard;
        let has_begun = state.has_begun();
        if !has_begun {
            args.announce(group);
            if group.rank() == 0 {
                check_destination(&own)?;
            }
            let (progress, meters, best_accuracy) = resume(&mut state.training, args, group)?;
            // A rank may have been lost before the first step.
            largest = largest.max(share.batch_size / shard.parts() * shard.num_replicas());
            largest = group.all_gather_object(&largest)?.into_iter().fold(largest, usize::max);
            state.progress =
                Job { progress, meters, best_accuracy, is_best: false, batch_size: largest };
        }
        let begun = state.progress;
        // Besides the seed, random numbers depend on the rank and on the step at which the ranks last changed.
        let steps_an_epoch = train_set.len().div_ceil(begun.batch_size);
        let step = begun.progress.epoch as usize * steps_an_epoch + begun.progress.step;
        tch::manual_seed(seed.wrapping_add((group.rank() + step) as u64) as i64);

        share.batch_size = begun.batch_size.div_ceil(shard.num_replicas()) * shard.parts();
        let train_loader = DataLoader::with_options(Arc::clone(&train_set), sampler, share)?;
        let sampler = ShardSampler(group.into());
        let val_loader = DataLoader::with_options(Arc::clone(&val_set), sampler, options)?;

        let report = args.report.going_on(has_begun);
        let mut run = report.start(group, args.recipe.lr, begun.progress)?;
        run = run.with_meters(begun.meters).with_lines(args.print_freq, args.steps);
        run = run.with_virtual_ranks(args.virtual_ranks);
        let job = |run: &Run<'_, 3>, job: Job| Job {
            progress: run.progress(),
            meters: *run.pass().meters(),
            ..job
        };
        loop {
            // Here too, not only after a commit: if a rank is lost during the save, the next call saves again.
            let Job { progress: Progress { epoch, step, .. }, best_accuracy, is_best, .. } =
                state.progress;
            if state.has_begun() && (step == 0 || args.saves(step - 1..step)) {
                if is_best && step == 0 {
                    checkpoint::save(args.model_best(), &state.training.vs, group)?;
                }
                save(&mut state.training, &own, &mut run, best_accuracy, group)?;
            }
            if epoch >= args.recipe.epochs {
                break;
            }
            for batch in run.epoch(&train_loader)? {
                state.training.optimizer.zero_grad()?;
                let mut numbers = Numbers::default();
                // Without virtual ranks, the whole batch.
                for share in model.shares(batch?, run.step_seed(seed as i64)) {
                    let (images, labels) = share?;
                    let images = args.layout(images)?;
                    let (output, loss) = autocast(device, precision, || -> Result<_> {
                        let output = model.forward(|net| net.forward_t(&images, true))?;
                        let loss = cross_entropy(&output, &labels)?;
                        Ok((output, loss))
                    })??;
                    model.backward(&state.training.scaler.scale(&loss)?)?;
                    numbers.push(&loss, &output, &labels)?;
                }
                // This exchanges numbers, so it comes before the optimizer's step, which cannot be undone.
                let [loss, top1, top5] = numbers.mean(&model)?;
                let TrainState { scaler, optimizer, .. } = &mut state.training;
                scaler.step(&mut **optimizer)?;
                scaler.update()?;
                if run.step([&loss, &top1, &top5], numbers.samples)? {
                    say(group, train_line(epoch, run.pass().position(), run.pass().meters()));
                }
                // Steps that are committed are not made again, so their numbers must be there.
                run.wait()?;
                state.progress = job(&run, state.progress);
                state.commit()?;
                let done = run.progress().step;
                if args.saves(done - 1..done) {
                    save(&mut state.training, &own, &mut run, best_accuracy, group)?;
                }
            }

            let [train_loss, ..] = run.end_epoch()?;
            let validation = validate(args, &model, &val_loader, group)?;
            let lr = state.training.optimizer.lr();
            run.log("epoch", &Epoch { epoch, train_loss, lr, validation })?;
            let TrainState { scheduler, optimizer, .. } = &mut state.training;
            scheduler.step(&mut **optimizer)?;
            let is_best = validation.accuracy > best_accuracy;
            let best_accuracy = best_accuracy.max(validation.accuracy);
            state.progress = Job { is_best, best_accuracy, ..job(&run, state.progress) };
            state.commit()?;
        }
        run.end()
    })
}
