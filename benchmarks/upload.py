"""Workers that push 128 MB updates at once, against a bare stream of the same chunks that are thrown away.

Timed from the first byte to the last acknowledgement. Memory until then should be at most that of the
updates under way and two models; FedECADO keeps a flow of each client and their sum beside that. What the
whole round takes is told, too.
"""

from contextlib import ExitStack

from benchmarks.fleet import Fleet
from benchmarks.harness import Contender, pooled, race, report
from benchmarks.servers import bare, coordinator
from benchmarks.traffic import SPARE, Traffic

BYTES = 128 << 20
NAMES = "bare stream", "coordinator", "coordinator, durable", "coordinator, fedecado"
FLOOR, *_, FEDECADO = NAMES


def run(quick: bool) -> None:
    size, repeats = (16 << 20, 3) if quick else (BYTES, 15)
    for workers in (1, 8):
        most = {name: None if name == FEDECADO else workers + SPARE for name in NAMES}
        traffic = {name: Traffic(workers * size, size, most[name]) for name in NAMES}
        # One worker's update takes as long as a hiccup of the machine.
        sittings = 1 if quick else 2 if workers > 1 else 3
        contenders = pooled([_sitting(workers, size, repeats, traffic) for _ in range(sittings)])
        for contender in contenders:
            traffic[contender.name].note(contender)
        report(f"upload_{workers}", contenders, workers=workers, megabytes=size >> 20)


def _sitting(workers: int, size: int, repeats: int, traffic: dict[str, Traffic]) -> list[Contender]:
    """A race of new processes."""
    waiting = ("--rounds", "1000000", "--rounds-min-clients", str(workers))
    servers = (
        bare(workers, size // 4),
        coordinator(*waiting, "--algorithm", "fedavg"),
        coordinator(*waiting, "--algorithm", "fedavg", durable=True),
        coordinator(*waiting),
    )
    with ExitStack() as stack:
        contenders = []
        for name, opened in zip(NAMES, servers, strict=True):
            fleet = stack.enter_context(Fleet(opened, workers, size // 4))
            fleet.join(model=name != FLOOR)
            contenders.append(_Upload(name, fleet, traffic[name]).contender)
        race(contenders, repeats)
    return contenders


class _Upload:
    def __init__(self, name: str, fleet: Fleet, traffic: Traffic) -> None:
        self._fleet, self._traffic = fleet, traffic
        fleet.receive()
        self.contender = Contender(name, self._run, lambda: traffic.begin(fleet.server), self._settle)

    def _run(self) -> None:
        self._fleet.deliver()
        self._traffic.end(self._fleet.server)

    def _settle(self) -> None:
        self._fleet.receive()
        self._traffic.settled(self._fleet.server)
