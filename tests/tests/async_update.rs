//! What all methods of async-update learn. What the synchronous ones, and those that average parameters, make of the
//! same batches, and what they reject.

use crate::prelude::*;
use tests::async_update::outcome;

/// What a rank writes after each batch.
struct Curve {
    losses: Vec<f64>,
    /// The sum of all parameters.
    theta: Vec<f64>,
    at: Vec<f64>,
}

/// Runs a method on `ranks` ranks, and returns their curves.
fn trained(ranks: usize, flags: &str) -> Result<Vec<Curve>> {
    let job = tests::async_update::trained(ranks, flags)?;
    let curve = |rank| {
        let column = |name: &str| events(job.directory(), rank, "step", |step| step[name].as_f64());
        Ok(Curve { losses: column("loss")?, theta: column("theta")?, at: column("at")? })
    };
    (0..ranks).map(curve).collect()
}

/// The curves of three ranks in an epoch of batches of 64.
fn curves_of_three(method: &str) -> Result<Arc<Vec<Curve>>> {
    static CURVES: Shared<Vec<Curve>> = Shared::new();
    CURVES.get(method, || trained(3, &format!("{method} --epochs=1 --batch-size=64")))
}

/// With the settings of the README.
#[test]
fn every_method_names_nine_digits_of_ten() -> Result<()> {
    let synchronous = ["sync-allreduce", "sync-ps", "ring", "local-sgd", "post-local", "diloco"];
    for method in synchronous.into_iter().chain(["async-ps", "ssp", "easgd"]) {
        let job = tests::async_update::trained(4, method)?;
        let accuracy = outcome(&job, "accuracy")?;
        ensure!(accuracy >= 0.9, "{method}: {accuracy}");
    }
    Ok(())
}

/// S1.44: sums in another order differ in their last bits, and so do losses a few steps later. The
/// tolerance of a thousandth is far less than what a single missing gradient would change.
#[test]
fn the_ring_and_the_parameter_server_take_the_steps_of_all_reduce() -> Result<()> {
    let expected = curves_of_three("sync-allreduce")?;
    let outer_mean = "diloco --period=1 --outer-lr=1 --outer-momentum=0";
    for method in ["ring", "sync-ps", "local-sgd --period=1", outer_mean] {
        for (found, expected) in curves_of_three(method)?.iter().zip(&*expected) {
            assert_eq!(found.losses.len(), expected.losses.len());
            for (a, b) in found.losses.iter().zip(&expected.losses) {
                ensure!((a / b - 1.0).abs() < 1e-3, "{method}: a loss is {a} instead of {b}");
            }
        }
    }
    Ok(())
}

/// S1.39, S1.41: the gradients are equal, so the models are too, although each rank updates its own.
#[test]
fn synchronous_ranks_have_the_same_model_to_the_bit_after_every_step() -> Result<()> {
    for method in ["sync-allreduce", "sync-ps", "ring"] {
        let curves = curves_of_three(method)?;
        ensure!(curves[0].losses != curves[1].losses, "{method}: both ranks saw the same batches");
        curves[1..].iter().for_each(|curve| assert_eq!(curve.theta, curves[0].theta, "{method}"));
    }
    Ok(())
}

/// S1.22: if ranks only divide the data, there are as many models as ranks.
#[test]
fn between_two_means_the_models_of_local_sgd_differ() -> Result<()> {
    let curves = trained(2, "local-sgd --period=5 --epochs=1")?;
    let equal: Vec<_> = curves[0].theta.iter().zip(&curves[1].theta).map(|(a, b)| a == b).collect();
    let expected: Vec<_> = (1..=equal.len()).map(|step| step % 5 == 0).collect();
    assert_eq!(equal, expected);
    Ok(())
}

#[test]
fn post_local_sgd_is_synchronous_up_to_its_start() -> Result<()> {
    let curves = trained(2, "post-local --start=7 --period=5 --epochs=1")?;
    let together = trained(2, "sync-allreduce --epochs=1")?;
    assert_eq!(curves[0].theta[..7], together[0].theta[..7]);
    let equal: Vec<_> = curves[0].theta.iter().zip(&curves[1].theta).map(|(a, b)| a == b).collect();
    let expected: Vec<_> = (1..=equal.len()).map(|step| step <= 7 || (step - 7) % 5 == 0).collect();
    assert_eq!(equal, expected);
    Ok(())
}

/// S1.30, S1.43: a synchronous step is as slow as its slowest rank.
#[test]
fn a_slow_rank_delays_every_synchronous_rank() -> Result<()> {
    const DELAY: f64 = 0.02;
    for method in ["sync-allreduce", "sync-ps", "ring"] {
        let flags = format!("{method} --epochs=1 --batch-size=256 --straggle=1:20");
        for curve in trained(2, &flags)? {
            let took = curve.at[curve.at.len() - 1] - curve.at[0];
            let least = DELAY * (curve.at.len() - 1) as f64;
            ensure!(took >= 0.9 * least, "{method}: {took} s for at least {least} s of waiting");
        }
    }
    Ok(())
}

