"""A run without network for those who watch it: members, rounds and measurements made by hand."""

from pathlib import Path
from typing import Any

from fedecado.common.layout import Layout
from fedecado.server.algorithms import make_algorithm
from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.journal import ClosedRound
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.models import ModelFiles
from fedecado.server.coordinator.run import Run
from fedecado.server.rounds import Engine, Enrolled, Rules
from fedecado.v1 import session_pb2 as pb

ABOUT = About("demo", "fedecado", "1.2.3")
DETAILS = {
    "capacitance": 2.0,
    "steps": 3,
    "rejected_steps": 1,
    "floored_steps": 0,
    "shortest_step": 0.25,
    "step_level": 2,
    "truncation_error": 0.03,
    "lu_hits": 4,
    "lu_misses": 1,
    "central_change": 0.125,
    "flow_median": 0.25,
    "flow_max": 0.75,
}


def make_run(folder: Path, **rules: Any) -> Run:
    run = Run(Engine(Rules(**rules)), make_algorithm("fedecado"), ModelFiles(folder, "demo-1"))
    run.layout = Layout.flat(10)
    return run


def add_member(run: Run, name: str, *, role: "pb.Role.ValueType" = pb.ROLE_TRAINER) -> Member:
    """A worker that is known, and enrolled if it trains, but has no connection."""
    hello = pb.Hello(worker_id=name, role=role, samples=10, device="cpu")
    member = run.members.by_id[name] = Member(name, len(run.members.by_id), role, hello)
    if role == pb.ROLE_TRAINER:
        run.engine.handle(Enrolled(name, 10))
    return member


def closed_round(number: int, **changes: Any) -> ClosedRound:
    fields: dict[str, Any] = {
        "number": number,
        "version": number,
        "opened": 100.0 * number,
        "closed": 100.0 * number + 7,
        "workers": ("a", "b"),
        "window": 1.0,
        "rate": 0.5,
        "solve_seconds": 2.0,
        "loss_before": 1.0,
        "loss_after": 0.5,
        "details": DETAILS,
        **changes,
    }
    return ClosedRound(**fields)
