"""Error feedback: what rounding took from a client's updates goes out with its next one.

Only updates that counted leave something behind. One that is refused, cancelled or lost took nothing with it,
neither its own displacement nor what was owed before. One that is sent again is the same bytes, settled once.
"""

from typing import final

from fedecado.common.formats import Packed, encode
from fedecado.common.layout import Layout, Vector
from fedecado.common.names import Compact


@final
class Feedback:
    """One client's account; a task is packed once and then settled.

    Without `keep` nothing is carried over, for measuring what that is worth.
    """

    def __init__(self, format: Compact, *, keep: bool = True) -> None:
        self.format, self._keep = format, keep
        self.owed: Vector | None = None
        """What the updates that counted lack, in sum."""
        self._pending: tuple[int, Vector] | None = None

    def pack(self, task: int, layout: Layout, start: Vector, end: Vector) -> Packed:
        """A task's update, to be settled before the next one is packed; else it does not count."""
        packed = encode(self.format, layout, start, end, self.owed)
        self.expect(task, packed.missing)
        return packed

    def expect(self, task: int, missing: Vector) -> None:
        """A task is under way that was packed earlier, and lacks so much."""
        self._pending = task, missing

    def settle(self, task: int, *, counted: bool) -> None:
        """A task's update is with the coordinator for good, or never will be. Idempotent."""
        if self._pending is not None and self._pending[0] == task:
            if counted and self._keep:
                self.owed = self._pending[1]
            self._pending = None
