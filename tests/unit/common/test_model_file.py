"""Model files: what is saved comes back, half a file never appears, and foreign files are judged."""

import json
import os
import pickle
import resource
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from fedecado.common import model_file
from fedecado.common.errors import DataError, LayoutError
from fedecado.common.layout import DType, Entry, Layout
from fedecado.common.model_file import LAYOUT_KEY, load_model, save_model

LAYOUT = Layout(
    (Entry("z.weight", (2, 3)), Entry("a.bias", ()), Entry("empty", (0, 4)), Entry("mean", (2,), "buffer"))
)
STATE = np.arange(9, dtype=np.float32)


@contextmanager
def small_disk(limit: int) -> Iterator[None]:
    """Files of this process end after `limit` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def raw(path: Path, header: dict[str, Any], data: bytes) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


# What str.isprintable refuses: separators other than the space, controls, and unassigned code points.
printable = st.characters(exclude_categories=["C", "Z"]) | st.just(" ")
entries = st.lists(
    st.tuples(
        st.text(printable, min_size=1, max_size=8),
        st.lists(st.integers(0, 3), max_size=3),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda entry: entry[0],
)


@settings(max_examples=40, deadline=None)
@given(entries, st.sampled_from(["float32", "float64"]), st.integers(0, 5), st.data())
def test_every_model_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory,
    named: list[tuple[str, list[int]]],
    dtype: DType,
    buffers: int,
    data: st.DataObject,
) -> None:
    first = Entry("first parameter", (1,))
    rest = [
        Entry(name, tuple(shape), "buffer" if k >= len(named) - buffers else "parameter")
        for k, (name, shape) in enumerate(named)
    ]
    layout = Layout((first, *rest), dtype)
    bits = data.draw(st.binary(min_size=layout.nbytes, max_size=layout.nbytes))
    state = np.frombuffer(bits, dtype)
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    save_model(path, layout, state, {"note": "ü\n"})
    found, values, metadata = load_model(path)
    assert (found, values.tobytes(), metadata) == (layout, bits, {"note": "ü\n"})


def test_others_read_the_tensors_under_their_own_names(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_model(path, LAYOUT, STATE, {"version": "7"})
    tensors = load_file(path)
    assert tensors.keys() == {"z.weight", "a.bias", "empty", "mean"}
    np.testing.assert_array_equal(tensors["z.weight"], [[0, 1, 2], [3, 4, 5]])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_saving_replaces_the_file_that_a_link_points_to(tmp_path: Path) -> None:
    real, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    save_model(real, LAYOUT, STATE, {})
    link.symlink_to(real)
    save_model(link, LAYOUT, STATE + 1, {})
    assert link.is_symlink()
    np.testing.assert_array_equal(load_model(real)[1], STATE + 1)


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_model(path, LAYOUT, STATE, {"version": "1"})
    big = Layout.flat(100_000)
    with (
        small_disk(50_000),
        pytest.raises(DataError, match=r"cannot write the model to .*free some space.*unchanged"),
    ):
        save_model(path, big, np.zeros(big.size, np.float32), {})
    assert load_model(path)[2] == {"version": "1"}
    assert os.listdir(tmp_path) == ["m.safetensors"]  # noqa: PTH208 - hidden files count, too


def test_what_cannot_be_renamed_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(DataError, match="taken"):
        save_model(tmp_path / "taken", LAYOUT, STATE, {})
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_large_tensors_are_read_by_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "_PIECE_BYTES", 100)
    layout = Layout((Entry("wide", (2, 999)), Entry("tall", (999, 2)), Entry("flat", (1001,))))
    state = np.arange(layout.size, dtype=np.float32)
    save_model(tmp_path / "m", layout, state, {})
    np.testing.assert_array_equal(load_model(tmp_path / "m")[1], state)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        save_model(tmp_path / "nowhere" / "m.safetensors", LAYOUT, STATE, {})


def test_a_state_that_does_not_fit_its_layout_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"shape \(8,\)"):
        save_model(tmp_path / "m", LAYOUT, STATE[:8], {})
    with pytest.raises(LayoutError, match=LAYOUT_KEY):
        save_model(tmp_path / "m", LAYOUT, STATE, {LAYOUT_KEY: "{}"})
    assert not list(tmp_path.iterdir())


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_cut_file_is_taken_for_a_whole_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.safetensors"
    save_model(path, LAYOUT, STATE, {})
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(DataError, match="complete safetensors file"):
        load_model(path)


def test_pickles_are_recognised_and_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps({"w": 1}) * 10)
    with pytest.raises(DataError, match="pickle"):
        load_model(path)


def test_a_missing_file_and_a_folder_are_clear_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match=f"cannot read the model file {path}"):
            load_model(path)


def test_a_foreign_file_becomes_parameters_in_file_order(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    header = {
        "late": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
        "early": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
        "__metadata__": {"format": "pt"},
    }
    layout, state, metadata = load_model(raw(path, header, np.arange(4, dtype="<f4").tobytes()))
    assert layout == Layout((Entry("early", (1, 2)), Entry("late", (2,))))
    assert (state.tolist(), metadata) == ([0, 1, 2, 3], {"format": "pt"})


def test_a_foreign_file_of_both_widths_is_read_as_the_wider(tmp_path: Path) -> None:
    path = tmp_path / "mixed.safetensors"
    save_file({"a": np.ones(2, np.float32), "b": np.full(1, 0.1)}, path)
    layout, state, _ = load_model(path)
    assert layout.dtype == "float64"
    assert sorted(state) == [0.1, 1, 1]


def test_a_foreign_file_of_other_numbers_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "half.safetensors"
    header = {"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    with pytest.raises(LayoutError, match=r"half.safetensors: tensor w is BF16; convert"):
        load_model(raw(path, header, bytes(4)))
    save_file({}, path)
    with pytest.raises(LayoutError, match=r"half.safetensors: .*no trainable parameters"):
        load_model(path)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"x": np.zeros(3, np.float32)}, r"float32 of shape \(3,\), but the file's own layout says .*\(2,\)"),
        ({"x": np.zeros(2)}, r"float64 of shape \(2,\), but"),
        ({"y": np.zeros(2, np.float32)}, "tensor x is missing"),
        ({"x": np.zeros(2, np.float32), "y": np.zeros(2, np.float32)}, "layout says missing"),
    ],
)
def test_tensors_that_contradict_the_files_layout_are_refused(
    tensors: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    save_file(tensors, path, {LAYOUT_KEY: Layout.flat(2).to_json()})
    with pytest.raises(LayoutError, match=said):
        load_model(path)


def test_a_damaged_layout_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"x": np.zeros(2, np.float32)}, path, {LAYOUT_KEY: "{"})
    with pytest.raises(LayoutError, match=r"m.safetensors: not a parameter layout"):
        load_model(path)
