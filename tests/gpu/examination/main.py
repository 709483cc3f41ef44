"""The examination from its start to its page."""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from examination import asynchronous, errors, parity, speed, state, unit_tests
from examination.commands import PROGRAMS, RANKS, ROOT
from examination.forks import Forks
from examination.page import details, page
from examination.part import FAILED, examine, examine_dry

# All of it, in seconds; a part that does not fit any more is not possible.
BUDGET = 460

# Launchers tell a process its rank through these as well.
LAUNCHERS = ("TORCHELASTIC_", "PET_", "OMPI_", "PMI_", "SLURM_")


class Refused(Exception):
    """The examination cannot begin, for this reason."""


class Machine:
    """What the examination runs on."""

    def __init__(self):
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in RANKS and not name.startswith(LAUNCHERS)
        }
        search = [str(ROOT / "examination/stand_ins"), self.environment.get("PYTHONPATH", "")]
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))
        self.forks = Forks(self.environment)
        found = json.loads(self.ask())
        self.torch, self.cuda, self.gpus = found["torch"], found["cuda"], found["gpus"]
        self.torchvision = found["torchvision"]
        search = [found["libraries"], self.environment.get("LD_LIBRARY_PATH", "")]
        self.environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, search))
        # On one machine, gloo needs no name of it.
        self.environment["GLOO_SOCKET_IFNAME"] = "lo"
        self.first_gpu = self.environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]

    def ask(self):
        """What machine.py prints."""
        script = ROOT / "examination/machine.py"
        with tempfile.TemporaryDirectory(prefix="examination-") as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            try:
                asked = self.forks.start(script, [], folder, self.environment, out, err)
            except OSError as error:
                raise Refused(f"{error}: start `run` with a Python that has PyTorch") from error
            while asked.poll() is None:
                time.sleep(0.01)
            if asked.poll() != 0:
                raise Refused(f"PyTorch does not say what it has: {err.read_text().strip()}")
            return out.read_text()


def read_args(doc):
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="run", description=doc, formatter_class=formatter)
    parser.add_argument(
        "--dry", action="store_true", help="start every part up to its first call of CUDA, without a GPU"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="examine the parts whose names contain it")
    parser.add_argument(
        "--to", type=Path, default=Path("examination.txt"), metavar="FILE", help="where to write the page"
    )
    return parser.parse_args()


def check(machine, is_dry, torch):
    """Refuses a machine on which nothing can work."""
    if machine.torch != torch:
        raise Refused(
            f"these programs are built for PyTorch {torch}, and this Python has {machine.torch}:"
            f" pack with `cargo xtask gpu pack --torch {machine.torch}`, or install the other release"
        )
    if is_dry and machine.gpus:
        raise Refused("--dry is for machines without a GPU; leave it out, or hide the GPUs with CUDA_VISIBLE_DEVICES=")
    if not is_dry and not machine.gpus:
        raise Refused("PyTorch finds no GPU on this machine; --dry starts every part without one")
    for file in PROGRAMS.iterdir():
        # Not every way to copy a folder keeps the permission.
        if not os.access(file, os.X_OK):
            file.chmod(0o755)


def write_corpus(path):
    """Random pairs of sentences, for a BERT that is only measured."""
    words = random.Random(0).choices([f"word{number}" for number in range(5000)], k=10_240 * 140)
    sentences = [" ".join(words[at : at + 70]) for at in range(0, len(words), 70)]
    path.write_text("".join(f"{a}\t{b}\n" for a, b in zip(sentences[::2], sentences[1::2])))


def examine_all(machine, folder, deadline, only):
    """The results of all parts, and the rows of the table."""
    topics = [parity, state, asynchronous, unit_tests, errors]
    parts = [part for topic in topics for part in topic.parts() if only in part.name]
    work = {part.name: folder / f"{number:02}" for number, part in enumerate(parts)}
    say = lambda result: print(f"{result.outcome:18}{result.part.name} ({result.seconds:.0f} s)", flush=True)

    def of(part):
        result = examine(part, machine, work[part.name], deadline)
        say(result)
        return result

    with ThreadPoolExecutor(max(1, min(4, (os.cpu_count() or 1) // 2))) as pool:
        results = {part.name: pool.submit(of, part) for part in parts if not part.is_alone}
    results = {name: result.result() for name, result in results.items()}
    results |= {part.name: of(part) for part in parts if part.is_alone}
    rows, measured = [], []
    for number, part in enumerate(part for part in speed.parts() if only in part.name):
        result, row = speed.measure_row(part, machine, folder / f"row{number}", deadline)
        say(result)
        measured.append(result)
        rows.append(row)
    return [results[part.name] for part in parts] + measured, rows


def start_all(machine, folder, deadline):
    """The results of all parts that can start without a GPU."""
    topics = [parity, state, asynchronous, errors, speed]
    parts = [part for topic in topics for part in topic.parts()]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        run = lambda numbered: examine_dry(numbered[1], machine, folder / f"{numbered[0]:02}", deadline)
        return list(pool.map(run, enumerate(parts)))


def main(doc):
    args = read_args(doc)
    begun = time.monotonic()
    try:
        packed = json.loads((ROOT / "packed.json").read_text())
        if not args.dry and not packed["cuda"]:
            raise Refused("these programs are packed for the CPU, for --dry alone: pack without --cpu")
        machine = Machine()
        check(machine, args.dry, packed["torch"])
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 2
    deadline = begun + BUDGET
    with tempfile.TemporaryDirectory(prefix="examination-") as folder:
        folder = Path(folder)
        if args.dry:
            results, rows = start_all(machine, folder, deadline), []
        else:
            write_corpus(folder / "corpus.txt")
            results, rows = examine_all(machine, folder, deadline, args.only)
        text = page(machine, results, rows, time.monotonic() - begun, args.dry)
        print(text if args.dry else f"\n{text}", end="")
        args.to.write_text(text + "".join(details(results)))
    return 1 if any(result.outcome == FAILED for result in results) else 0
