//! dp-custom-criterion on one device equals its Python original to the last bit: every loss, and
//! the final weights. Two ranks equal each other, however they divide the model.

use crate::prelude::*;

/// BERT-tiny, and the files that are compared. The corpus of 43 pairs has 5 batches per epoch, so 20 steps see it
/// masked in four ways. The learning rate rises fast, since otherwise the weights would hardly change in so few steps.
const TINY: &str = "--hidden=32 --layers=2 --attn-heads=2 --seq-len=16 --batch-size=8 --steps=20 \
                    --warmup=10 --seed=3 --metrics=metrics --output=model.safetensors";

fn expect_parity(flags: &str) -> Result<()> {
    let flags = format!("{TINY} --corpus {} {flags}", corpus());
    let rust = Training::run(dp_custom_criterion(flags.split(' '))?, 1)?;
    assert_eq!(rust.losses[0].len(), 20);
    rust.expect_equal(&Training::run(python("bert", flags.split(' '))?, 1)?)
}

cases! {
    fn without_dropout_it_equals_python() = expect_parity("--dropout 0");
    fn with_dropout_it_equals_python() = expect_parity("--dropout 0.1");
    fn in_bf16_with_dropout_it_equals_python() = expect_parity("--amp bf16 --dropout 0.1");
    fn with_more_tokens_than_the_vocabulary_and_other_sizes_it_equals_python() =
        expect_parity("--vocab-size 1000 --attn-heads 4 --seq-len 33 --adam-weight-decay 0.1 \
                       --adam-beta1 0.8 --adam-beta2 0.99");
}

#[test]
fn with_a_vocabulary_of_frequent_words_it_equals_python() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let vocab = directory.path().join("vocab.json");
    let mut program = dp_custom_criterion(["vocab", "--size", "60", "--min-freq", "2"])?;
    program.args(["--corpus", &corpus(), "--output"]).arg(&vocab);
    assert_eq!(Job::new()?.run(program)?.expect_success()?.stdout, "VOCAB SIZE: 65\n");
    assert!(fs::read_to_string(&vocab)?.starts_with("[\n  \"<pad>\",\n  \"<unk>\",\n"));
    expect_parity(&format!("--vocab {}", vocab.display()))
}

#[test]
fn two_ranks_end_alike_with_whole_and_sharded_models_and_kept_and_recomputed_activations()
-> Result<()> {
    let train = |method: &str| -> Result<Training> {
        // With fewer pairs, a rank's may contain none that counts.
        let flags = format!("{TINY} --batch-size=20 --corpus {} {method}", corpus());
        Training::run(launch(2, &dp_custom_criterion(flags.split(' '))?)?, 2)
    };
    let ddp = train("--method ddp")?;
    train("--method fsdp")?.expect_equal(&ddp)?;
    train("--method fsdp --checkpoint-activations")?.expect_equal(&ddp)
}
