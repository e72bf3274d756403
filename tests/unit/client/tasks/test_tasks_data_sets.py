"""Image data sets are read from the user's folder in any published form, and nothing in them can run code."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from image_files import (
    pictures,
    write_cifar10_binary,
    write_cifar10_python,
    write_cifar100_binary,
    write_idx,
    write_mnist,
)

from fedecado.client.tasks.data.cifar import read_python
from fedecado.client.tasks.data.idx import read_idx
from fedecado.client.tasks.data.sets import DataSet, find
from fedecado.common.errors import DataError


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("inner", ["", "MNIST/raw"])
def test_mnist_is_found_plain_or_gzipped_in_torchvision_s_folder_or_the_user_s(
    tmp_path: Path, ending: str, inner: str
) -> None:
    write_mnist(tmp_path / inner, ending=ending)
    found = find("mnist", str(tmp_path))
    images, labels = pictures(200, (28, 28), 10, 0)
    np.testing.assert_array_equal(found.train.images[:, 0], images)
    np.testing.assert_array_equal(found.train.labels, labels)
    assert found.test.images.shape == (200, 1, 28, 28)


def test_both_forms_of_cifar10_give_the_same_images(tmp_path: Path) -> None:
    write_cifar10_python(tmp_path / "py" / "cifar-10-batches-py")
    write_cifar10_binary(tmp_path / "bin")
    left, right = find("cifar10", str(tmp_path / "py")), find("cifar10", str(tmp_path / "bin"))
    for a, b in ((left.train, right.train), (left.test, right.test)):
        np.testing.assert_array_equal(a.images, b.images)
        np.testing.assert_array_equal(a.labels, b.labels)
    assert left.train.images.shape == (100, 3, 32, 32)


def test_cifar100_has_its_fine_labels(tmp_path: Path) -> None:
    write_cifar100_binary(tmp_path)
    found = find("cifar100", str(tmp_path))
    assert found.shape.classes == 100
    np.testing.assert_array_equal(found.train.labels, np.arange(200) % 100)


class _Harm:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_a_batch_that_would_run_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": _Harm(), b"labels": []}))
    with pytest.raises(DataError, match="system"):
        read_python(path, "labels")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an IDX file"),
        (b"<html>not found</html>", "not an IDX file"),
        (b"\0\0\x08\x03\0\0", "ends within its header"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "holds 3 values"),
    ],
)
def test_a_damaged_idx_file_is_named_with_the_remedy(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as told:
        read_idx(path)
    assert "download it again" in str(told.value)


def test_a_cut_off_gzip_file_is_an_error_in_words(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    write_idx(path, np.arange(200, dtype=np.uint8))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot read"):
        read_idx(path)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_a_set_that_is_not_there_says_where_it_was_looked_for(
    tmp_path: Path, name: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torchvision", None)  # as if it were not installed
    with pytest.raises(DataError, match=r"is not in .*fedecado\[vision\]") as told:
        find(name, str(tmp_path))
    assert str(tmp_path) in str(told.value)
    with pytest.raises(DataError, match="data=FOLDER"):
        find(name, None)
