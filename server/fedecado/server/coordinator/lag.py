"""How late the event loop runs what is due: the price of anything that blocks it."""

import asyncio
import logging
import time

log = logging.getLogger(__name__)

PERIOD = 0.1
WORTH_A_WARNING = 0.5


class LagMeter:
    """Measures the loop's lag all the time; `worst` is since the last reset."""

    def __init__(self) -> None:
        self.last = 0.0
        self.worst = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.perf_counter() + PERIOD
            await asyncio.sleep(PERIOD)
            self.last = max(0.0, time.perf_counter() - due)
            self.worst = max(self.worst, self.last)
            if self.last > WORTH_A_WARNING:
                log.warning("the event loop was held up for %.2f s", self.last)
