"""A whole federation on one machine: it ends by itself, on request, and never leaves processes behind."""

import json
import re
import signal
from pathlib import Path

import pytest
from processes import Command, Processes

from fedecado.common.model_file import load_model

POINT = ("--task", "process_tasks:point", "--training-probes", "1")


def family(folder: Path) -> set[int]:
    """Processes that work in `folder`, whoever their parent is."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve(strict=True) == folder.resolve() and (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue  # ended meanwhile
    return found


async def rounds_are_running(up: Command) -> None:
    await up.says(r"round [3-9]|[3-9]/|[3-9] of")


async def test_a_federation_comes_up_and_ends_with_models_logs_and_results(processes: Processes) -> None:
    health = ("--network-health-bind", "127.0.0.1:0")
    up = await processes.start("up", "up", "--clients", "2", "--rounds", "2", *health, *POINT)
    assert await up.exits() == 0, up.text
    folder = processes.folder / "runs" / "up"
    results = json.loads((folder / "results.json").read_text())
    assert len(results["history"]) == 2
    assert results["distance"] < 1
    assert load_model(folder / "last.safetensors")[2]["version"] == "2"
    logs = {
        name: (folder / f"{name}.log").read_text()
        for name in ("coordinator", "worker-0", "worker-1", "evaluator")
    }
    assert all(logs.values())
    # All get the same settings, and a port has room for one.
    assert [name for name, text in logs.items() if "health checks" in text] == ["coordinator"]
    assert family(processes.folder) == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_federation_that_is_interrupted_ends_at_once_and_keeps_its_model(
    processes: Processes, number: signal.Signals
) -> None:
    up = await processes.start("up", "up", "--clients", "2", "--rounds", "100000", *POINT)
    await rounds_are_running(up)
    assert len(family(processes.folder)) == 5
    up.send_signal(number)
    assert await up.exits(20) == 130, up.text
    await up.says("what was done is kept")
    assert family(processes.folder) == set()
    assert int(load_model(processes.folder / "runs" / "up" / "last.safetensors")[2]["version"]) >= 1


async def test_a_worker_that_cannot_start_ends_the_federation_with_its_log(processes: Processes) -> None:
    up = await processes.start(
        "up", "up", "--clients", "2", "--task", "process_tasks:only_first", "--no-up-evaluator"
    )
    assert await up.exits() == 1, up.text
    assert await up.says("no data on this machine")
    assert family(processes.folder) == set()


async def test_the_readmes_own_model_trains_as_it_stands(processes: Processes) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "Task(" in block]
    if not blocks:
        pytest.skip("the README has no example of a Task yet")
    (processes.folder / "readme_task.py").write_text(blocks[0], encoding="utf-8")
    factories = re.findall(r"^def (\w+)\([^)]*\)\s*->\s*Task:", blocks[0], re.MULTILINE) or re.findall(
        r"^def (\w+)\(", blocks[0], re.MULTILINE
    )
    task = f"readme_task:{factories[-1]}"
    up = await processes.start("up", "up", "--clients", "2", "--rounds", "2", "--task", task)
    assert await up.exits() == 0, up.text
    assert (processes.folder / "runs" / "up" / "last.safetensors").exists()
