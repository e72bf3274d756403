"""What the driver of the engine is asked to do."""

from fedecado.common.records import record


@record
class Assign:
    """Send `client` the version and have it train."""

    task: int
    client: str
    version: int
    round: int


@record
class Accept:
    """Tell the client its update counts; a duplicate counted before, and there is nothing to keep."""

    task: int
    client: str
    duplicate: bool = False


@record
class Refuse:
    """Tell the client its update does not count, and why."""

    task: int
    client: str
    reason: str


@record
class Cancel:
    """Tell the client to give a task up."""

    task: int
    client: str
    reason: str


@record
class StartTimer:
    """Report `DeadlinePassed(round)` or, with a task, `LeaseExpired(task)` after some seconds.

    For the rest after a failed task, `task` is a number of its own.
    """

    seconds: float
    round: int
    task: int | None = None


@record
class CloseRound:
    """Aggregate the updates of these tasks, in this order, then report `Aggregated`."""

    round: int
    tasks: tuple[int, ...]


@record
class DropVersion:
    """No task needs this version any more."""

    version: int


@record
class Finish:
    """The run is over."""

    reason: str


Effect = Assign | Accept | Refuse | Cancel | StartTimer | CloseRound | DropVersion | Finish
