"""Rounds with worker processes, without training and with large models: against NVFlare's POC mode."""

from benchmarks.rivals.nvflare_poc import nvflare_rounds
from benchmarks.rivals.turns import against


def run(quick: bool) -> None:
    against("nvflare", "nvflare", nvflare_rounds, quick)
