"""Writes docs/reliability.md from the logs of scripts/reliability.sh.

    scripts/reliability.py LOGS PAGE

The log of a part contains lines of "reliability: ", a kind and NAME=VALUE pairs; a last pair named "what" may contain
spaces. docs/found.md, which is kept by hand, is appended to the page.
"""

import re
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

Facts = dict[str, str]

HEAD = """# Reliability

Stress tests of this library and their results. `make reliability` runs all of them and rewrites this page;
`scripts/reliability.sh PART...` runs parts. All results are from the simulated CUDA driver on lavapipe, at the time
stated in each section. `make test` always runs the failure sweep, the process tests and some thousand steps of the
sequences.
"""

SANITY = """
Each case of gdrcopy's sanity suite that applies to this library is a test of the same name in
`tests/process/sanity.rs`; the head of that file lists the others, with reasons.

| gdrcopy | here |
|---|---|
| `basic_cumemalloc`, `basic_vmmalloc` | `basic`, for each kind with a host view |
| `basic_with_tokens` | none: there are no tokens, nothing is pinned |
| `basic_unaligned_mapping` | `basic_unaligned_mapping`: a region may begin at any byte |
| `basic_small_buffers_mapping` | `basic_small_buffers_mapping` |
| `basic_child_thread_pins_buffer_…` | `basic_child_thread_pins_buffer`: allocated, shared and freed by threads |
| `data_validation_…` | `data_validation`: through the pointer, by `write` and `read`, at word, byte and no alignment |
| `invalidation_access_after_gdr_close_…` | `invalidation_access_after_gdr_close`: memory outlives its handle |
| `invalidation_access_after_free_…` | `invalidation_access_after_free`: the address is no longer mapped. Safe Rust \
rejects such an access at compile time, Python raises, C documents it |
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
    """Parse the pairs of a line."""
    pairs = dict(re.findall(r"(\w+)=(\S+)", line))
    if sentence := re.search(r" what=(?!.* \w+=)(.*)", line):
        pairs["what"] = sentence[1]
    return pairs


class Log:
    """The log of a part."""

    def __init__(self, path: Path) -> None:
        """Read the log; a missing one counts as empty."""
        self.text = path.read_text(errors="replace") if path.exists() else ""
        self.facts: dict[str, list[Facts]] = defaultdict(list)
        for kind, rest in re.findall(r"reliability: (\w+) (.*)$", self.text, re.M):
            self.facts[kind].append(facts_of(f" {rest}"))

    def one(self, kind: str) -> Facts:
        """Find the first line of a kind."""
        return next(iter(self.facts[kind]), {})

    def when(self) -> str:
        """Return a sentence with the time of the run, the machine and the result."""
        ran, ended = self.one("ran"), self.one("ended")
        if not ran:
            return "Not run yet."
        how = f"{ended['status']}, {ended['seconds']} s" if ended else "did not finish"
        return f"Ran {ran['date']} {ran['time']} UTC, version {ran['version']}, on {ran['cores']} cores: {how}."


def number(text: str) -> str:
    """Format a number with thousands separators."""
    return f"{int(text):,}" if text.isdecimal() else text


def wrapped(text: str) -> str:
    """Wrap paragraphs at 120 columns."""
    return "\n\n".join(textwrap.fill(paragraph, 120) for paragraph in text.split("\n\n")).rstrip() + "\n\n"


def table(head: str, rows: list[list[str]]) -> str:
    """Format a Markdown table."""
    lines = [f"| {head} |", "|" + "---|" * len(head.split("|"))]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def sweep(log: Log) -> str:
    """List operations, their driver calls, and the injected faults."""
    found = log.facts["sweep"]
    calls, faults = (sum(int(facts[name]) for facts in found) for name in ("calls", "faults"))
    text = (
        "Each driver call of an operation fails in turn, with several codes of each driver (`tests/failures`). The "
        "error must name the call and keep its code, and live objects of both drivers, the current context, "
        "descriptors and mappings must be unchanged afterwards. Operations with 0 calls are checked to make none.\n\n"
        f"**{len(found)} operations, {number(str(calls))} calls, {number(str(faults))} faults.**\n\n"
    )
    groups: dict[str, list[Facts]] = defaultdict(list)
    for facts in found:
        # The kinds of memory and of contexts are variants of one operation.
        name = re.sub(r",? (of )?(plain|primary) context$", "", facts.get("what", ""))
        groups[re.sub(r"( of)? (mapped|host|device) memory\b", "", name)].append(facts)
    rows = [
        [name, str(len(group)), *(str(sum(int(facts[key]) for facts in group)) for key in ("calls", "faults"))]
        for name, group in groups.items()
    ]
    return wrapped(text) + table("operation | variants | calls of both drivers | faults injected", sorted(rows))


SEQUENCES = {
    "alone": "one thread",
    "threads": "16 threads",
    "streams": "one thread, cudarc's streams",
    "stream-threads": "16 threads, cudarc's streams",
}


def sequences(log: Log) -> str:
    """List the steps of each profile."""
    rows = [
        [
            SEQUENCES.get(facts["what"], facts["what"]),
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
        "Random steps over all public operations, checked against a model of every byte as the CPU and the device must "
        "see it; afterwards the drivers' ledgers of live objects must be unchanged (`tests/sequences`). *Refused* "
        "counts allocations that exceed the memory of a device profile.\n\n"
    )
    skipped = [f"* {line}" for line in re.findall(r"^skipped: .*$", log.text, re.M)]
    head = "how | device profile | copies | layers | sequences | steps | refused"
    return wrapped(text) + table(head, rows) + ("\n" + "\n".join(sorted(set(skipped))) + "\n" if skipped else "")


def passed(log: Log) -> str:
    """Count the tests that passed, by file."""
    names = sorted(set(re.findall(r"PASS .*? vkgdr::(\w+) (\w+)::(\w+)", log.text)))
    by_file: dict[str, list[str]] = defaultdict(list)
    for binary, module, name in names:
        by_file[f"{binary}/{module}"].append(name)
    rows = [[f"`tests/{name}.rs`", str(len(tests))] for name, tests in by_file.items()]
    text = (
        "In a forked child every public operation is refused, nothing of the parent's is released however the child "
        "ends, and the parent works on (`fork…`). Children killed at random moments leave nothing behind; SIGTERM and "
        "SIGINT terminate a copying process without output; with 64 descriptors errors name the limit, and operations "
        "succeed again once descriptors are free (`ends`).\n\n"
    )
    return wrapped(text) + table("tests | passed", rows) + SANITY


def sanitizers(log: Log) -> str:
    """Write one row for each sanitizer."""
    what = {
        "address": "AddressSanitizer, LeakSanitizer: the crate's tests, but for the exhaustive ones of copy plans",
        "thread": "ThreadSanitizer: 16 threads of sequences, of pools and of memory; nothing suppressed",
        "c": "AddressSanitizer, UBSan, LeakSanitizer and Valgrind: the C and C++ programs",
        "python": "AddressSanitizer: the Python tests, with the extension module and the simulator instrumented",
        "miri": "Miri: what needs no driver",
        "loom": "loom: every interleaving of what is lock-free",
    }
    results = {facts["name"]: facts["result"] for facts in log.facts["sanitizer"]}
    rows = [[words, results.get(name, "not run, or failed")] for name, words in what.items()]
    return table("sanitizer | result", rows)


def fuzz(log: Log) -> str:
    """Write one row for each target."""
    counts = ("executions", "coverage", "features")
    rows = [
        [f"`{facts['target']}`", facts["seconds"], *(number(facts[name]) for name in counts)]
        for facts in log.facts["fuzz"]
    ]
    text = "libFuzzer with AddressSanitizer. Coverage counts edges of the code; features are libFuzzer's.\n\n"
    return wrapped(text) + table("target | seconds | executions | coverage | features", rows)


def flush(log: Log) -> str:
    """List the tests that detect each broken flush."""
    lines = log.facts["flush"]
    text = (
        "`scripts/broken-flush.sh` applies each patch of `tests/mutations`, which breaks flush, to a copy of the\n"
        "sources; at least three tests must then fail on non-coherent memory.\n"
    )
    for facts in lines:
        names = ", ".join(f"`{name}`" for name in facts.get("tests", "").split(",") if name)
        text += f"\n**{facts.get('broken', '')}: detected by {facts.get('result', '')} tests.**\n{names}\n"
    return text


def soak(log: Log) -> str:
    """Write the soak's figures."""
    text = (
        "Sixteen threads of sequences; `tests/sequences/soak.rs` defines the limits. Heap and resident memory are the "
        "minima of the first and of the last third.\n\n"
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
    "processes": ("Forks, kills, limits, signals, and gdrcopy's sanity suite", passed),
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
