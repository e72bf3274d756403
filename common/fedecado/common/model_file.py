"""A model as a file: safetensors, which any framework reads and which cannot carry code.

Parameters and buffers stand under their own names. The file's metadata holds the layout, so that the
flat state vector comes back as it was, and whatever text the caller adds (run, version, metrics).
"""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedecado.common.errors import DataError, LayoutError
from fedecado.common.layout import DType, Entry, Layout, Vector

LAYOUT_KEY: Final = "fedecado.layout"
"""Metadata key of the layout's JSON; a file without it was written by something else."""

_DTYPES: Final[dict[str, DType]] = {"F32": "float32", "F64": "float64"}

_PIECE_BYTES: Final = 16 << 20

# How torch.save files begin: zip archives since torch 1.6, bare pickles before.
_PICKLES: Final = (b"PK\x03\x04", b"\x80")


def save_model(path: Path, layout: Layout, state: Vector, metadata: Mapping[str, str]) -> None:
    """Write `state` to `path`, which holds either the old file or the whole new one at any time.

    The tensors are views into `state`: nothing is copied on the way to the disk.
    """
    if LAYOUT_KEY in metadata:
        raise LayoutError(f"the metadata must not hold {LAYOUT_KEY!r}; it is written from the layout")
    tensors: dict[str, Any] = layout.unpack(np.ascontiguousarray(state))
    path = path.resolve()
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        save_file(tensors, aside, {**metadata, LAYOUT_KEY: layout.to_json()})
        aside.chmod(0o644)
        _flush(aside)
        aside.replace(path)
        _flush(path.parent)
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot write the model to {path}: {error}{_remedy(path)}") from error
    finally:
        # After a success it has its final name, and in a folder that is missing there is none.
        with suppress(OSError):
            aside.unlink()


def load_model(path: Path) -> tuple[Layout, Vector, dict[str, str]]:
    """The layout, the state vector and the metadata of a model file.

    A safetensors file of another origin is taken too if all its tensors are float32 or float64: they
    become parameters in the order of the file, and float64 if any one of them is.
    """
    try:
        with safe_open(path, framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
            text = metadata.pop(LAYOUT_KEY, None)
            layout = _foreign_layout(path, file) if text is None else _own_layout(path, file, text)
            state: Vector = np.empty(layout.size, layout.dtype)
            for name, view in layout.unpack(state).items():
                _read(file, name, view)
            return layout, state, metadata
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot read the model file {path}: {error}{_suspicion(path)}") from error


def _read(file: Any, name: str, out: Vector) -> None:
    """Fill `out` by pieces: a whole tensor at once would lie in memory twice."""
    if out.nbytes <= _PIECE_BYTES:
        out[...] = file.get_tensor(name)
        return
    tensor = file.get_slice(name)
    rows = max(1, _PIECE_BYTES * len(out) // out.nbytes)
    for start in range(0, len(out), rows):
        stop = min(start + rows, len(out))
        out[start:stop] = tensor[start:stop]


def _own_layout(path: Path, file: Any, text: str) -> Layout:
    """The layout in the metadata, once the tensors agree with it."""
    try:
        layout = Layout.from_json(text)
    except LayoutError as error:
        raise LayoutError(f"{path}: {error}") from error
    wanted = {entry.name: (layout.dtype, entry.shape) for entry in layout.entries}
    found = {name: (_dtype(file, name), _shape(file, name)) for name in file.offset_keys()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise LayoutError(
                f"{path}: tensor {name} is {_words(found.get(name))}, but the file's own layout says "
                f"{_words(wanted.get(name))}; the file was changed, download it again"
            )
    return layout


def _foreign_layout(path: Path, file: Any) -> Layout:
    names = file.offset_keys()
    kinds = {name: _dtype(file, name) for name in names}
    for name, dtype in kinds.items():
        if dtype not in _DTYPES.values():
            raise LayoutError(f"{path}: tensor {name} is {dtype}; convert it to float32 or float64")
    wide = "float64" in kinds.values()
    try:
        return Layout(
            tuple(Entry(name, _shape(file, name)) for name in names), _DTYPES["F64" if wide else "F32"]
        )
    except LayoutError as error:
        raise LayoutError(f"{path}: {error}") from error


def _dtype(file: Any, name: str) -> str:
    code: str = file.get_slice(name).get_dtype()
    return _DTYPES.get(code, code)


def _shape(file: Any, name: str) -> tuple[int, ...]:
    return tuple(file.get_slice(name).get_shape())


def _words(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if tensor is None else f"{tensor[0]} of shape {tensor[1]}"


def _flush(path: Path) -> None:
    """Ask for a file's or a folder's content to be on the disk, not only on its way."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remedy(path: Path) -> str:
    kept = "; the file that was there is unchanged" if path.is_file() else ""
    return f" (free some space, or choose another place){kept}"


def _suspicion(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        if file.read(4).startswith(_PICKLES):
            return "; it looks like a pickle from torch.save, which can run code and is never loaded here"
    return "" if not path.is_file() else "; it must be a complete safetensors file"
