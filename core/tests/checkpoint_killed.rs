//! Whenever a run is killed, its checkpoint is either the old one or the new one, and complete.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use std::time::{Duration, Instant};
use std::{fs, path::Path, process::Command, thread};
use tch::{Device, nn, nn::VarStore, no_grad};
use tch_parallel::optim::{Sgd, SgdOptions};
use tch_parallel::{checkpoint::Training, distributed::ProcessGroup};
use tests::Job;

/// If set, this process of the test is the run to be killed; the value is the folder to save in.
const DIRECTORY: &str = "SAVES_UNTIL_KILLED_IN";

const FILE: &str = "training.safetensors";

/// How many runs are killed: every second one while its new file exists, the others soon after their first save.
const KILLS: u64 = 24;

/// Many more than a run has time for.
const SAVES: i64 = 10_000;

/// 4 MB of weights: writing them takes long enough that a run can be killed meanwhile.
const WEIGHTS: i64 = 1 << 20;

fn with_training<R>(f: impl FnOnce(&mut Training<'_>, &ProcessGroup) -> R) -> R {
    let group = ProcessGroup::from_env().unwrap();
    let mut vs = VarStore::new(Device::Cpu);
    let _ = vs.root().var("weights", &[WEIGHTS], nn::Init::Const(-1.0));
    let mut optimizer = Sgd::new(&vs, SgdOptions::default()).unwrap();
    let (vs, optimizer) = (&mut vs, &mut optimizer);
    let mut training =
        Training { architecture: "weights", vs, optimizer, scheduler: None, scaler: None };
    f(&mut training, &group)
}

/// The number of the save that wrote the file. All weights have that value, and so has the progress.
fn load(path: &Path) -> i64 {
    with_training(|training, group| {
        let number = training.load::<i64>(path, group).unwrap().progress;
        let weights = &training.vs.variables()["weights"];
        assert_eq!([weights.min(), weights.max()].map(|t| t.double_value(&[])), [number as f64; 2]);
        number
    })
}

/// Saves over and over, counting on from the last run's number.
fn save_until_killed(path: &Path) -> ! {
    let first = if path.exists() { load(path) + 1 } else { 0 };
    with_training(|training, group| {
        for number in first..first + SAVES {
            let _ = no_grad(|| training.vs.trainable_variables()[0].fill_(number as f64));
            training.save(path, &number, group).unwrap();
        }
    });
    panic!("nobody has killed it after {SAVES} checkpoints")
}

fn others(job: &Job) -> usize {
    job.files().unwrap().iter().filter(|name| name.as_str() != FILE).count()
}

#[test]
fn a_run_that_is_killed_leaves_a_whole_checkpoint() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        save_until_killed(&Path::new(&directory).join(FILE));
    }
    let job = Job::new().unwrap();
    let path = job.path(FILE);
    let (mut last, mut killed_while_writing) = (-1, 0);
    for kill in 0..KILLS {
        let modified = || fs::metadata(&path).and_then(|found| found.modified()).ok();
        let before = modified();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_run_that_is_killed_leaves_a_whole_checkpoint"]);
        let run = job.start(command.env(DIRECTORY, job.directory())).unwrap();
        job.until("the run has saved", || Ok((modified() != before).then_some(()))).unwrap();
        if kill % 2 == 0 {
            // Without a pause, so that it is killed right at the start of a save.
            let limit = Instant::now() + Duration::from_secs(60);
            while others(&job) == 0 {
                assert!(Instant::now() < limit, "the run saves no more");
            }
        } else {
            // Any moment will do; each round uses a different one.
            thread::sleep(Duration::from_micros(kill * 397));
        }
        // By SIGKILL: it cannot clean up.
        drop(run);

        let left = others(&job);
        assert!(left <= 1, "killed runs leave more and more files: {left}");
        killed_while_writing += left;
        let number = load(&path);
        assert!(number > last, "{number} follows upon {last}");
        last = number;
    }
    assert!(killed_while_writing > 0, "no run was killed at the moment that matters");
    with_training(|training, group| training.save(&path, &last, group).unwrap());
    assert_eq!(others(&job), 0);
}
