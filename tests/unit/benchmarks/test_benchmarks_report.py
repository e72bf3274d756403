"""The table of results in the documentation."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.summary import BEGIN, END, PAGE, write

MACHINE = {
    **{"when": "2026-01-02T03:04:05Z", "processor": "Abacus", "cores": 2, "load": [3.6, 1.0, 1.0]},
    **{"memory_bytes": 8 << 30, "python": "3.11.0", "numpy": "2.0"},
}


def contender(name: str, ratio: float, turns: int = 2) -> dict[str, Any]:
    return {
        **{"name": name, "median_seconds": 0.01 * ratio, "ratio": ratio, "seconds": [1.0] * turns},
        "ratio_quartiles": [ratio / 2, ratio * 2],
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    runs = {
        "central": [contender("w @ X", 1.0), contender("fedecado", 2.4)],
        "central_total": [contender("w @ X", 1.0), contender("fedecado, 8 steps", 12.0)],
        "flower_2_10000": [contender("fedecado", 1.0), contender("flwr 1.41", 580.0, turns=1)],
    }
    for name, contenders in runs.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"contenders": contenders, "machine": MACHINE}))
    memory = {"rounds": [0, 200], "resident_bytes": [1 << 20, 2 << 20], "slope": 3.4, "slope_error": 5.6}
    (tmp_path / "memory.json").write_text(json.dumps({**memory, "machine": MACHINE}))
    return tmp_path


def test_the_table_replaces_the_one_before_and_nothing_else(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\nstale\n{END}\nbelow\n")
    write(page, results)
    write(page, results)
    text = page.read_text()
    assert text.startswith(f"above\n{BEGIN}\n")
    assert text.endswith(f"{END}\nbelow\n")
    assert "stale" not in text
    assert text.count("Abacus") == 1
    assert "| `central` | w @ X | 10.0 ms | 1 |  |  | 4 |" in text
    assert "| `central` | fedecado | 24.0 ms | 2.40 | 1.20 to 4.80 | at most 2.5: holds | 4 |" in text
    assert (
        "| `central_total` | fedecado, 8 steps | 120.0 ms | 12 | 6.00 to 24 | at most 10: missed | 4 |"
        in text
    )
    assert "| `flower_2_10000` | flwr 1.41 | 5.80 s | 580 | one turn | at least 600: missed | 4 |" in text
    assert "2 MiB after 200 rounds" in text


def test_a_page_without_marks_is_left_alone(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n")
    with pytest.raises(SystemExit, match="no lines"):
        write(page, results)
    assert page.read_text() == "text\n"


def test_the_documentation_has_the_marks() -> None:
    text = PAGE.read_text()
    assert text.index(BEGIN) < text.index(END)
