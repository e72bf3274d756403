"""A run that is over, read from its folder: the same snapshot that a live run gives.

A coordinator's store knows most. Where there is none (simulations), there are results, which hold all rounds
but of each client only the last one.
"""

import json
from pathlib import Path
from typing import Any

from fedecado.common.errors import DataError
from fedecado.server.observe.plain import DETAILS, Row, finite, imbalance
from fedecado.server.observe.stored import read_store
from fedecado.server.store import has_run

RESULTS = "results.json"


def read_run(run: Path) -> Row:
    """The snapshot of a run's folder, or of a results file; DataError or StoreError if there is none."""
    return read_store(run) if run.is_dir() and has_run(run) else read_results(run)


def read_results(run: Path) -> Row:
    """The snapshot of results, named or in a folder."""
    path = run / RESULTS if run.is_dir() else run
    if not path.is_file():
        inside = sorted(str(found.parent) for found in run.glob(f"*/{RESULTS}"))
        hint = f"; there are results in {', '.join(inside)}" if inside else ""
        raise DataError(f"no {RESULTS} in {run}{hint}; a run writes it when it ends")
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        return _snapshot(whole, path)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path} does not hold the results of a run: {error!r}") from error


def _snapshot(whole: dict[str, Any], path: Path) -> Row:
    settings, history = whole.get("settings") or {}, whole["history"]
    last = history[-1] if history else {}
    circuit = settings.get("run", {}).get("algorithm") == "fedecado"
    solver = settings.get("solver", {}) if circuit else {}
    return {
        "source": "results",
        "now": path.stat().st_mtime,
        "run": {
            "id": str(path),
            "name": settings.get("run", {}).get("name", path.parent.name),
            "algorithm": settings.get("run", {}).get("algorithm", ""),
            "mode": settings.get("rounds", {}).get("mode", ""),
            "software": "",
            "phase": "finished",
            "waiting_for": str(whole["ended"]),
            "started": path.stat().st_mtime - float(whole["seconds"]),
            "parameters": None,
            "version": len(history),
            "rounds_total": settings.get("rounds", {}).get("max_rounds"),
            "simulated_time": _number(last.get("time")),
            "enrolled": settings.get("fleet", {}).get("clients"),
            "accepted": sum(record["updates"] for record in history),
            "open": None,
            "rho": _number(solver.get("rho")),
            "tolerance": _number(solver.get("tolerance")),
        },
        "rounds": _rounds(history),
        "measurements": [
            {"version": number, "metrics": {name: _number(v) for name, v in record["metrics"].items()}}
            for number, record in enumerate(history, 1)
            if record["metrics"]
        ],
        "windows": _windows(whole),
        "workers": [_worker(client) for client in whole.get("clients", ())],
    }


def _windows(whole: dict[str, Any]) -> Row | None:
    """Those of the clients that had a part in the last round."""
    history = whole["history"]
    number = history[-1]["round"] if history else None
    last = [client for client in whole.get("clients", ()) if client["round"] == number]
    clients = [[c["id"], c["window"], c["behind"], c["flow"]] for c in last if c["window"] is not None]
    longest = max((window for _, window, *_ in clients), default=None)
    return None if longest is None else {"round": number, "T": longest, "clients": clients}


def _worker(client: dict[str, Any]) -> Row:
    names = ("id", "samples", "device", "window", "flow", "rate", "epochs", "error")
    same = {name: client[name] for name in names}
    unknown = dict.fromkeys(("behind", "done", "seconds", "error_at"))
    counts = {"accepted": client["updates"], "refused": 0, "failed": 0}
    return {**same, **unknown, **counts, "role": "trainer", "state": "offline"}


def _rounds(history: list[dict[str, Any]]) -> list[Row]:
    rows, clock, time = [], 0.0, 0.0
    for version, record in enumerate(history, 1):
        details, rate = record["details"], _number(record["rate"])
        rows.append(
            {
                "number": record["round"],
                "version": version,
                "clock": record["clock"],
                "seconds": record["clock"] - clock,
                "solve_seconds": _number(details.get("solve_seconds")),
                "updates": record["updates"],
                "stale": None,
                "late": False,
                "window": record["time"] - time,
                "time": record["time"],
                "rate": rate,
                "imbalance": None if rate is None else imbalance(rate, details),
                "loss_before": _number(record["loss_before"]),
                "loss_after": _number(record["loss_after"]),
                **{name: _number(details[name]) for name in DETAILS if name in details},
            }
        )
        clock, time = record["clock"], record["time"]
    return rows


def _number(value: Any) -> float | None:
    """A finite number; results write infinity as a word."""
    return finite(value) if isinstance(value, int | float) else None
