"""Workers that push 128 MB updates at once, against a bare stream of the same chunks that are thrown away.

Timed from the first byte to the last acknowledgement. Memory until then should be at most that of the
updates under way and two models, beside what the algorithm keeps; what the whole round takes is told, too.
"""

from contextlib import ExitStack

from benchmarks.fleet import Fleet
from benchmarks.harness import Contender, race, report
from benchmarks.servers import bare, coordinator
from benchmarks.traffic import SPARE, Traffic

BYTES = 128 << 20
FLOOR, DURABLE, FEDECADO = "bare stream", "coordinator, durable", "coordinator, fedecado"


def run(quick: bool) -> None:
    size, repeats = (16 << 20, 3) if quick else (BYTES, 15)
    for workers in (1, 8):
        waiting = ("--rounds", "1000000", "--rounds-min-clients", str(workers))
        servers = {
            FLOOR: bare(workers, size // 4),
            "coordinator": coordinator(*waiting, "--algorithm", "fedavg"),
            DURABLE: coordinator(*waiting, "--algorithm", "fedavg", durable=True),
            FEDECADO: coordinator(*waiting),
        }
        with ExitStack() as stack:
            uploads = []
            for name, opened in servers.items():
                fleet = stack.enter_context(Fleet(opened, workers, size // 4))
                fleet.join(model=name != FLOOR)
                most = workers + SPARE + _kept(name, workers)
                uploads.append(_Upload(name, fleet, Traffic(workers * size, size, most)))
            # One worker's update takes as long as a hiccup of the machine.
            race([upload.contender for upload in uploads], repeats if workers > 1 else 2 * repeats)
        for upload in uploads:
            upload.traffic.note(upload.contender)
        report(f"upload_{workers}", [u.contender for u in uploads], workers=workers, megabytes=size >> 20)


def _kept(name: str, workers: int) -> int:
    """Models that the algorithm keeps: see "Memory" in docs/performance.md."""
    centre, flows, total, written = 1, workers, 2, 2
    return {FLOOR: 0, DURABLE: centre + written, FEDECADO: centre + flows + total}.get(name, centre)


class _Upload:
    def __init__(self, name: str, fleet: Fleet, traffic: Traffic) -> None:
        self._fleet, self.traffic = fleet, traffic
        fleet.receive()
        self.contender = Contender(name, self._run, lambda: traffic.begin(fleet.server), self._settle)

    def _run(self) -> None:
        self._fleet.deliver()
        self.traffic.end(self._fleet.server)

    def _settle(self) -> None:
        self._fleet.receive()
        self.traffic.settled(self._fleet.server)
