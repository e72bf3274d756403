"""A run's folder can be listed, exported and begun from elsewhere, also from the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_runs import CLIENTS, begun, checkpoint, fingerprint, play, recipe, uninterrupted

from fedecado.cli.main import main
from fedecado.common.errors import ConfigError, StoreError
from fedecado.common.model_file import load_model
from fedecado.server.algorithms import AlgorithmName, Robust
from fedecado.server.federation import Result
from fedecado.server.rounds import Enrolled, Unbanned, UpdateArrived
from fedecado.server.store import Recovered, Retention, create_from, export, gc, listing, recover


def stopped(
    folder: Path, algorithm: AlgorithmName = "fedecado", robust: Robust | None = None, **options: Any
) -> Recovered:
    """A run of 80 events, its folder closed; its journal goes beyond its checkpoint."""
    made = recipe(algorithm, robust=robust)
    run = begun(folder, made, run_id="r-1", **options)
    for number in play(run, uninterrupted(made, 3, 80, bans=True).steps):
        if number % 20 > 15 and not run.engine.closing:
            checkpoint(run, members={"ann": 1})
    run.store.note({"the": "last row"})
    run.store.commit()
    return run


@pytest.mark.parametrize(
    ("algorithm", "robust"),
    [("fedecado", None), ("fedecado", Robust(response_bound=4.0)), ("scaffold", None), ("fedadam", None)],
)
@pytest.mark.parametrize("inline", [0, 1 << 16])
def test_a_new_run_begins_where_a_snapshot_stood(
    tmp_path: Path, algorithm: AlgorithmName, robust: Robust | None, inline: int
) -> None:
    run = stopped(tmp_path / "old", algorithm, robust, inline_bytes=inline)
    expected = fingerprint(run.federation)
    run.store.close()
    told = export(tmp_path / "old", tmp_path / "snapshot")
    assert told.clients == sum(expected["clients"].get(client) is not None for client in CLIENTS)
    assert listing(tmp_path / "old").clients <= len(CLIENTS)
    new = create_from(tmp_path / "snapshot", tmp_path / "new", run_id="r-2")
    found = fingerprint(new.federation)
    assert (told.run_id, told.version) == ("r-1", new.federation.version)
    for part in ("scalars", "algorithm", "clients"):
        assert found[part] == expected[part]
    assert found["versions"] == {told.version: expected["versions"][told.version]}
    assert (new.engine.enrolled, new.engine.round, new.engine.tasks) == (run.engine.enrolled, 0, {})
    assert new.members == {"ann": 1}
    assert new.engine.banned == run.engine.banned
    new.driver.handle(Unbanned(CLIENTS[0]))
    new.driver.handle(Enrolled(CLIENTS[0], 3))
    (task,) = new.engine.tasks
    new.driver.handle(UpdateArrived(CLIENTS[0], task), Result(new.federation.central + 1, 0.1))
    new.store.close()
    with recover(tmp_path / "new").store as store:
        assert store.run_id == "r-2"


def test_an_export_changes_nothing_and_overwrites_nothing(tmp_path: Path) -> None:
    stopped(tmp_path / "run", inline_bytes=0).store.close()
    before = sorted(path.name for path in (tmp_path / "run" / "vectors").iterdir())
    export(tmp_path / "run", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "run" / "vectors").iterdir()) == before
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "model.safetensors",
        "run.json",
        "state.safetensors",
    ]
    with pytest.raises(StoreError, match="exists; choose another name"):
        export(tmp_path / "run", tmp_path / "out")
    with pytest.raises(ConfigError, match="begun with fedecado"):
        create_from(tmp_path / "out", tmp_path / "new", lambda _: recipe("fedavg"))


def test_versions_are_kept_for_people_within_bounds(tmp_path: Path) -> None:
    run = stopped(tmp_path, retention=Retention(last=2, every=4, most=1), inline_bytes=0)
    kept = [model.version for model in listing(tmp_path).models]
    assert 2 <= len(kept) <= 3
    assert kept == sorted(kept)
    found = listing(tmp_path)
    assert run.store.nbytes == found.vector_bytes + found.database_bytes
    assert found.vector_bytes == sum(p.stat().st_size for p in (tmp_path / "vectors").iterdir())
    run.store.close()


def test_the_command_line_looks_after_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stopped(tmp_path / "run")
    run.store.close()
    folder = str(tmp_path / "run")
    assert main(["store", "ls", folder]) == 0
    assert capsys.readouterr().out.startswith("run         r-1, fedecado, 7 parameters\n")
    assert main(["store", "ls", folder, "--json"]) == 0
    version = json.loads(capsys.readouterr().out)["version"]
    assert main(["store", "check", folder]) == 0
    assert capsys.readouterr().out == f"{folder} is sound\n"
    assert main(["store", "gc", folder]) == 0
    assert capsys.readouterr().out.startswith("freed ")
    model = tmp_path / "m.safetensors"
    assert main(["store", "export", folder, "--version", str(version), "-o", str(model)]) == 0
    layout, state, about = load_model(model)
    assert (layout, about) == (run.federation.layout, {"run_id": "r-1", "version": str(version)})
    assert np.isfinite(state).all()
    assert main(["store", "export", folder, "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"wrote {tmp_path}/out: version ")


def test_the_command_line_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(tmp_path, inline_bytes=0).store.close()
    gc(tmp_path)  # leaves files that the checkpoint refers to
    victim = next((tmp_path / "vectors").glob("client-*"))
    victim.write_bytes(bytes(victim.stat().st_size))
    assert main(["store", "check", str(tmp_path)]) == 1
    assert victim.name in capsys.readouterr().out
    assert main(["store", "ls", str(tmp_path / "nowhere")]) == 1
    assert "there is no run in" in capsys.readouterr().err
    assert main(["store", "export", str(tmp_path), "--version", "999", "-o", "x"]) == 1
    assert "version 999 is not kept" in capsys.readouterr().err
    assert main(["store"]) == 0
    assert "check | ls | gc | export" in capsys.readouterr().out
