"""The run's records as messages for operators."""

import math

from google.protobuf.timestamp_pb2 import Timestamp

from fedecado.server.coordinator.about import About
from fedecado.server.coordinator.journal import ClosedRound, Measurement
from fedecado.server.coordinator.members import Member
from fedecado.server.coordinator.run import Run
from fedecado.v1 import admin_pb2 as pb
from fedecado.v1 import session_pb2


def status_of(run: Run, about: About) -> pb.RunStatus:
    """A run at a glance."""
    journal, engine = run.journal, run.engine
    status = pb.RunStatus(
        run_id=run.files.run_id,
        run_name=about.name,
        phase=_phase(run),
        algorithm=about.algorithm,
        mode=engine.rules.mode,
        started=_stamp(journal.started),
        software_version=about.software,
        layout_digest="" if run.layout is None else run.layout.digest,
        parameters=0 if run.layout is None else run.layout.parameters,
        model_version=engine.version,
        rounds_closed=engine.version - journal.first_version,
        rounds_total=engine.rules.max_rounds or 0,
        simulated_time=0.0 if run.federation is None else run.federation.simulated_time,
        clients=_counts(run),
        waiting_for=run.waiting_for(),
        updates_accepted=journal.accepted,
        updates_refused=journal.refused,
        bytes_sent=journal.bytes_sent,
        bytes_received=journal.bytes_received,
        store_bytes=run.durable.nbytes,
    )
    if engine.open:
        status.open_round.CopyFrom(_open_round(run))
    if journal.latest is not None:
        status.latest.CopyFrom(metrics_of(journal.latest))
    if journal.best is not None:
        status.best.CopyFrom(metrics_of(journal.best))
    return status


def client_of(run: Run, member: Member, *, tracebacks: bool) -> pb.Client:
    """One worker and how it fares."""
    roster, hello = run.engine.roster, member.hello
    known = roster.clients.get(member.id)
    busy = known is not None and known.task is not None
    state = pb.Client.STATE_OFFLINE
    if member.session is not None:
        state = pb.Client.STATE_WORKING if busy else pb.Client.STATE_IDLE
        state = pb.Client.STATE_SENDING if member.session.receiving else state
    client = pb.Client(
        worker_id=member.id,
        worker_index=member.index,
        role=member.role,
        state=state,
        address=member.address,
        enrolled=_stamp(member.enrolled),
        last_seen=_stamp(member.seen),
        software_version=hello.software_version,
        device=hello.device,
        description=hello.description,
        samples=hello.samples,
        weight=roster.weight(member.id) if known is not None else 0.0,
        curvature=member.curvature,
        updates_accepted=member.accepted,
        updates_refused=member.refused,
        tasks_failed=member.failed,
        last_round=member.last_round,
        last_window=member.last_window,
        last_training_seconds=member.last_seconds,
        banned=member.id in run.engine.banned,
    )
    if known is not None and known.task is not None:
        client.task.CopyFrom(_task(run, member, known.task))
    if member.trouble is not None:
        client.last_error.CopyFrom(_error(member, tracebacks))
    return client


def round_of(run: Run, closed: ClosedRound) -> pb.Round:
    """A closed round."""
    message = pb.Round(
        number=closed.number,
        model_version=closed.version,
        opened=_stamp(closed.opened),
        closed=_stamp(closed.closed),
        closed_by=pb.Round.CLOSED_BY_DEADLINE if closed.late else pb.Round.CLOSED_BY_TARGET,
        worker_ids=closed.workers,
        late_updates=closed.stale,
        window=closed.window,
        steps_accepted=int(closed.details.get("steps", 0)),
        steps_rejected=int(closed.details.get("rejected_steps", 0)),
        rate=closed.rate,
        solve_seconds=closed.solve_seconds,
    )
    if not math.isnan(closed.loss_after):
        message.loss_before, message.loss_after = closed.loss_before, closed.loss_after
    measured = run.journal.measurement(closed.version)
    if measured is not None:
        message.evaluation.CopyFrom(metrics_of(measured))
    return message


def metrics_of(measurement: Measurement) -> pb.ModelMetrics:
    """The measurement of a version."""
    return pb.ModelMetrics(model_version=measurement.version, metrics=measurement.metrics)


def _phase(run: Run) -> "pb.Phase.ValueType":
    if run.finished.is_set():
        return pb.PHASE_FINISHED
    if run.engine.finished or run.stop_reason is not None:
        return pb.PHASE_STOPPING
    if run.federation is None:
        return pb.PHASE_WAITING
    return pb.PHASE_PAUSED if run.engine.paused else pb.PHASE_RUNNING


def _counts(run: Run) -> pb.ClientCounts:
    roster = run.engine.roster
    return pb.ClientCounts(
        enrolled=len(roster),
        connected=roster.connected,
        training=sum(c.connected and c.task is not None for c in roster.clients.values()),
        evaluators=len(run.members.connected(trains=False)),
    )


def _open_round(run: Run) -> pb.OpenRound:
    engine, opened = run.engine, run.journal.round_opened
    asked = len(engine.running()) + len(engine.ready)
    message = pb.OpenRound(
        number=engine.round,
        opened=_stamp(opened),
        updates=len(engine.ready),
        target_updates=engine.rules.updates_to_close(engine.enrolled) or asked,
        min_updates=engine.rules.min_updates,
    )
    if engine.rules.deadline is not None:
        message.deadline.CopyFrom(_stamp(opened + engine.rules.deadline))
    return message


def _task(run: Run, member: Member, number: int) -> pb.ClientTask:
    task = pb.ClientTask(
        task_id=number,
        model_version=run.engine.tasks[number].version,
        assigned=_stamp(member.task_since),
    )
    progress: session_pb2.Progress | None = member.progress
    if progress is not None and progress.task_id == number:
        task.steps_done, task.steps_total = progress.steps_done, progress.steps_total
        if progress.HasField("loss"):
            task.loss = progress.loss
    return task


def _error(member: Member, tracebacks: bool) -> pb.ClientError:
    trouble = member.trouble
    assert trouble is not None  # noqa: S101 - the caller looked
    return pb.ClientError(
        time=_stamp(trouble.at),
        task_id=trouble.task,
        type=trouble.kind,
        message=trouble.message,
        traceback=trouble.traceback if tracebacks else "",
    )


def _stamp(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(int(seconds * 1e9))
    return stamp
