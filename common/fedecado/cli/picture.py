"""A run as people read it: rich on a terminal, the same words as plain text elsewhere."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedecado.cli.curves import bar
from fedecado.cli.plain import clean, clean_lines, nbytes, scores, seconds_since, span, word
from fedecado.v1 import admin_pb2 as pb
from fedecado.v1.session_pb2 import Role

_PHASE_STYLES = {
    pb.PHASE_RUNNING: "bold green",
    pb.PHASE_PAUSED: "bold yellow",
    pb.PHASE_STOPPING: "bold yellow",
    pb.PHASE_FINISHED: "bold blue",
}
_STATE_STYLES = {
    pb.Client.STATE_OFFLINE: "dim",
    pb.Client.STATE_WORKING: "green",
    pb.Client.STATE_SENDING: "cyan",
}
BAR = 8
"""Characters of the longest window's bar."""
# Wide enough for any line: a pipe has no edge to wrap at.
_PLAIN_WIDTH = 10_000


def show(content: RenderableType) -> None:
    """Print to standard output."""
    if sys.stdout.isatty():
        Console().print(content)
        return
    console = Console(width=_PLAIN_WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(content)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def run_picture(
    status: pb.RunStatus, clients: Sequence[pb.Client], target: str, curves: RenderableType | None = None
) -> Group:
    """Everything about a run that fits a screen."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in _facts(status, target):
        facts.add_row(name, text)
    parts: list[RenderableType] = [facts]
    if curves is not None:
        parts += [Text(), curves]
    if clients:
        parts += [Text(), client_table(clients, status.model_version)]
    hidden = status.clients.enrolled - len(clients)
    if clients and hidden > 0:
        parts.append(Text(f"and {hidden} more; --all shows them", style="dim"))
    return Group(*parts)


def summary(status: pb.RunStatus) -> str:
    """The run on one line, for logs."""
    parts = [word(pb.Phase.DESCRIPTOR, status.phase), _rounds(status)]
    if status.HasField("latest"):
        parts.append(scores(status.latest.metrics))
    parts.append(f"{status.clients.connected} of {status.clients.enrolled} clients connected")
    if status.waiting_for:
        parts.append(clean(status.waiting_for))
    return "; ".join(filter(None, parts))


def client_table(clients: Sequence[pb.Client], version: int = 0) -> Table:
    """A row per worker; `version` is the newest, which tasks may be behind."""
    longest = max((client.last_window for client in clients), default=0.0)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("worker", "state", "device"):
        table.add_column(name, overflow="fold")
    for name in ("samples", "T_i"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, style="green", width=BAR)
    for name in ("behind", "round", "updates"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("last error", overflow="fold", style="red")
    for client in clients:
        table.add_row(
            Text(clean(client.worker_id)),
            Text(_state(client), style=_STATE_STYLES.get(client.state, "")),
            Text(clean(client.device)),
            f"{client.samples:,}",
            f"{client.last_window:.4g}" if client.updates_accepted else "-",
            bar(client.last_window, longest, BAR),
            str(version - client.task.model_version) if client.HasField("task") else "-",
            str(client.last_round or "-"),
            f"{client.updates_accepted:,}",
            Text(_error(client)),
        )
    return table


def tracebacks(clients: Iterable[pb.Client]) -> Group:
    """What went wrong, in full, worker by worker."""
    parts: list[RenderableType] = []
    for client in clients:
        if client.HasField("last_error"):
            parts += [Text(), Text(f"{clean(client.worker_id)}: {_error(client)}", style="bold red")]
            parts.append(Text(clean_lines(client.last_error.traceback) or "(no traceback)"))
    return Group(*(parts or [Text("\nno worker reports an error")]))


def _facts(status: pb.RunStatus, target: str) -> Iterable[tuple[str, Text]]:
    phase = word(pb.Phase.DESCRIPTOR, status.phase)
    about = f", {clean(status.algorithm)} in {clean(status.mode)} mode" if status.algorithm else ""
    since = f", started {span(seconds_since(status.started))} ago" if status.HasField("started") else ""
    yield "run", Text(f"{clean(status.run_name)} ({clean(status.run_id)}){about}{since}")
    yield "phase", Text(phase, style=_PHASE_STYLES.get(status.phase, "bold"))
    yield "round", Text(_rounds(status))
    if status.waiting_for:
        yield "now", Text(clean(status.waiting_for), style="yellow")
    model = f"version {status.model_version}, {status.parameters:,} parameters"
    yield "model", Text(f"{model}, simulated time {status.simulated_time:.4g}")
    if status.HasField("latest"):
        yield "latest", Text(_evaluation(status.latest))
    if status.HasField("best"):
        yield "best", Text(_evaluation(status.best))
    yield "clients", Text(_counts(status.clients))
    yield "updates", Text(f"{status.updates_accepted:,} accepted, {status.updates_refused:,} refused")
    yield "traffic", Text(f"{nbytes(status.bytes_sent)} sent, {nbytes(status.bytes_received)} received")
    if status.store_bytes:
        yield "store", Text(f"{nbytes(status.store_bytes)} on disk")
    yield "coordinator", Text(f"{target}, fedecado {clean(status.software_version) or 'of unknown version'}")


def _rounds(status: pb.RunStatus) -> str:
    text = f"{status.rounds_closed}{f' of {status.rounds_total}' if status.rounds_total else ''} closed"
    if status.HasField("open_round"):
        now = status.open_round
        text += f", round {now.number} has {now.updates} of {now.target_updates} updates"
        if now.HasField("deadline"):
            left = -seconds_since(now.deadline)
            text += f", deadline in {span(left)}" if left >= 0 else f", deadline {span(-left)} ago"
    return text


def _evaluation(measured: pb.ModelMetrics) -> str:
    return f"{scores(measured.metrics)}  (version {measured.model_version})"


def _counts(counts: pb.ClientCounts) -> str:
    text = f"{counts.enrolled} enrolled, {counts.connected} connected, {counts.training} training"
    evaluators = "evaluator" if counts.evaluators == 1 else "evaluators"
    return f"{text}, {counts.evaluators} {evaluators}" if counts.evaluators else text


def _state(client: pb.Client) -> str:
    text = "banned" if client.banned else word(pb.Client.State.DESCRIPTOR, client.state)
    if client.HasField("task") and client.task.steps_total:
        text += f" {100 * client.task.steps_done // client.task.steps_total}%"
    return f"{text} (evaluator)" if client.role == Role.ROLE_EVALUATOR else text


def _error(client: pb.Client) -> str:
    if not client.HasField("last_error"):
        return ""
    error = client.last_error
    when = f" ({span(seconds_since(error.time))} ago)" if error.HasField("time") else ""
    return clean(f"{error.type}: {error.message}{when}")
