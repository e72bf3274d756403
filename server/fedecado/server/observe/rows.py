"""The run's records as plain values, the way the page draws them. NaN and infinity become None."""

from typing import Literal

from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.journal import ClosedRound, Journal, Measurement
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.run import Run
from fedecado.server.coordinator.views import status_of
from fedecado.server.numerics.options import Options
from fedecado.server.observe.plain import DETAILS, Row, finite, imbalance
from fedecado.v1 import admin_pb2 as pb

WorkerState = Literal["idle", "working", "overdue", "away", "offline"]


def run_row(run: Run, about: About, solver: Options | None) -> Row:
    """The run at a glance."""
    status = status_of(run, about)
    opened = status.open_round
    return {
        "id": status.run_id,
        "name": status.run_name,
        "algorithm": status.algorithm,
        "mode": status.mode,
        "software": status.software_version,
        "phase": pb.Phase.Name(status.phase).removeprefix("PHASE_").lower(),
        "waiting_for": status.waiting_for,
        "started": run.journal.started,
        "parameters": status.parameters,
        "version": status.model_version,
        "rounds_total": status.rounds_total or None,
        "simulated_time": status.simulated_time,
        "enrolled": status.clients.enrolled,
        "connected": status.clients.connected,
        "training": status.clients.training,
        "evaluators": status.clients.evaluators,
        "accepted": status.updates_accepted,
        "refused": status.updates_refused,
        "bytes_sent": status.bytes_sent,
        "bytes_received": status.bytes_received,
        "open": [opened.number, opened.updates, opened.target_updates]
        if status.HasField("open_round")
        else None,
        "rho": None if solver is None else finite(solver.rho),
        "tolerance": None if solver is None else solver.tolerance,
    }


def round_row(closed: ClosedRound, time: float, started: float) -> Row:
    """A closed round that ended at the simulated `time`."""
    return {
        "number": closed.number,
        "version": closed.version,
        "clock": closed.closed - started,
        "seconds": closed.closed - closed.opened,
        "solve_seconds": closed.solve_seconds,
        "updates": len(closed.workers),
        "stale": closed.stale,
        "late": closed.late,
        "window": finite(closed.window),
        "time": finite(time),
        "rate": finite(closed.rate),
        "imbalance": imbalance(closed.rate, closed.details),
        "loss_before": finite(closed.loss_before),
        "loss_after": finite(closed.loss_after),
        **{name: finite(closed.details[name]) for name in DETAILS if name in closed.details},
    }


def windows_row(journal: Journal) -> Row | None:
    """The latest round's windows: worker, T_i, versions behind, RMS of its flow."""
    if not journal.windows or not journal.rounds:
        return None
    last = journal.rounds[-1]
    clients = [[w.worker, w.time, w.behind, finite(w.flow)] for w in journal.windows]
    reach = finite(last.details.get("reach"))
    return {"round": last.number, "T": last.window, "clients": clients, "reach": reach}


def measurement_row(measurement: Measurement) -> Row:
    """The metrics of a version."""
    return {
        "version": measurement.version,
        "metrics": {name: finite(value) for name, value in measurement.metrics.items()},
    }


def worker_state(run: Run, member: Member) -> WorkerState:
    """What a worker is up to."""
    known = run.engine.roster.clients.get(member.id)
    task = None if known is None or known.task is None else run.engine.tasks.get(known.task)
    if member.session is None:
        return "offline" if task is None else "away"
    if task is None:
        return "idle"
    return "overdue" if task.phase == "overdue" else "working"


def worker_row(run: Run, member: Member) -> Row:
    """One worker and how it fares."""
    known = run.engine.roster.clients.get(member.id)
    task = None if known is None or known.task is None else run.engine.tasks.get(known.task)
    behind = None if task is None else run.engine.version - task.version
    return {**member_row(member), "state": worker_state(run, member), "behind": behind}


def member_row(member: Member) -> Row:
    """What is known of a worker whether or not its run goes on."""
    progress, trouble = member.progress, member.trouble
    return {
        "id": member.id,
        "role": "trainer" if member.trains else "evaluator",
        "device": member.hello.device,
        "samples": member.hello.samples,
        "window": finite(member.last_window) or None,
        "flow": finite(member.last_flow),
        "rate": finite(member.last_rate),
        "epochs": finite(member.last_epochs),
        "behind": None,
        "seconds": finite(member.last_seconds) or None,
        "done": round(progress.steps_done / progress.steps_total, 2)
        if progress is not None and progress.steps_total
        else None,
        "accepted": member.accepted,
        "refused": member.refused,
        "failed": member.failed,
        "error": "" if trouble is None else f"{trouble.kind}: {trouble.message}"[:500],
        "error_at": None if trouble is None else trouble.at,
    }
