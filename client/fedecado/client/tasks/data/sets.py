"""Find a data set in a folder, in any of the forms it is published in, or have torchvision fetch it."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fedecado.client.tasks.data import cifar
from fedecado.client.tasks.data.cifar import Bytes
from fedecado.client.tasks.data.idx import read_idx
from fedecado.client.tasks.models import Images
from fedecado.common.errors import DataError

DataSet = Literal["mnist", "fashion_mnist", "cifar10", "cifar100"]


class Pictures(NamedTuple):
    """Images as bytes (n x channels x side x side), with their labels."""

    images: Bytes
    labels: Bytes


class Found(NamedTuple):
    """A data set: what its images are like, and its two parts."""

    shape: Images
    train: Pictures
    test: Pictures


class _Form(NamedTuple):
    """One way a data set may lie in a folder; `read` takes the files of one part."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    read: Callable[[list[Path]], Pictures]


@lru_cache(maxsize=2)
def find(name: DataSet, folder: str | None) -> Found:
    """The data set in `folder` or in the folders that torchvision and the archives use inside it."""
    if folder is None:
        raise DataError(
            f"{name} does not come with fedecado; name its folder with --task-arg data=FOLDER "
            "(where torchvision is installed, it is fetched into that folder)"
        )
    root = Path(folder).expanduser()
    for where in (root, *(root / inner for inner in _INNER[name])):
        for form in _FORMS[name]:
            train, test = ([_with_ending(where / file) for file in part] for part in (form.train, form.test))
            if all(train) and all(test):
                parts = (form.read([file for file in part if file]) for part in (train, test))
                return Found(_SHAPES[name], *parts)
    return _fetch(name, root)


def _with_ending(path: Path) -> Path | None:
    """The file, or its gzipped form."""
    return next((p for p in (path, path.with_name(path.name + ".gz")) if p.is_file()), None)


def _idx(files: list[Path]) -> Pictures:
    images, labels = read_idx(files[0]), read_idx(files[1])
    if images.ndim != 3 or labels.shape != (len(images),):
        raise DataError(f"{files[0]} and {files[1]} do not belong together: {images.shape}, {labels.shape}")
    return Pictures(images[:, None], labels)


def _batches(read: Callable[[Path], tuple[Bytes, Bytes]]) -> Callable[[list[Path]], Pictures]:
    def join(files: list[Path]) -> Pictures:
        parts = [read(file) for file in files]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return Pictures(images.reshape(-1, 3, 32, 32), labels)

    return join


def _fetch(name: DataSet, root: Path) -> Found:
    """Ask torchvision; it comes with the extra `vision`, and its wheel may not fit a CPU build of torch."""
    files = ", ".join(_FORMS[name][0].train[:2])
    missing = f"{name} is not in {root} (looked for {files} and others, also in {', '.join(_INNER[name])})"
    try:
        from torchvision import datasets
    except Exception as error:  # a broken torchvision raises RuntimeError, a missing one ImportError
        raise DataError(f"{missing}; put it there, or install fedecado[vision] to fetch it") from error
    kind = getattr(datasets, _CLASSES[name])
    try:
        parts = [kind(str(root), train=train, download=True) for train in (True, False)]
    except Exception as error:
        raise DataError(f"{missing}, and torchvision could not fetch it: {error}") from error
    return Found(_SHAPES[name], *(_pictures(np.asarray(p.data), np.asarray(p.targets)) for p in parts))


def _pictures(data: Bytes, targets: Bytes) -> Pictures:
    images = data[:, None] if data.ndim == 3 else data.transpose(0, 3, 1, 2)
    return Pictures(np.ascontiguousarray(images, np.uint8), targets.astype(np.uint8))


_IDX = _Form(
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    _idx,
)
_FIVE = tuple(f"data_batch_{i}" for i in range(1, 6))
_FORMS: dict[str, tuple[_Form, ...]] = {
    "mnist": (_IDX,),
    "fashion_mnist": (_IDX,),
    "cifar10": (
        _Form(
            tuple(f"{batch}.bin" for batch in _FIVE),
            ("test_batch.bin",),
            _batches(lambda path: cifar.read_binary(path, 1)),
        ),
        _Form(_FIVE, ("test_batch",), _batches(lambda path: cifar.read_python(path, "labels"))),
    ),
    "cifar100": (
        _Form(("train.bin",), ("test.bin",), _batches(lambda path: cifar.read_binary(path, 2))),
        _Form(("train",), ("test",), _batches(lambda path: cifar.read_python(path, "fine_labels"))),
    ),
}
_INNER: dict[str, tuple[str, ...]] = {
    "mnist": ("MNIST/raw", "mnist"),
    "fashion_mnist": ("FashionMNIST/raw", "fashion-mnist"),
    "cifar10": ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar10"),
    "cifar100": ("cifar-100-binary", "cifar-100-python", "cifar100"),
}
_SHAPES: dict[str, Images] = {
    "mnist": Images(1, 28, 10),
    "fashion_mnist": Images(1, 28, 10),
    "cifar10": Images(3, 32, 10),
    "cifar100": Images(3, 32, 100),
}
_CLASSES = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100"}
