"""codertimo's BERT trained on one device: what dp-custom-criterion must equal.

It takes dp-custom-criterion's flags, writes its step events and saves its weights under the same
names. `--corpus` is required: the default corpus lies in the Rust program.

    python tests/python/bert.py --corpus tests/data/pairs.txt --steps 20 --metrics out
"""

import argparse
import collections
import json
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ddp_mnist import Metrics
from device import device_of

PAD, UNK, EOS, SOS, MASK = range(5)
SPECIALS = ["<pad>", "<unk>", "<eos>", "<sos>", "<mask>"]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-c", "--corpus", type=Path, required=True)
    parser.add_argument("-v", "--vocab", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("-l", "--layers", type=int, default=8)
    parser.add_argument("-a", "--attn-heads", type=int, default=8)
    parser.add_argument("-s", "--seq-len", type=int, default=20)
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("-b", "--batch-size", type=int, default=64)
    parser.add_argument("-e", "--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--adam-weight-decay", type=float, default=0.01)
    parser.add_argument("--adam-beta1", type=float, default=0.9)
    parser.add_argument("--adam-beta2", type=float, default=0.999)
    parser.add_argument("--warmup", type=int, default=10_000)
    parser.add_argument("--amp", choices=["bf16"])
    parser.add_argument("--metrics", type=Path, help="a directory for rank0.jsonl")
    parser.add_argument("--log-freq", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    return parser.parse_args()


# === Data ===


def load_corpus(path):
    """A pair of sentences a line, split by a tab."""
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return [[sentence.split() for sentence in line.split("\t")] for line in lines]


def build_vocab(corpus):
    """The special words, then all others, the most frequent first."""
    counts = collections.Counter(word for pair in corpus for sentence in pair for word in sentence)
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return SPECIALS + [word for word, _ in words if word not in SPECIALS]


def load_vocab(path):
    """A list in JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


class BertDataset(Dataset):
    """Every item draws from a generator of its own, which the epoch determines as well."""

    def __init__(self, corpus, vocab, seq_len, seed, epoch):
        tokens = {word: token for token, word in enumerate(vocab)}
        self.pairs = [
            [[tokens.get(word, UNK) for word in sentence] for sentence in pair] for pair in corpus
        ]
        self.vocab_size = len(vocab)
        self.seq_len, self.seed, self.epoch = seq_len, seed, epoch

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        rng = random.Random((self.seed << 128) + (self.epoch << 64) + index)
        first, second = self.pairs[index]
        is_next = rng.random() > 0.5
        if not is_next:
            second = self.pairs[rng.randrange(len(self.pairs))][1]
        first, first_labels = self.mask(first, rng)
        second, second_labels = self.mask(second, rng)
        tokens = [SOS, *first, EOS, *second, EOS]
        labels = [PAD, *first_labels, PAD, *second_labels, PAD]
        segments = [1] * (len(first) + 2) + [2] * (len(second) + 1)
        return *map(self.fit, (tokens, segments)), int(is_next), self.fit(labels)

    def mask(self, sentence, rng):
        shown, labels = [], []
        for token in sentence:
            drawn = rng.random()
            label = PAD
            if drawn < 0.15:
                label = token
                drawn /= 0.15
                if drawn < 0.8:
                    token = MASK
                elif drawn < 0.9:
                    token = rng.randrange(self.vocab_size)
            shown.append(token)
            labels.append(label)
        return shown, labels

    def fit(self, values):
        values = values[: self.seq_len]
        return torch.tensor(values + [PAD] * (self.seq_len - len(values)))


# === Model ===


class PositionalEmbedding(nn.Module):
    def __init__(self, hidden, max_len=512):
        super().__init__()
        position = torch.arange(max_len, device="cpu").float().unsqueeze(1)
        even = torch.arange(0, hidden, 2, device="cpu").float()
        frequency = (even * -(math.log(10000.0) / hidden)).exp()
        table = torch.zeros(max_len, hidden, device="cpu")
        table[:, 0::2] = torch.sin(position * frequency)
        table[:, 1::2] = torch.cos(position * frequency)
        self.register_buffer("pe", table.unsqueeze(0).to(torch.get_default_device()))

    def forward(self, tokens):
        return self.pe[:, : tokens.size(1)]


class BertEmbedding(nn.Module):
    def __init__(self, vocab_size, hidden, dropout):
        super().__init__()
        self.token = nn.Embedding(vocab_size, hidden, padding_idx=PAD)
        self.position = PositionalEmbedding(hidden)
        self.segment = nn.Embedding(3, hidden, padding_idx=PAD)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens, segments):
        x = self.token(tokens) + self.position(tokens) + self.segment(segments)
        return self.dropout(x)


class Attention(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads, self.d_k = heads, hidden // heads
        self.linear_layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(3))
        self.output_linear = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        batch = x.size(0)
        query, key, value = (
            layer(x).view(batch, -1, self.heads, self.d_k).transpose(1, 2)
            for layer in self.linear_layers
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.d_k)
        scores = scores.masked_fill(mask == 0, -1e9)
        weights = self.dropout(F.softmax(scores, dim=-1))
        x = torch.matmul(weights, value)
        x = x.transpose(1, 2).contiguous().view(batch, -1, self.heads * self.d_k)
        return self.output_linear(x)


class GELU(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))
        return 0.5 * x * (1 + torch.tanh(inner))


class FeedForward(nn.Module):
    def __init__(self, hidden, dropout):
        super().__init__()
        self.w_1 = nn.Linear(hidden, 4 * hidden)
        self.w_2 = nn.Linear(4 * hidden, hidden)
        self.activation = GELU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class Sublayer(nn.Module):
    def __init__(self, hidden, dropout):
        super().__init__()
        self.norm = LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, layer):
        return x + self.dropout(layer(self.norm(x)))


class TransformerBlock(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.attention = Attention(hidden, heads, dropout)
        self.feed_forward = FeedForward(hidden, dropout)
        self.input_sublayer = Sublayer(hidden, dropout)
        self.output_sublayer = Sublayer(hidden, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.input_sublayer(x, lambda x: self.attention(x, mask))
        x = self.output_sublayer(x, self.feed_forward)
        return self.dropout(x)


class Bert(nn.Module):
    def __init__(self, vocab_size, hidden, layers, heads, dropout):
        super().__init__()
        self.embedding = BertEmbedding(vocab_size, hidden, dropout)
        self.transformer_blocks = nn.ModuleList(
            TransformerBlock(hidden, heads, dropout) for _ in range(layers)
        )

    def forward(self, tokens, segments):
        mask = (tokens > 0).unsqueeze(1).repeat(1, tokens.size(1), 1).unsqueeze(1)
        x = self.embedding(tokens, segments)
        for block in self.transformer_blocks:
            x = block(x, mask)
        return x


class Head(nn.Module):
    def __init__(self, hidden, classes):
        super().__init__()
        self.linear = nn.Linear(hidden, classes)

    def forward(self, x):
        return F.log_softmax(self.linear(x), dim=-1)


class LanguageModel(nn.Module):
    def __init__(self, vocab_size, hidden, layers, heads, dropout):
        super().__init__()
        self.bert = Bert(vocab_size, hidden, layers, heads, dropout)
        self.next_sentence = Head(hidden, 2)
        self.mask_lm = Head(hidden, vocab_size)

    def forward(self, tokens, segments):
        x = self.bert(tokens, segments)
        return self.next_sentence(x[:, 0]), self.mask_lm(x)


# === Training ===


def warm_up(hidden, warmup, step):
    return hidden**-0.5 * min(step**-0.5, warmup**-1.5 * step)


def main():
    args = parse_args()
    device = device_of(args.device)
    corpus = load_corpus(args.corpus)
    vocab = load_vocab(args.vocab) if args.vocab else build_vocab(corpus)

    torch.manual_seed(args.seed)
    vocab_size = args.vocab_size or len(vocab)
    with device:  # as in Rust, a GPU draws its weights itself
        model = LanguageModel(vocab_size, args.hidden, args.layers, args.attn_heads, args.dropout)
    betas = (args.adam_beta1, args.adam_beta2)
    optimizer = torch.optim.Adam(
        model.parameters(), betas=betas, weight_decay=args.adam_weight_decay
    )
    criterion = nn.NLLLoss(ignore_index=PAD)
    metrics = Metrics(args.metrics, rank=0, world_size=1)

    taken = 0
    for epoch in range(args.epochs):
        dataset = BertDataset(corpus, vocab, args.seq_len, args.seed, epoch)
        # Without a generator of its own a loader draws from the global one, and shifts the dropout.
        loader = DataLoader(dataset, args.batch_size, drop_last=True, generator=torch.Generator())
        for step, batch in enumerate(loader):
            tokens, segments, is_next, labels = (part.to(device) for part in batch)
            begun = time.perf_counter()
            with torch.autocast(device.type, torch.bfloat16, enabled=args.amp is not None):
                next_output, mlm_output = model(tokens, segments)
                next_loss = criterion(next_output, is_next)
                mlm_loss = criterion(mlm_output.transpose(1, 2), labels)
                loss = next_loss + mlm_loss
            optimizer.zero_grad()
            loss.backward()
            seconds = time.perf_counter() - begun
            taken += 1
            for group in optimizer.param_groups:
                group["lr"] = warm_up(args.hidden, args.warmup, taken)
            optimizer.step()
            if args.metrics:
                metrics.write("step", epoch=epoch, step=step, loss=loss.item(), forward_backward_seconds=seconds)
            if step % args.log_freq == 0:
                print(f"{{'epoch': {epoch}, 'iter': {step}, 'loss': {loss.item():.4f}}}", flush=True)
            if taken == args.steps:
                break
        print(f"EP{epoch}_train, loss= {loss.item():.4f}", flush=True)
        if taken == args.steps:
            break

    if args.output:
        save_file(model.state_dict(), args.output)


if __name__ == "__main__":
    main()
