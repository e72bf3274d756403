"""How central work grows with clients per round and with parameters; a plot beside the numbers."""

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks import harness
from benchmarks.harness import Contender, free_memory, race, save
from benchmarks.rounds import Round

mpl.use("Agg")


def run(quick: bool) -> None:
    clients = (2, 5, 10) if quick else (2, 5, 10, 20, 50, 100)
    sizes = (100_000, 1_000_000) if quick else (100_000, 1_000_000, 5_000_000, 20_000_000)
    points = []
    for d in sizes:
        for a in clients:
            if _bytes(a, d) > free_memory() // 2:
                print(f"a = {a}, d = {d:,}: skipped, needs {_bytes(a, d) / 2**30:.1f} GiB")
                continue
            points.append(_measure(a, d, repeats=3))
            print("a = {a}, d = {d:,}: centre {centre:.4f} s, all {all:.4f} s".format(**points[-1]))
    save("scaling", {"points": points})
    _plot(points)


def _bytes(a: int, d: int) -> int:
    """End states, displacements, and flows old and new."""
    return 4 * d * (4 * a + 8)


def _measure(a: int, d: int, repeats: int) -> dict[str, Any]:
    one = Round(a, d)
    centre = Contender("centre", one.last_update, prepare=lambda: one.start(a - 1))
    race([centre], repeats)
    one.finish()
    whole = Contender("all", one.everything)
    race([whole], repeats)
    return {"a": a, "d": d, "centre": centre.median, "all": whole.median}


def _plot(points: list[dict[str, Any]]) -> None:
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    for axes, key, title in zip(
        figure.subplots(1, 2, sharey=True),
        ("centre", "all"),
        ("last update to new centre", "all central work of a round"),
        strict=True,
    ):
        for d in sorted({point["d"] for point in points}):
            line = [point for point in points if point["d"] == d]
            axes.loglog([p["a"] for p in line], [p[key] for p in line], "o-", label=f"d = {d:,}")
        axes.set(title=title, xlabel="clients in the round", ylabel="seconds")
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend()
    path = harness.RESULTS / "scaling.png"
    figure.savefig(path, dpi=120)
    print(f"plot written to {path}")
