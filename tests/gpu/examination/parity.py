"""Parity with Python: the same training on the same GPU, compared bit by bit."""

import array
import json
import shlex

from examination.commands import PROGRAMS, ROOT, python, ranks_by_hand, rust
from examination.part import Part
from examination.results import (
    expect,
    expect_equal_losses,
    expect_equal_tensors,
    losses,
    tensors,
    weights,
)

TOPIC = "the same as Python, to the last bit"
MODEL = "model.safetensors"

CORPUS = shlex.join(["--corpus", str(ROOT / "tests/data/pairs.txt")])
BERT = "--hidden 64 --layers 4 --attn-heads 4 --seq-len 32 --batch-size 8 --steps 20 --warmup 10 --seed 3"
MNIST = "--device cuda --epochs 1 --lr 0.05 --momentum 0.9 --metrics metrics --save model.safetensors"
DIGITS = "--dataset mnist --no-augment --epochs 1 --steps 10 --seed 3 --device cuda --metrics metrics"

# The loss of the masked words comes from a kernel that adds in no fixed order
# (aten/src/ATen/native/cuda/NLLLoss2d.cu); the gradients do not depend on it.
ATOMIC = 1e-5


def both(name, flags, for_rust="", for_python="", script=None):
    """A step of a program and of its Python original."""
    return [rust(name, f"{flags} {for_rust}"), python(script, f"{flags} {for_python}")]


def same_training(ranks=1, prefix="", file=MODEL):
    """Compares every loss of every rank, and the final weights."""

    def check(folder, _):
        ours, theirs = folder / "rust", folder / "python"
        steps = 0
        for number in range(ranks):
            expect_equal_losses(losses(ours, number), losses(theirs, number))
            steps += len(losses(ours, number))
        expect_equal_tensors(weights(ours / file, prefix), weights(theirs / MODEL))
        return f"{steps} losses, {len(weights(theirs / MODEL))} weights"

    return check


def same_bert(folder, _):
    ours, theirs = losses(folder / "rust"), losses(folder / "python")
    expect_equal_losses(ours, theirs, ATOMIC)
    expect_equal_tensors(weights(folder / "rust" / MODEL), weights(folder / "python" / MODEL))
    return f"{len(weights(folder / 'rust' / MODEL))} weights; {len(ours)} losses but for atomic additions"


def same_tensors(folder, _):
    """Compares whatever both sides saved, apart from numbers of bytes."""
    ours, theirs = (
        {name: tensor for name, tensor in tensors(folder / side / MODEL).items() if "memory" not in name}
        for side in ["rust", "python"]
    )
    expect_equal_tensors(ours, theirs)
    return f"{len(ours)} tensors"


def scaled(folder, processes):
    """Twelve steps in fp16, of which some overflow."""
    said = same_tensors(folder, processes)
    scales = array.array("f", tensors(folder / "rust" / MODEL)["scales"][2])
    pairs = list(zip(scales, scales[1:]))
    expect(any(after < before for before, after in pairs), f"no step was left out: {list(scales)}")
    expect(any(after > before for before, after in pairs), f"the scale never grew: {list(scales)}")
    return f"{said}, some steps left out"


def launched(program, script, flags, ranks, backend):
    flags = f"{flags} --backend {backend}"
    by_launch = rust("launch", f"-n {ranks} -- {shlex.quote(str(PROGRAMS / program))} {flags}")
    by_hand = [python(script, flags, environment=environment) for environment in ranks_by_hand(ranks)]
    return [[by_launch, *by_hand]]


def mnist_ranks(name, backend, **options):
    steps = launched("ddp-mnist", "ddp_mnist", MNIST, 2, backend)
    return Part(TOPIC, name, steps, same_training(2), **options)


def gpt(name, flags, ranks=1):
    text = shlex.quote(str(ROOT / "tests/data/pairs.txt"))
    flags = f"--text {text} --device cuda --batch-size 32 --metrics metrics --save {MODEL} {flags}"
    if ranks > 1:
        return Part(TOPIC, name, launched("mingpt", "mingpt", flags, ranks, "gloo"), same_training(ranks))
    return Part(TOPIC, name, [both("mingpt", flags, script="mingpt")], same_training())


def bert(name, flags):
    flags = f"{BERT} {CORPUS} --metrics metrics --output {MODEL} {flags}"
    steps = [both("dp-custom-criterion", flags, "--devices cuda:0", "--device cuda", script="bert")]
    return Part(TOPIC, name, steps, same_bert)


