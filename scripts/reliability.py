"""Writes docs/reliability.md from what the parts of scripts/reliability.sh said.

    scripts/reliability.py LOGS PAGE

A part's log has lines that begin with "reliability: ", a word and NAME=VALUE pairs, of which the last value may have
spaces if its name is "what". Whatever is kept by hand is in docs/found.md, beside the page, and goes into it whole.
"""

import re
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

Facts = dict[str, str]

HEAD = """# Reliability

What was tried to break this library, and what came of it. `make reliability` runs all of it and writes this page anew;
`scripts/reliability.sh PART...` runs parts. The numbers are of the simulated CUDA driver on lavapipe, from the runs
that each section names. `make test` runs the sweep, the processes and a few thousand steps of the sequences every time.
"""

SANITY = """
Each case of gdrcopy's sanity suite that makes sense for this library is a test with the case's name in
`tests/process/sanity.rs`; the head of that file says which do not, and why.

| gdrcopy | here |
|---|---|
| `basic_cumemalloc`, `basic_vmmalloc` | `basic`, for each kind that the CPU sees |
| `basic_with_tokens` | none: there are no tokens, nothing is pinned |
| `basic_unaligned_mapping` | `basic_unaligned_mapping`: a region may begin anywhere |
| `basic_small_buffers_mapping` | `basic_small_buffers_mapping` |
| `basic_child_thread_pins_buffer_…` | `basic_child_thread_pins_buffer`: allocated, shared and freed by threads |
| `data_validation_…` | `data_validation`: through the pointer, by `write` and `read`, at word, byte and no alignment |
| `invalidation_access_after_gdr_close_…` | `invalidation_access_after_gdr_close`: memory outlives its handle |
| `invalidation_access_after_free_…` | `invalidation_access_after_free`: nothing is mapped there any more. Safe Rust \
does not compile it, Python raises, C has it documented |
| `invalidation_two_mappings_…` | `invalidation_two_mappings`: one outlives the other |
| `invalidation_fork_access_after_free_…` | `invalidation_fork_access_after_free` |
| `invalidation_fork_after_gdr_map_…` | `invalidation_fork_after_gdr_map` |
| `invalidation_fork_child_gdr_map_parent_…` | `invalidation_fork_child_gdr_map_parent` |
| `invalidation_fork_map_and_free_…` | `invalidation_fork_map_and_free` |
| `invalidation_fork_child_gdr_pin_parent_with_tokens` | none: there are no tokens |
| `invalidation_unix_sock_shared_fd_gdr_map_…` | `invalidation_unix_sock_shared_fd_gdr_map`: sharing is by descriptor |
| `invalidation_unix_sock_shared_fd_gdr_pin_buffer_…` | `invalidation_unix_sock_shared_fd_gdr_pin_buffer`: a foreign \
descriptor is refused |
"""


def facts_of(line: str) -> Facts:
    """Read the pairs of a line."""
    pairs = dict(re.findall(r"(\w+)=(\S+)", line))
    if sentence := re.search(r" what=(?!.* \w+=)(.*)", line):
        pairs["what"] = sentence[1]
    return pairs


class Log:
    """What a part said."""

    def __init__(self, path: Path) -> None:
        """Read the log; one that is missing has nothing."""
        self.text = path.read_text(errors="replace") if path.exists() else ""
        self.facts: dict[str, list[Facts]] = defaultdict(list)
        for kind, rest in re.findall(r"reliability: (\w+) (.*)$", self.text, re.M):
            self.facts[kind].append(facts_of(f" {rest}"))

    def one(self, kind: str) -> Facts:
        """Find the first line of a kind."""
        return next(iter(self.facts[kind]), {})

    def when(self) -> str:
        """Say when it ran, on what, and how it ended."""
        ran, ended = self.one("ran"), self.one("ended")
        if not ran:
            return "Not run yet."
        how = f"{ended['status']}, {ended['seconds']} s" if ended else "did not come to its end"
        return f"Ran {ran['date']} {ran['time']} UTC, version {ran['version']}, on {ran['cores']} cores: {how}."


def number(text: str) -> str:
    """Write a number with its thousands apart."""
    return f"{int(text):,}" if text.isdecimal() else text


def wrapped(text: str) -> str:
    """Break the lines of paragraphs."""
    return "\n\n".join(textwrap.fill(paragraph, 120) for paragraph in text.split("\n\n")).rstrip() + "\n\n"


def table(head: str, rows: list[list[str]]) -> str:
    """Write a table with a head of words between bars."""
    lines = [f"| {head} |", "|" + "---|" * len(head.split("|"))]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def sweep(log: Log) -> str:
    """List operations, their calls, and the faults tried."""
    found = log.facts["sweep"]
    calls, faults = (sum(int(facts[name]) for facts in found) for name in ("calls", "faults"))
    text = (
        "Every driver call that an operation makes is made to fail in turn, with several codes of each driver "
        "(`tests/failures`). The error must name the call and keep its code, and then live objects of both drivers, "
        "the current context, descriptors and mappings must be as before. Operations with 0 calls are watched not to "
        f"make one.\n\n**{len(found)} operations, {number(str(calls))} calls, {number(str(faults))} faults.**\n\n"
    )
    groups: dict[str, list[Facts]] = defaultdict(list)
    for facts in found:
        # Kinds of memory and the context's two places are variants of an operation.
        name = re.sub(r",? (of )?(plain|primary) context$", "", facts.get("what", ""))
        groups[re.sub(r"( of)? (mapped|host|device) memory\b", "", name)].append(facts)
    rows = [
        [name, str(len(group)), *(str(sum(int(facts[key]) for facts in group)) for key in ("calls", "faults"))]
        for name, group in groups.items()
    ]
    return wrapped(text) + table("operation | variants | calls of both drivers | faults tried", sorted(rows))


