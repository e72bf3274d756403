"""Real processes as those see them who watch: traces, logs and metrics of coordinator and worker."""

import json
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp
from processes import Processes

TASK = ("--task", "process_tasks:point")


def spans(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_a_task_is_one_trace_through_coordinator_and_worker(processes: Processes) -> None:
    watched = ("--trace-to", "file:spans.jsonl", "--log-format", "json")
    coordinator, address = await processes.coordinator("--rounds", "2", *watched)
    worker = await processes.worker(address, "w1", *TASK, *watched)
    assert await worker.exits() == 0 and await coordinator.exits() == 0
    traces = defaultdict(list)
    for span in spans(processes.folder / "spans.jsonl"):
        traces[span["context"]["trace_id"]].append(span)
    assert len(traces) == 2, "one per round"
    for found in traces.values():
        assert sorted(span["name"] for span in found) == [
            *("aggregate", "assign", "push", "round", "take", "train"),
        ]
        by_name = {span["name"]: span for span in found}
        processes_of = {n: s["resource"]["attributes"]["fedecado.process"] for n, s in by_name.items()}
        assert processes_of["train"] == processes_of["push"] == "worker"
        assert processes_of["assign"] == processes_of["take"] == processes_of["aggregate"] == "coordinator"
        assert by_name["train"]["parent_id"] == by_name["assign"]["context"]["span_id"]
        assert by_name["take"]["parent_id"] == by_name["push"]["context"]["span_id"]
    lines = [json.loads(text) for text in worker.lines if text.startswith("{")]
    finished = [line for line in lines if "finished" in line["message"] and "task" in line]
    assert [(line["run"], line["worker"], line["round"]) for line in finished] == [
        ("run", "w1", 1),
        ("run", "w1", 2),
    ]
    told = [json.loads(text) for text in coordinator.lines if text.startswith("{")]
    assert [line["round"] for line in told if line["message"].startswith("round ")] == [1, 2]
    assert all(line["run"] == "run" for line in told)


async def test_a_worker_serves_its_metrics_on_this_machine_whoever_else_is_there(
    processes: Processes,
) -> None:
    worker = await processes.worker("127.0.0.1:1", "w1", *TASK, "--worker-metrics", "0")
    url = (await worker.says("metrics on http://127.0.0.1:")).split()[-1]
    async with aiohttp.ClientSession() as web, web.get(url) as answer:
        scraped = (await answer.text()).splitlines()
    assert 'fedecado_worker_info{worker="w1"} 1.0' in scraped and "fedecado_worker_connected 0.0" in scraped
    await worker.says("not connected")
    worker.send_signal(signal.SIGTERM)
    assert await worker.exits() == 0