/// Between two means nobody waits, so the fast rank finishes its period first.
#[test]
fn a_slow_rank_delays_local_sgd_at_the_mean_alone() -> Result<()> {
    let curves = trained(2, "local-sgd --period=5 --epochs=1 --batch-size=256 --straggle=1:600")?;
    let [fast, slow] = [&curves[0].at, &curves[1].at];
    for period in 0..3 {
        let fourth = 5 * period + 3;
        ensure!(fast[fourth] < slow[fourth], "step {fourth}: {fast:?} {slow:?}");
        ensure!(fast[fourth + 1] > slow[fourth], "nobody waited: {fast:?} {slow:?}");
    }
    Ok(())
}

/// Even the longest timeout is accepted.
#[test]
fn any_timeout_will_do() -> Result<()> {
    for method in ["sync-allreduce", "async-ps"] {
        let flags = format!("{method} --epochs=1 --batch-size=1000 --timeout={}", u64::MAX);
        let job = tests::async_update::trained(2, &flags)?;
        assert_eq!(outcome(&job, "batches")?, 8.0, "{method}");
    }
    Ok(())
}

/// Each process makes a single update, after which no batch would notice the divergence.
#[test]
fn a_model_that_has_run_away_is_refused_in_the_end() -> Result<()> {
    let said = ["after 1 updates, but must be finite; try a smaller --lr"];
    let flags = |method| [method, "--epochs=1", "--batch-size=8000", "--lr=1e38"];
    for method in ["sync-allreduce", "async-ps"] {
        expect_refusal(launch(2, &async_update(flags(method))?)?, 1, &said)?;
    }
    expect_refusal(async_update(flags("hogwild").into_iter().chain(["--threads=1"]))?, 1, &said)
}

cases! {
    fn flags_that_make_no_sense_are_refused() =
        expect_refusals(|line| async_update(line.split(' ')), &[
            ("local-sgd --period=0", 2, ["--period", "would be zero"]),
            ("local-sgd --epochs=0", 2, ["--epochs", "0 is not in 1.."]),
            ("ring --batch-size=0", 2, ["--batch-size", "0 is not in 1.."]),
            ("local-sgd --epochs=288230376151711744", 2, ["--epochs", "is not in 1..=4294967295"]),
            ("async-ps --n-fetch=18446744073709551615", 2, ["--n-fetch", "is not in 1..=4294967295"]),
            ("ssp --staleness=-1", 2, ["--staleness", "-1 is not in 0.."]),
            ("async-ps --n-push=0", 2, ["--n-push", "0 is not in 1.."]),
            ("async-ps --n-fetch=0", 2, ["--n-fetch", "0 is not in 1.."]),
            ("async-ps --sync-every=0", 2, ["--sync-every", "0 is not in 1.."]),
            ("async-ps --servers=0", 2, ["--servers", "0 is not in 1.."]),
            ("easgd --tau=0", 2, ["--tau", "0 is not in 1.."]),
            ("ring --lr=nan", 2, ["--lr", "NaN is not a finite number above 0"]),
            ("ring --lr -0.1", 2, ["--lr", "-0.1 is not a finite number above 0"]),
            ("easgd --lr=0", 2, ["--lr", "0 is not a finite number above 0"]),
            ("compare --lr=0", 2, ["--lr", "0 is not a finite number above 0"]),
            ("diloco --outer-lr=0", 2, ["--outer-lr", "0 is not a finite number above 0"]),
            ("ring --straggle=1", 2, ["--straggle", "expected RANK:MS, as in 3:40, and found \"1\""]),
            ("compare --workers=1", 2, ["--workers", "1 is not in 2..=64"]),
            ("compare --workers=65", 2, ["--workers", "65 is not in 2..=64"]),
            ("compare --slowdown=1", 2, ["--slowdown", "1 is not in 2..=1000"]),
            ("compare --slowdown=1001", 2, ["--slowdown", "1001 is not in 2..=1000"]),
            ("compare --step-time=0", 2, ["--step-time", "0 is not in 1..=60000"]),
            ("compare --step-time=60001", 2, ["--step-time", "60001 is not in 1..=60000"]),
            ("compare --timeout=18446744073709551615", 2, ["--timeout", "too large"]),
            ("compare --plot=/dev/null/plots", 1, ["create directory", "/dev/null/plots"]),
            ("compare --plot=/proc", 1, ["cannot write to the directory", "/proc/loss-time-slow.svg"]),
        ]);
    fn a_slow_rank_that_does_not_exist_is_refused() =
        expect_refusal(launch(2, &async_update(["ring", "--straggle=2:40"])?)?, 1,
            &["--straggle is rank 2, but must be a rank that trains, from 0 to 1"]);
    fn a_comparison_that_a_launcher_has_started_is_refused() =
        expect_refusal(as_rank(async_update(["compare"])?, 0, 2, free_port()?), 1,
            &["run it without a launcher"]);
}
