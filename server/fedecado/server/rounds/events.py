"""What can happen to a run."""

from collections.abc import Mapping

from fedecado.common.records import record


@record
class Enrolled:
    """A client joined the run or came back; `tasks` are those it works on or holds results of.

    It is told `Accept` (a duplicate) or `Cancel` for each task it need not deliver, before any `Assign`.
    """

    client: str
    samples: int
    tasks: tuple[int, ...] = ()


@record
class Disconnected:
    """A client's connection ended; it stays enrolled and may come back with its result."""

    client: str


@record
class Left:
    """A client left the run for good."""

    client: str


@record
class Banned:
    """A client, enrolled or not, is shut out: it leaves for good and cannot enrol until `Unbanned`."""

    client: str
    reason: str = ""


@record
class Unbanned:
    """A client may enrol again, as one that is new."""

    client: str


@record
class UpdateArrived:
    """A client's complete and valid result for a task is here."""

    client: str
    task: int


@record
class TaskFailed:
    """A client gave a task up."""

    client: str
    task: int


@record
class LeaseExpired:
    """The time that a task was given is over, or the rest after a failed one."""

    task: int


@record
class DeadlinePassed:
    """The time that a round was given is over."""

    round: int


@record
class Aggregated:
    """The central update of the closed round is done; `rate` is its ‖dx_c/dt‖."""

    rate: float


@record
class Discarded:
    """The updates of the closed round could not be aggregated; the central state is unchanged."""


@record
class Measured:
    """Someone evaluated a version."""

    version: int
    metrics: Mapping[str, float]


@record
class Paused:
    """No new tasks until resumed."""


@record
class Resumed:
    """Go on after a pause."""


@record
class Stopped:
    """End the run now."""

    reason: str = "stopped on request"


Event = (
    Enrolled
    | Disconnected
    | Left
    | Banned
    | Unbanned
    | UpdateArrived
    | TaskFailed
    | LeaseExpired
    | DeadlinePassed
    | Aggregated
    | Discarded
    | Measured
    | Paused
    | Resumed
    | Stopped
)
