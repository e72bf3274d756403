"""A run as its folder's store has it: finished, interrupted, or as of the last checkpoint."""

from pathlib import Path

from fedecado.server.coordinator.journal import Journal
from fedecado.server.coordinator.members import Members
from fedecado.server.coordinator.memory import load_journal, load_members
from fedecado.server.numerics.options import Options
from fedecado.server.observe.plain import Row, finite
from fedecado.server.observe.rows import measurement_row, member_row, round_row, windows_row
from fedecado.server.store import read_stored
from fedecado.server.store.records import Head


def read_store(folder: Path) -> Row:
    """The snapshot of a run's folder; StoreError if the store cannot be read."""
    stored = read_stored(folder)
    members = load_members(stored.head.members, stored.notes)
    # Rounds since the checkpoint would have to be computed again; an orderly end leaves none.
    journal = load_journal(stored.head.journal, stored.notes, (), stored.head.scalars["version"])
    return {
        "source": "results",
        "now": stored.head.at,
        "run": _run_row(folder, stored.head, members, journal),
        "rounds": _rounds(journal, float(stored.head.scalars["time"])),
        "measurements": [measurement_row(measurement) for measurement in journal.measurements],
        "windows": windows_row(journal),
        "workers": [{**member_row(member), "state": "offline"} for member in members.by_id.values()],
    }


def _run_row(folder: Path, head: Head, members: Members, journal: Journal) -> Row:
    recipe, finished = head.recipe, head.engine.get("finished")
    solver = (recipe.solver or Options()) if recipe.algorithm == "fedecado" else None
    return {
        "id": head.run_id,
        "name": folder.resolve().name,
        "algorithm": recipe.algorithm,
        "mode": recipe.rules.mode,
        "software": "",
        "phase": "finished" if finished else "interrupted",
        "waiting_for": f"finished: {finished}"
        if finished
        else f"stored at version {head.scalars['version']}; started again, the run goes on",
        "started": journal.started,
        "parameters": recipe.layout.parameters,
        "version": head.scalars["version"],
        "rounds_total": recipe.rules.max_rounds,
        "simulated_time": finite(head.scalars["time"]),
        "enrolled": sum(member.trains for member in members.by_id.values()),
        "accepted": journal.accepted,
        "refused": journal.refused,
        "open": None,
        "rho": None if solver is None else finite(solver.rho),
        "tolerance": None if solver is None else solver.tolerance,
    }


def _rounds(journal: Journal, time: float) -> list[Row]:
    rows = []
    for closed in reversed(journal.rounds):
        rows.append(round_row(closed, time, journal.started))
        time -= closed.window
    return rows[::-1]
