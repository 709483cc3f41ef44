"""A small GPT that learns the characters of a text, with DistributedDataParallel or fully_shard: what
core/examples/mingpt.rs must equal.

It has the model, the parameter groups and the training loop of minGPT-ddp in pytorch/examples. There
the causal mask is a float tensor, which attention adds to its scores instead of hiding the future;
here, as in Rust, it is boolean. Each block draws its initial weights when it is made, so that it can be
sharded before the next one.

    torchrun --standalone --nproc-per-node=2 tests/python/mingpt.py --text LICENSE-MIT --metrics out
"""

import argparse
import math
import statistics
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_mnist import Metrics, end, init_process_group, mean
from device import device_of
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--n-layer", type=int, default=2)
    parser.add_argument("--n-head", type=int, default=2)
    parser.add_argument("--n-embd", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--grad-norm-clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--backend", choices=["gloo", "nccl"])
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--checkpoint-activations", action="store_true")
    parser.add_argument("--metrics", type=Path)
    parser.add_argument("--save", type=Path)
    return parser.parse_args()


class Text(Dataset):
    """Item i is the characters from i on, and the same moved on by one."""

    def __init__(self, path, block_size):
        text = path.read_text(encoding="utf-8")
        self.characters = sorted(set(text))
        numbers = {character: number for number, character in enumerate(self.characters)}
        self.tokens = torch.tensor([numbers[character] for character in text])
        self.block_size = block_size

    def __len__(self):
        return len(self.tokens) - self.block_size

    def __getitem__(self, index):
        block = self.tokens[index : index + self.block_size + 1]
        return block[:-1], block[1:]


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.c_proj = nn.Linear(args.n_embd, args.n_embd)
        self.attn = nn.MultiheadAttention(
            args.n_embd, args.n_head, dropout=args.dropout, batch_first=True
        )
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x):
        length = x.size(1)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        y, _ = self.attn(x, x, x, attn_mask=future)
        return self.drop(self.c_proj(y))


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.ln1 = nn.LayerNorm(args.n_embd)
        self.ln2 = nn.LayerNorm(args.n_embd)
        self.attn = Attention(args)
        self.mlp = nn.Sequential(
            nn.Linear(args.n_embd, 4 * args.n_embd),
            nn.GELU(),
            nn.Linear(4 * args.n_embd, args.n_embd),
            nn.Dropout(args.dropout),
        )
        self.apply(init_weights)
        nn.init.normal_(self.attn.c_proj.weight, std=0.02 / math.sqrt(2 * args.n_layer))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    def __init__(self, args, vocab_size):
        super().__init__()
        self.pos_emb = nn.Parameter(torch.zeros(1, args.block_size, args.n_embd))
        self.tok_emb = nn.Embedding(vocab_size, args.n_embd)
        self.drop = nn.Dropout(args.dropout)
        self.blocks = nn.Sequential(*[Block(args) for _ in range(args.n_layer)])
        self.ln_f = nn.LayerNorm(args.n_embd)
        self.head = nn.Linear(args.n_embd, vocab_size, bias=False)
        init_weights(self.tok_emb)
        init_weights(self.head)

    def forward(self, tokens):
        x = self.drop(self.tok_emb(tokens) + self.pos_emb[:, : tokens.size(1)])
        return self.head(self.ln_f(self.blocks(x)))


def init_weights(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def parameter_groups(model, weight_decay):
    """Weight decay for what is multiplied with activations, none for biases, norms and embeddings."""
    decays = lambda name, parameter: parameter.dim() == 2 and name != "tok_emb.weight"
    named = list(model.named_parameters())
    decay = [parameter for name, parameter in named if decays(name, parameter)]
    others = [parameter for name, parameter in named if not decays(name, parameter)]
    return [
        {"params": decay, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def peak_rss_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    args = parse_args()
    device = device_of(args.device)
    init_process_group(device, args.backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    metrics = Metrics(args.metrics, rank, world_size)

    text = Text(args.text, args.block_size)
    split = torch.Generator().manual_seed(args.seed)
    train_set, test_set = random_split(text, [0.9, 0.1], generator=split)
    sampler = DistributedSampler(train_set, world_size, rank, seed=args.seed)
    # Without a generator of their own, as most programs have it: every epoch takes a number from the
    # generator that dropout uses.
    train_loader = DataLoader(train_set, args.batch_size, sampler=sampler)
    test_sampler = DistributedSampler(test_set, world_size, rank, shuffle=False)
    test_loader = DataLoader(test_set, args.batch_size, sampler=test_sampler)

    torch.manual_seed(args.seed)
    with device:  # as in Rust, a GPU draws its weights itself
        gpt = Gpt(args, len(text.characters))
    if args.checkpoint_activations:
        for block in gpt.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    if args.fsdp:
        mesh = init_device_mesh(device.type, (world_size,))
        for block in gpt.blocks:
            fully_shard(block, mesh=mesh)
        model = fully_shard(gpt, mesh=mesh)
    else:
        model = DistributedDataParallel(gpt)
    torch.manual_seed(args.seed + rank)
    groups = parameter_groups(gpt, args.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))

    seconds = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for step, (tokens, targets) in enumerate(train_loader):
            began = time.perf_counter()
            loss = cross_entropy(model(tokens.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_norm_clip)
            optimizer.step()
            loss = loss.item()
            seconds.append(time.perf_counter() - began)
            metrics.write("step", epoch=epoch, step=step, loss=loss)
        model.eval()
        total = torch.zeros(2, dtype=torch.float64)
        with torch.no_grad():
            for tokens, targets in test_loader:
                loss = cross_entropy(gpt(tokens.to(device)), targets.to(device)).item()
                total += torch.tensor([loss * len(tokens), len(tokens)], dtype=torch.float64)
        val_loss = mean(total, device)
        metrics.write("epoch", epoch=epoch, val_loss=val_loss)
        if rank == 0:
            print(f"epoch {epoch}: validation loss {val_loss:.4f}", flush=True)

    if device.type == "cuda":
        metrics.write("memory", max_memory_allocated=torch.cuda.max_memory_allocated())
    metrics.write(
        "end",
        first_step_unix_seconds=0,
        step_seconds_median=statistics.median(seconds),
        peak_rss_bytes=peak_rss_bytes(),
    )
    if args.fsdp:
        # DTensor.full_tensor ends with SIGSEGV over gloo on a GPU (PyTorch 2.11).
        for module in [*gpt.blocks, gpt]:
            module.reshard()
            module.unshard()
    if rank == 0 and args.save is not None:
        save_file({name: tensor.detach().cpu() for name, tensor in gpt.named_parameters()}, args.save)
    end()


if __name__ == "__main__":
    main()
