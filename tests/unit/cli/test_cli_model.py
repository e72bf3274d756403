"""Models come down whole or not at all, and inspecting one tells whether it is sound."""

import json
import re
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from safetensors.numpy import save_file

from fedecado.cli.main import main
from fedecado.common.layout import Entry, Layout
from fedecado.common.model_file import load_model, save_model
from fedecado.common.wire import CHUNK_BYTES, encode
from fedecado.v1 import admin_pb2 as pb

LAYOUT = Layout((Entry("fc.weight", (700, 600)), Entry("fc.bias", (700,)), Entry("mean", (3,), "buffer")))
STATE = np.random.default_rng(0).standard_normal(LAYOUT.size).astype(np.float32)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDECADO_WORKER__COORDINATOR", raising=False)


@pytest.fixture
def serving(coordinator: Any) -> Any:
    """A coordinator with a model of two chunks."""
    header = pb.ModelHeader(
        run_id="r-1",
        run_name="demo",
        model_version=12,
        layout_json=LAYOUT.to_json(),
        layout_digest=LAYOUT.digest,
        state_bytes=LAYOUT.nbytes,
        evaluation=pb.ModelMetrics(model_version=12, metrics={"loss": 0.5, "accuracy": 0.9}),
    )
    pieces = [pb.GetModelResponse.FromString(frame) for frame in encode(STATE)]
    coordinator.model = [pb.GetModelResponse(header=header), *pieces]
    assert LAYOUT.nbytes > CHUNK_BYTES
    return coordinator


def download(coordinator: Any, *argv: str) -> int:
    return main(["model", "download", *argv, "--coordinator", coordinator.target])


def test_a_download_is_a_model_file_with_its_origin(serving: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert download(serving, "-o", "m.safetensors") == 0
    assert capsys.readouterr().out == (
        "wrote m.safetensors: version 12 of demo, 1.7 MB, accuracy 0.9  loss 0.5\n"
    )
    layout, state, metadata = load_model(Path("m.safetensors"))
    assert layout == LAYOUT
    assert state.tobytes() == STATE.tobytes()
    assert metadata == {
        "run_id": "r-1",
        "run_name": "demo",
        "version": "12",
        "metrics": '{"accuracy": 0.9, "loss": 0.5}',
    }


@pytest.mark.parametrize(
    ("argv", "request_"),
    [
        ([], pb.GetModelRequest(choice=pb.GetModelRequest.CHOICE_LAST)),
        (["--best"], pb.GetModelRequest(choice=pb.GetModelRequest.CHOICE_BEST)),
        (["--version", "0"], pb.GetModelRequest(version=0)),
    ],
)
def test_the_version_that_was_asked_for_is_requested(
    argv: list[str], request_: pb.GetModelRequest, serving: Any
) -> None:
    assert download(serving, *argv, "-o", "m") == 0
    assert serving.calls == [request_]


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["-o", "."],
        ["-o", "none/m"],
        ["-o", "m", "--best", "--version", "3"],
        ["-o", "m", "--version", "-1"],
        ["-o", "m", "--bset"],
    ],
)
def test_misuse_is_noticed_before_anything_is_fetched(argv: list[str], serving: Any) -> None:
    assert download(serving, *argv) == 2
    assert serving.calls == []


def test_a_version_that_is_gone_is_the_coordinators_word(
    serving: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    serving.refusal = (grpc.StatusCode.NOT_FOUND, "version 3 is no longer kept; there are 10 to 12")
    assert download(serving, "--version", "3", "-o", "m") == 1
    assert "there are 10 to 12" in capsys.readouterr().err


def damaged(pieces: list[pb.GetModelResponse], how: str) -> list[pb.GetModelResponse]:
    header, first, *rest = pieces
    match how:
        case "cut":
            return pieces[:2]
        case "no header":
            return [first, *rest]
        case "empty":
            return []
        case "digest":
            header.header.layout_digest = "0" * 64
        case "length":
            header.header.state_bytes += 4
        case "flipped":
            first.chunk.data = bytes([first.chunk.data[0] ^ 1]) + first.chunk.data[1:]
    return [header, first, *rest]


@pytest.mark.parametrize("how", ["cut", "no header", "empty", "digest", "length", "flipped"])
def test_a_damaged_download_leaves_the_old_file(
    how: str, serving: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Path("m.safetensors")
    save_model(old, Layout.flat(2), np.ones(2, np.float32), {})
    before = old.read_bytes()
    serving.model = damaged(serving.model, how)
    assert download(serving, "-o", str(old)) == 1
    assert capsys.readouterr().err.startswith("fedecado: error: ")
    assert old.read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["m.safetensors"]


def test_inspect_shows_tensors_norms_and_metadata(capsys: pytest.CaptureFixture[str]) -> None:
    layout = Layout((Entry("w", (1, 2)), Entry("b", ()), Entry("mean", (0,), "buffer")))
    save_model(Path("m"), layout, np.array([3, -4, 7], np.float32), {"version": "12", "run_name": "de\x1bmo"})
    assert main(["model", "inspect", "m"]) == 0
    shown = capsys.readouterr().out
    for words in (
        r"run_name +de mo\nversion +12\n",
        rf"layout +{layout.digest}",
        r"w +parameter +1 x 2 +2 +5 +-4 +3\n",
        r"b +parameter +scalar +1 +7 +7 +7\n",
        r"mean +buffer +0 +0 +0 +- +-\n",
        r"3 parameters and 0 numbers in buffers, float32, 12 B\nall numbers are finite\n",
    ):
        assert re.search(words, shown), words


def test_inspect_fails_for_a_model_with_nan(capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"good": np.ones(2, np.float32), "bad": np.array([1, np.nan, -np.inf])}, "m")
    assert main(["model", "inspect", "m"]) == 1
    assert "2 numbers are NaN or infinite, in bad; do not use this model" in capsys.readouterr().out
    assert main(["model", "inspect", "m", "--json"]) == 1
    content = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    by_name = {tensor["name"]: tensor for tensor in content["tensors"]}
    assert content["sound"] is False
    assert (by_name["bad"]["non_finite"], by_name["bad"]["norm"]) == (2, None)
    assert by_name["good"]["norm"] == pytest.approx(2**0.5)


def test_inspect_refuses_what_is_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m").write_text("hello")
    assert main(["model", "inspect", "m"]) == 1
    assert "complete safetensors file" in capsys.readouterr().err


def test_model_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: fedecado model [options] download | inspect\n")
    assert "load_into" in shown
    assert main(["model", "download", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: fedecado model download [options]\n")
    assert main(["model", "dwnload"]) == 2