def trained_images(name, flags):
    flags = f"{DIGITS} {flags}"
    steps = [both("ddp-imagenet", flags, "--print-freq 1", f"--save {MODEL}", script="imagenet")]
    return Part(TOPIC, name, steps, same_training(prefix="model.", file="checkpoint.safetensors"))


def example(name, program, line, check=same_tensors, **options):
    """An example of the library on one GPU, which saves all that it computes."""
    return Part(TOPIC, name, [[rust(program, line), python(program, line)]], check, **options)


def optimizers():
    """With what is PyTorch's default on a GPU, operations on lists of parameters, and without."""
    cases = [
        ("AdamW", {}),
        ("AdamW", {"lr": 0.1, "betas": [0.5, 0.6], "amsgrad": True, "maximize": True}),
        ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        ("RMSprop", {"centered": True, "momentum": 0.5, "weight_decay": 0.1}),
        ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
        ("Adadelta", {"lr": 0.3, "rho": 0.7}),
        ("RAdam", {"lr": 0.1, "betas": [0.3, 0.9]}),
        ("NAdam", {"lr": 0.1, "weight_decay": 0.1}),
    ]
    one_by_one = [(name, options | {"foreach": False}) for name, options in cases]
    return [
        json.dumps({"optimizer": name, "options": options, "problem": problem, "on_gpu": True})
        for name, options in cases + one_by_one
        for problem in ["float", "bfloat16"]
    ]


def same_normalization(ranks):
    """Each rank's outputs, gradients and running statistics."""

    def check(folder, _):
        for file in [f"rank{rank}.safetensors" for rank in range(ranks)]:
            ours = tensors(folder / "rust" / file)
            expect_equal_tensors(ours, tensors(folder / "python" / file))
        return f"{ranks} x {len(ours)} tensors"

    return check


def normalization(ranks, name, sample):
    """`sample` is the size of a sample's channel; nothing for a number."""
    commands = [
        side(program, f". cuda {sample}", environment=environment)
        for side, program in [(rust, "sync_batch_norm"), (python, "batch_norm")]
        for environment in ranks_by_hand(ranks)
    ]
    return Part(TOPIC, name, [commands], same_normalization(ranks))


def parts():
    pyramid = "--arch pyramidnet20_a48 --batch-size 32"
    return [
        Part(
            TOPIC,
            "MNIST, one rank over NCCL",
            [both("ddp-mnist", MNIST, script="ddp_mnist")],
            same_training(),
        ),
        mnist_ranks("MNIST, two ranks over gloo on one GPU", "gloo"),
        mnist_ranks("MNIST, two ranks over NCCL", "nccl", gpus=2),
        gpt("GPT, DistributedDataParallel, one rank over NCCL", ""),
        gpt("GPT, fully_shard, one rank over NCCL", "--fsdp"),
        gpt("GPT, fully_shard, recomputed activations, one rank over NCCL", "--fsdp --checkpoint-activations"),
        gpt("GPT, fully_shard, two ranks over gloo on one GPU", "--fsdp", ranks=2),
        bert("BERT with Adam, DataParallel on one GPU", ""),
        bert("BERT with Adam, bf16, DataParallel on one GPU", "--amp bf16"),
        trained_images("PyramidNet", pyramid),
        trained_images("PyramidNet, bf16, channels last", f"{pyramid} --amp bf16 --channels-last"),
        trained_images("PyramidNet, fp16, GradScaler", f"{pyramid} --amp fp16 --accumulate 2"),
        example("PyramidNet's weights, outputs and gradients", "models", f"pyramidnet20_a48 {MODEL} cuda:0"),
        example(
            "ResNet-18's weights, outputs and gradients",
            "models",
            f"resnet18 {MODEL} cuda:0",
            torchvision=True,
        ),
        example("AdamW and seven other optimizers", "optimizers", shlex.join([MODEL, *optimizers()])),
        normalization(1, "SyncBatchNorm, one rank", "5 6"),
        normalization(2, "SyncBatchNorm of numbers, two ranks over gloo on one GPU", ""),
        normalization(3, "SyncBatchNorm, three ranks over gloo on one GPU", "5 6"),
        example("autocast to bf16", "amp", f"bfloat16 {MODEL} cuda:0"),
        example("autocast to fp16, GradScaler", "amp", f"float16 {MODEL} cuda:0", check=scaled),
    ]
