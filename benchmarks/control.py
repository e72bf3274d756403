"""Rounds of 10,000 parameters in which nobody trains, against a bare loop of the same messages."""

from contextlib import ExitStack

from benchmarks.fleet import Fleet
from benchmarks.harness import Contender, pooled, race, report
from benchmarks.servers import bare, coordinator

PARAMETERS = 10_000
ENDLESS = ("--rounds", "1000000")


def run(quick: bool) -> None:
    for workers in (2, 10) if quick else (2, 10, 100, 1000):
        rounds = max(1, min(200, (200 if quick else 1000) // workers))
        short = workers <= 10
        sittings = [_sitting(workers, rounds, 20 if short else 5) for _ in range(3 if short else 1)]
        contenders = pooled(sittings)
        for contender in contenders:
            contender.seconds = [seconds / rounds for seconds in contender.seconds]
        report(f"control_{workers}", contenders, workers=workers, parameters=PARAMETERS, per="round")


def _sitting(workers: int, rounds: int, repeats: int) -> list[Contender]:
    """A race of new processes."""
    with ExitStack() as stack:
        contenders = [
            Contender(name, lambda fleet=fleet: fleet.work(rounds))  # type: ignore[misc] # mypy wants no defaults here
            for name, fleet in _fleets(stack, workers).items()
        ]
        race(contenders, repeats)
    return contenders


def _fleets(stack: ExitStack, workers: int) -> dict[str, Fleet]:
    waiting = ("--rounds-min-clients", str(workers), *ENDLESS)
    servers = {
        "bare loop": bare(workers, PARAMETERS, "--mean", "--drift"),
        "coordinator": coordinator(*waiting),
        "coordinator, fedavg": coordinator(*waiting, "--algorithm", "fedavg"),
        "coordinator, durable": coordinator(*waiting, durable=True),
    }
    fleets = {
        name: stack.enter_context(Fleet(opened, workers, PARAMETERS)) for name, opened in servers.items()
    }
    for name, fleet in fleets.items():
        fleet.join(model=name != "bare loop")
    return fleets
