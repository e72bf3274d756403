"""Small image data sets in the forms they are published in."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def pictures(count: int, shape: tuple[int, ...], classes: int, seed: int = 0) -> tuple[Bytes, Bytes]:
    """Random pixels; labels go round, so that all classes are there."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, *shape), np.uint8), (np.arange(count) % classes).astype(np.uint8)


def write_idx(path: Path, values: Bytes) -> None:
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    raw = header + values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_mnist(folder: Path, count: int = 200, ending: str = "") -> None:
    """Training and test images with different pixels."""
    for part, seed in (("train", 0), ("t10k", 1)):
        images, labels = pictures(count, (28, 28), 10, seed)
        write_idx(folder / f"{part}-images-idx3-ubyte{ending}", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte{ending}", labels)


def write_cifar10_python(folder: Path, count: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        images, labels = pictures(count, (3072,), 10, seed)
        # As Python 2 wrote them: keys are bytes, labels a list.
        content = {b"data": images, b"labels": labels.tolist(), b"batch_label": b"one"}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def write_cifar10_binary(folder: Path, count: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        images, labels = pictures(count, (3072,), 10, seed)
        (folder / name).write_bytes(np.concatenate([labels[:, None], images], axis=1).tobytes())


def write_cifar100_binary(folder: Path, count: int = 200) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(["train.bin", "test.bin"]):
        images, labels = pictures(count, (3072,), 100, seed)
        coarse = labels // 5
        (folder / name).write_bytes(np.concatenate([coarse[:, None], labels[:, None], images], 1).tobytes())
