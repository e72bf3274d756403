"""`python -m benchmarks report`: the table in docs/performance.md, made anew from benchmarks/results.

Each line is a claim: a contender's ratio to the first one of its run, and what the ratio should be.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- from benchmarks/results -->", "<!-- end of results -->"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a contender's ratio should be, at most or at least."""

    most: float | None = None
    least: float | None = None

    def holds(self, ratio: float) -> bool:
        return (self.most is None or ratio <= self.most) and (self.least is None or ratio >= self.least)

    def __str__(self) -> str:
        return f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"


# A rate of 80 % is a time of 1.25, one of 50 % a time of 2, one of 60 % a time of 1.67.
GOALS = {
    ("central", "fedecado"): Goal(most=2.5),
    **{("central_total", f"fedecado, {n} step"): Goal(most=10) for n in (1, 8, 128)},
    **{(f"upload_{n}", "coordinator"): Goal(most=1.25) for n in (1, 8)},
    **{(f"upload_{n}", "coordinator, durable"): Goal(most=2.0) for n in (1, 8)},
    **{(f"broadcast_{n}", "coordinator"): Goal(most=1.25) for n in (2, 10)},
    **{(f"control_{n}", "coordinator"): Goal(most=1.67) for n in (2, 10, 100, 1000)},
    ("flower_2_10000", "flwr"): Goal(least=600),
    ("flower_10_10000", "flwr"): Goal(least=1000),
    ("flower_2_10000000", "flwr"): Goal(least=20),
    ("nvflare_2_10000", "nvflare"): Goal(least=100),
    ("nvflare_2_10000000", "nvflare"): Goal(least=10),
    ("simulate", "flwr"): Goal(least=20),
}


def write(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Put the table between its marks."""
    text = page.read_text()
    before, marked, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (marked and ended):
        raise SystemExit(f"{page} has no lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}")
    print(f"{page} is up to date with {results}")


def table(results: Path) -> str:
    """All results there are, one after the other."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    lines = ["| benchmark | | median | ratio | quartiles | goal | load |", "|---|---|---|---|---|---|---|"]
    for name, content in found.items():
        lines += _contenders(name, content) if "contenders" in content else ()
    machines = {_machine(content["machine"]) for content in found.values()}
    return "\n".join([*sorted(machines), "", *lines, *_memory(found), *_startup(found)])


def _contenders(name: str, content: dict[str, Any]) -> Iterator[str]:
    """Lines of one run; the first contender is what the others are compared with."""
    for contender in content["contenders"]:
        ratio, (low, high) = contender["ratio"], contender["ratio_quartiles"]
        goal = _goal(name, contender["name"])
        said = "" if goal is None else f"{goal}: {'holds' if goal.holds(ratio) else 'missed'}"
        spread = f"{_short(low)} to {_short(high)}" if len(contender["seconds"]) > 1 else "one turn"
        shown = "1" if contender is content["contenders"][0] else f"{_short(ratio)} | {spread}"
        yield "| " + " | ".join(
            [
                f"`{name}`",
                contender["name"],
                _time(contender["median_seconds"]),
                shown if "|" in shown else f"{shown} | ",
                said,
                f"{content['machine']['load'][0]:.0f} |",
            ]
        )


def _goal(benchmark: str, contender: str) -> Goal | None:
    """Names may go on with a version, or with an s."""
    rival, _, said = contender.partition(" ")
    name = rival if rival.isalnum() and said[:1].isdigit() else contender.replace("steps", "step")
    return GOALS.get((benchmark, name))


def _memory(found: dict[str, Any]) -> Iterator[str]:
    """What the memory of a coordinator and of two workers did."""
    for name, whose, goal in (
        ("memory", "a coordinator", " (goal: 120 MB)"),
        ("memory_workers", "two workers", ", most of it torch"),
    ):
        if (content := found.get(name)) is None:
            continue
        resident, slope, error = (content[key] for key in ("resident_bytes", "slope", "slope_error"))
        yield ""
        yield (
            f"`{name}`: {whose} with {resident[-1] / 2**20:.0f} MiB after {content['rounds'][-1]:,} rounds, "
            f"at most {max(resident) / 2**20:.0f}{goal}; {slope:+.0f} bytes a round in the second half, "
            f"give or take {error:.0f} (goal: 0)."
        )


def _startup(found: dict[str, Any]) -> Iterator[str]:
    """Differences in seconds, which ratios do not tell."""
    if (content := found.get("startup")) is not None:
        seconds = {c["name"]: c["median_seconds"] for c in content["contenders"]}
        nothing = seconds["python -c pass"]
        yield ""
        yield (
            f"`startup`: help takes {seconds['fedecado --help'] - nothing:.2f} s more than a Python that "
            f"does nothing (goal: 0.25), a coordinator {seconds['coordinator listens'] - nothing:.2f} s "
            f"until it listens (goal: 0.6)."
        )


def _machine(machine: dict[str, Any]) -> str:
    memory = machine["memory_bytes"] / 2**30
    return (
        f"{machine['processor']}, {machine['cores']} cores, {memory:.0f} GiB, Python {machine['python']}, "
        f"numpy {machine['numpy']}, {machine['when'][:10]}."
    )


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 20 else f"{ratio:.2g}" if ratio >= 10 else f"{ratio:.2f}"
