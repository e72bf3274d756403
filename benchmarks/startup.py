"""How long commands take to be there, against a Python that does nothing."""

import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness import Contender, race, report
from benchmarks.ours import worker
from benchmarks.servers import coordinator, environment

PATIENCE = 120.0


def run(quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(coordinator("--rounds", "1000000"))
        log, held = Path(folder, "worker-0.log"), stack.enter_context(ExitStack())

        def enrol() -> None:
            held.enter_context(worker(server.address, 0, 10_000, Path(folder)))
            _wait_for(log, "enrolled")

        contenders = [
            Contender("python -c pass", lambda: _python("-c", "pass")),
            Contender("fedecado --help", lambda: _python("-m", "fedecado.cli", "--help")),
            Contender("coordinator listens", lambda: held.enter_context(coordinator()), held.close),
            Contender("import torch", lambda: _python("-c", "import torch"), held.close),
            Contender("worker enrolled, torch included", enrol, held.close),
        ]
        race(contenders, repeats=3 if quick else 11)
    nothing, torch = contenders[0], contenders[3]
    for contender in contenders:
        contender.notes["more than nothing"] = f"{contender.median - nothing.median:.3f} s"
    contenders[-1].notes["more than torch"] = f"{contenders[-1].median - torch.median:.3f} s"
    report("startup", contenders, **_processor_seconds())


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment())


def _wait_for(log: Path, word: str) -> None:
    until = time.monotonic() + PATIENCE
    while word not in log.read_text():
        if time.monotonic() > until:
            raise SystemExit(f"no {word!r} within {PATIENCE:g} s in\n{log.read_text()}")
        time.sleep(0.002)


def _processor_seconds() -> dict[str, float]:
    """What the commands compute, which a busy machine stretches less than their time."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    _python("-c", "pass")
    nothing = spent()
    _python("-m", "fedecado.cli", "--help")
    helped = spent()
    with coordinator() as server:
        ready = server.cpu
    return {
        "CPU s of nothing": round(nothing - before, 3),
        "of --help": round(helped - nothing, 3),
        "of a coordinator until it listens": round(ready, 3),
    }
