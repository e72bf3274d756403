"""What a worker may have beside its task."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedecado.client.observer import Observer
from fedecado.client.spool import Spool
from fedecado.common.names import Format

if TYPE_CHECKING:
    from fedecado.client.credential import Credential


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Each is optional; a worker with none of them trains just as well."""

    observer: Observer | None = None
    """Who watches: metrics, traces."""
    spool: Spool | None = None
    """Where a finished update waits on disk for its acknowledgement."""
    credential: "Credential | None" = None
    """The certificate it was given for a token, the worker's own to renew."""
    health_bind: str | None = None
    """Where probes are answered in plain text."""
    upload: Format = "full"
    """How updates are to travel, if the coordinator takes that."""
    makes_drifts: bool = True
    """Whether to keep what drifts can be made of, so that they need not be sent."""
