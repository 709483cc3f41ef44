//! What these crates' modules offer, methods aside, occurs in a program or in an example that is compiled.

use crate::{book_names::words, prelude::*};

const LIBRARY: &str = "core/src core/data/src core/nn/src core/optim/src report/src";
const PROGRAMS: &str = "async-update/src book/exercises/src core/examples ddp-imagenet/src \
                        ddp-mnist/src dp-basic/src dp-custom-criterion/src scaling/src";

/// Names that programs do not need: types that functions return or take, and what only report and the tests use.
const UNNAMED: &str = "CIFAR10_CLASSES CIFAR10_MIRRORS CompressWrapper CompressionStats Conv1d Conv3d \
                       ConvTranspose ConvTranspose1d ConvTranspose2d ConvTranspose3d FromFn \
                       GradScalerState GroupRates Gru Joinables LOCAL_RANK Lengths Lstm MAX_PIXELS \
                       MNIST_MIRRORS ModuleGuard NoSync ParallelLoss ParamGroupState ParameterState \
                       RunningStats ScaleFn SplitOutputs TransformerEncoder cifar10_from \
                       clip_grad_norm_of_parts console device_of_rank mnist_from progress_bar \
                       read_events";

#[test]
fn every_public_name_is_in_a_program_or_an_example() -> Result<()> {
    let owned = |(word, _): (&str, _)| word.to_owned();
    let mut used: BTreeSet<_> = words(UNNAMED).map(owned).collect();
    used.extend(texts_below(PROGRAMS, "rs")?.iter().flat_map(|text| words(text).map(owned)));
    let mut public = BTreeSet::new();
    for text in texts_below(LIBRARY, "rs")? {
        // Every second piece is within fences. One that begins with a word is in another language, or is not run.
        let examples = text.split("```").skip(1).step_by(2).filter(|it| it.starts_with('\n'));
        used.extend(examples.flat_map(words).map(owned));
        // Those in macros are indented.
        let is_public =
            |line: &&str| line.starts_with("pub ") || line.starts_with("    pub struct ");
        let declared = text.lines().filter(is_public).filter(|line| !line.starts_with("pub use "));
        // After `pub` and a keyword.
        public.extend(declared.filter_map(|line| words(line).nth(2)).map(owned));
    }
    let missing: Vec<_> = public.difference(&used).collect();
    assert!(missing.is_empty(), "in no program and in no example: {missing:?}");
    assert!(public.len() > 200, "only {} names were found", public.len());
    Ok(())
}
