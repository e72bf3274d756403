"""The IDX format of MNIST and its relatives, plain or gzipped."""

import gzip
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedecado.common.errors import DataError

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array of bytes in an IDX file."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTE:
        raise DataError(f"{path} is not an IDX file of bytes; download it again")
    dimensions = raw[3]
    header = 4 + 4 * dimensions
    if dimensions == 0 or len(raw) < header:
        raise DataError(f"{path} ends within its header; download it again")
    shape = [int.from_bytes(raw[at : at + 4], "big") for at in range(4, header, 4)]
    if len(raw) - header != math.prod(shape):
        raise DataError(
            f"{path} holds {len(raw) - header} values, its header says {shape}; download it again"
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)
