"""Writing many named vectors as one safetensors file, without holding them in memory.

The library's own writer wants all bytes at once; clients times parameters may exceed memory.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from fedecado.common.layout import Vector
from fedecado.server.store.faults import point

_NAMES: Final = {"<f4": "F32", "<f8": "F64"}


def write_tensors(path: Path, sizes: Mapping[str, tuple[str, int]], vectors: Iterable[Vector]) -> None:
    """`sizes` has dtype and length of each of the `vectors`, which come in the same order; durable."""
    header, at = {}, 0
    for name, (dtype, count) in sizes.items():
        end = at + count * np.dtype(dtype).itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": [count], "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for vector in vectors:
            point("export.half-written")
            file.write(np.ascontiguousarray(vector, vector.dtype.newbyteorder("<")).data)
        file.flush()
        os.fsync(file.fileno())