def sequences(log: Log) -> str:
    """List steps by profile."""
    rows = [
        [
            {"alone": "one thread", "threads": "16 threads"}.get(facts["what"], facts["what"]),
            facts["profile"],
            facts["copies"],
            facts["layers"],
            number(facts["sequences"]),
            number(facts["steps"]),
            number(facts["refused"]),
        ]
        for facts in log.facts["sequences"]
    ]
    text = (
        "Random steps over everything that the crate does, against a model that knows what every byte must be for the "
        "CPU and for the device; in the end both drivers' ledgers are as before (`tests/sequences`). *Refused* are "
        "allocations for which a device profile has no room.\n\n"
    )
    skipped = [f"* {line}" for line in re.findall(r"^skipped: .*$", log.text, re.M)]
    head = "how | device profile | copies | layers | sequences | steps | refused"
    return wrapped(text) + table(head, rows) + ("\n" + "\n".join(sorted(set(skipped))) + "\n" if skipped else "")


def passed(log: Log) -> str:
    """Count what passed, by the file of the test."""
    names = sorted(set(re.findall(r"PASS .*? vkgdr::(\w+) (\w+)::(\w+)", log.text)))
    by_file: dict[str, list[str]] = defaultdict(list)
    for binary, module, name in names:
        by_file[f"{binary}/{module}"].append(name)
    rows = [[f"`tests/{name}.rs`", str(len(tests))] for name, tests in by_file.items()]
    text = (
        "A forked child is refused every public operation, releases nothing of its parent's however it ends, and the "
        "parent goes on (`fork…`). Children killed at random moments leave nothing behind; SIGTERM and "
        "SIGINT end a process that copies, by the signal and without a word; with 64 descriptors errors name the "
        "limit, and all goes on when there is room again (`ends`).\n\n"
    )
    return wrapped(text) + table("tests | passed", rows) + SANITY


def sanitizers(log: Log) -> str:
    """Write one row for each that ran."""
    what = {
        "address": "AddressSanitizer, LeakSanitizer: the crate's tests, but for the exhaustive ones of copy plans",
        "thread": "ThreadSanitizer: 16 threads of sequences, of pools and of memory; nothing suppressed",
        "c": "AddressSanitizer, UBSan, LeakSanitizer and Valgrind: the C and C++ programs",
        "python": "AddressSanitizer: the Python tests, with the extension module and the simulator instrumented",
        "miri": "Miri: what needs no driver",
        "loom": "loom: every interleaving of what is lock-free",
    }
    results = {facts["name"]: facts["result"] for facts in log.facts["sanitizer"]}
    rows = [[words, results.get(name, "not run, or not clean")] for name, words in what.items()]
    return table("sanitizer | result", rows)


def fuzz(log: Log) -> str:
    """Write one row for each target."""
    counts = ("executions", "coverage", "features")
    rows = [
        [f"`{facts['target']}`", facts["seconds"], *(number(facts[name]) for name in counts)]
        for facts in log.facts["fuzz"]
    ]
    text = "libFuzzer with AddressSanitizer. Coverage is in edges of the code, features as libFuzzer counts them.\n\n"
    return wrapped(text) + table("target | seconds | executions | coverage | features", rows)


def flush(log: Log) -> str:
    """Write what the broken-flush proof said."""
    lines = log.facts["flush"]
    text = (
        "Patches break the library's flush in a copy (`tests/mutations`); at least three tests must then fail on\n"
        "memory that is not coherent (`scripts/broken-flush.sh`).\n"
    )
    for facts in lines:
        names = ", ".join(f"`{name}`" for name in facts.get("tests", "").split(",") if name)
        text += f"\n**{facts.get('broken', '')}: {facts.get('result', '')} tests fail.**\n{names}\n"
    return text


def soak(log: Log) -> str:
    """Write what stayed flat."""
    text = (
        "Sixteen threads of sequences; `tests/sequences/soak.rs` says what flat is. Heap and resident memory are the "
        "least of the first and of the last third.\n\n"
    )
    facts, steps = log.one("soak"), log.one("sequences")
    if not facts:
        return text
    heap, resident = (
        " → ".join(number(kib) for kib in facts[name].split(":")) for name in ("heap_kib", "resident_kib")
    )
    row = [
        facts["minutes"],
        facts["rounds"],
        number(steps.get("steps", "")),
        facts["fds"],
        facts["maps"],
        heap,
        resident,
    ]
    return wrapped(text) + table("minutes | rounds | steps | descriptors | mappings | heap, KiB | resident, KiB", [row])


SECTIONS = {
    "sweep": ("Failure sweep", sweep),
    "sequences": ("Random sequences and threads", sequences),
    "processes": ("Forks, kills, limits, signals, and gdrcopy's cases", passed),
    "sanitizers": ("Sanitizers", sanitizers),
    "fuzz": ("Fuzzing", fuzz),
    "flush": ("Broken flush", flush),
    "soak": ("Soak", soak),
}


def main() -> None:
    """Write the page."""
    logs, page = Path(sys.argv[1]), Path(sys.argv[2])
    parts = [HEAD]
    for name, (title, body) in SECTIONS.items():
        log = Log(logs / f"{name}.log")
        parts.append(f"## {title}\n\n{log.when()}\n\n{body(log)}")
    parts.append(page.with_name("found.md").read_text())
    page.write_text("\n".join(parts))


main()
