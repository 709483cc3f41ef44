"""The library's unit tests, of which some take a GPU where there is one.

They are packed for a GPU only: on the CPU, `cargo xtask test` runs them.
"""

import re

from examination.commands import rust
from examination.part import Part
from examination.results import expect

TOPIC = "unit tests"

# One test at a time, since many of them make a group, which on a GPU is one of NCCL's. The one that is skipped reads
# its expected values from the checkout, which is not packed.
FLAGS = "--test-threads 1 --skip partitions_are_those_of_pytorch"


def passed(_, processes):
    """How many tests passed; names those that failed."""
    for process in processes:
        failed = re.findall(r"^test (\S+).* FAILED$", process.stdout(), re.MULTILINE)
        reason = f"{process.command.file} failed: {', '.join(failed) or process.last_words()}"
        expect(process.code == 0, reason)
    counts = [int(re.search(r"(\d+) passed", process.stdout())[1]) for process in processes]
    expect(all(counts), f"of a program, no test ran: {counts}")
    return f"{sum(counts)} tests"


def parts():
    crates = ["c10d_sys", "tch_parallel"] + [f"tch_parallel_{name}" for name in ("base", "data", "nn", "optim")]
    programs = [rust(f"{name}_tests", FLAGS) for name in crates]
    return [Part(TOPIC, "of the library, built with the feature cuda", [programs], passed, may_fail=True)]
