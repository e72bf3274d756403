"""How long clients wait: from the last of 10 updates to the new centre, 9.2 million parameters."""

from contextlib import ExitStack

import numpy as np

from benchmarks.harness import CORES, Contender, race, report
from benchmarks.rivals.flower_aggregate import flower_aggregate
from benchmarks.rivals.watch import RivalError
from benchmarks.rounds import Round
from fedecado.common.layout import Vector

A, D = 10, 9_200_000


def run(quick: bool) -> None:
    d, repeats = (1_000_000, 5) if quick else (D, 15)
    ours = Round(A, d)
    x_c, X = ours.state.central, ours.ends
    w = np.random.default_rng(1).dirichlet(np.ones(A)).astype(np.float32)

    def loop() -> Vector:
        result = x_c.copy()
        for weight, row in zip(w, X, strict=True):
            result += weight * row
        return result

    def naive() -> Vector:
        moved = sum(weight * (row - x_c) for weight, row in zip(w, X, strict=True))
        return np.asarray(x_c + moved)

    contenders = [
        Contender("w @ X", lambda: w @ X, blas_threads=CORES),
        Contender("fedecado", ours.last_update, prepare=lambda: ours.start(A - 1)),
        Contender("numpy loop", loop),
        Contender("naive temporaries", naive),
    ]
    with ExitStack() as stack:
        try:
            contenders.append(stack.enter_context(flower_aggregate(A, d)))
        except RivalError as error:
            print(f"central: without Flower's aggregate; {error}")
        race(contenders, repeats)
    report("central", contenders, a=A, d=d)
