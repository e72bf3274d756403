"""CIFAR-10 and CIFAR-100 in their published forms: binary files, or Python's pickled batches.

A pickle can run any code when it is read, so only the few names that an array of numbers needs are let
through; whatever else a file asks for is refused.
"""

import codecs
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import DataError

Bytes = npt.NDArray[np.uint8]
PIXELS = 3 * 32 * 32

# Old and new home of numpy's function; what it may build is an array of numbers.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: np.ndarray.__new__(np.ndarray, (0,), np.uint8),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: np.ndarray.__new__(np.ndarray, (0,), np.uint8),
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


class _Batches(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR batch needs") from None


def read_python(path: Path, labels: str) -> tuple[Bytes, Bytes]:
    """Pixels (n x 3072) and labels of a pickled batch; `labels` is their key."""
    try:
        content = _Batches(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels = np.asarray(content[b"data"], np.uint8)
        classes = np.asarray(content[labels.encode()], np.uint8)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(f"{path} is not a batch of CIFAR images: {error}; download it again") from error
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS or classes.shape != (len(pixels),):
        raise DataError(f"{path} holds {pixels.shape} pixels and {classes.shape} labels; download it again")
    return pixels, classes


def read_binary(path: Path, label_bytes: int) -> tuple[Bytes, Bytes]:
    """Pixels and labels of a binary file; the last of each image's `label_bytes` is the (fine) label."""
    try:
        raw = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not len(raw) or len(raw) % (label_bytes + PIXELS):
        raise DataError(f"{path} has {len(raw)} bytes, no whole number of images; download it again")
    rows = raw.reshape(-1, label_bytes + PIXELS)
    return rows[:, label_bytes:], rows[:, label_bytes - 1].copy()
