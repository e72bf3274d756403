"""Tasks are checked when they are made, and found by name with helpful errors."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from fedecado.client.task import Context, Task, load_task
from fedecado.common.errors import ConfigError, TaskError

CPU = torch.device("cpu")
CONTEXT = Context(index=1, clients=4, seed=7)
PAIRS = (torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1]))

USER_MODULE = """
import torch
from torch import nn
from fedecado.client.task import Task

def make(index, seed, width=4):
    x = torch.full((8, 2), float(index))
    task = Task(nn.Linear(2, width), (x, torch.zeros(8, dtype=torch.int64)))
    made.append((index, seed, width))
    return task

def everything(**options):
    made.append(options)
    return make(0, 0)

def needs(path, index):
    return None

class Tasks:
    make = staticmethod(make)

def broken(index):
    raise ValueError("no such file")

made = []
constant = 3
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module in the current directory; yields its name, and forgets it afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "user_task_module.py").write_text(USER_MODULE)
    yield "user_task_module"
    sys.modules.pop("user_task_module", None)


def test_a_task_of_the_current_directory_is_found_and_gets_its_context_and_arguments(
    user_module: str,
) -> None:
    task = load_task(f"{user_module}:make", CONTEXT, {"width": 3})
    assert len(task) == task.samples == 8
    assert task.data[0][0].tolist() == [1, 1]
    assert sys.modules[user_module].made == [(1, 7, 3)]


def test_a_factory_with_keywords_gets_everything(user_module: str) -> None:
    load_task(f"{user_module}:everything", CONTEXT, {"extra": 1})
    assert sys.modules[user_module].made[0] == {
        "index": 1,
        "clients": 4,
        "seed": 7,
        "role": "trainer",
        "extra": 1,
    }


def test_a_factory_may_be_an_attribute_of_a_class(user_module: str) -> None:
    assert isinstance(load_task(f"{user_module}:Tasks.make", CONTEXT, {}), Task)


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        ("{}:make", {"widht": 3}, "no argument 'widht'; did you mean 'width'"),
        ("{}:make", {"zzz": 3}, "no argument 'zzz'; it has: width"),
        ("{}:make", {"seed": 3}, "'seed' is set by fedecado"),
        ("{}:mkae", {}, "did you mean 'make'"),
        ("{}:constant", {}, "is a int"),
        ("{}:needs", {}, "needs path; give it"),
        ("{}:needs", {"path": "x"}, "returned a NoneType"),
        ("{}:broken", {}, "ValueError: no such file"),
        ("{}", {}, "not of the form"),
        ("{}:", {}, "not of the form"),
        ("{}.py:make", {}, "cannot import"),
        ("no_such_module_here:make", {}, "ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_with_a_task_is_said(
    user_module: str, spec: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        load_task(spec.format(user_module), CONTEXT, arguments)


def test_the_users_own_exception_is_chained(user_module: str) -> None:
    with pytest.raises(TaskError) as caught:
        load_task(f"{user_module}:broken", CONTEXT, {})
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_module_that_fails_to_import_is_a_task_error(user_module: str, tmp_path: Path) -> None:
    (tmp_path / "bad_task_module.py").write_text("1 / 0")
    with pytest.raises(TaskError, match="ZeroDivisionError"):
        load_task("bad_task_module:make", CONTEXT, {})


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((), "tensors"),
        ((torch.zeros(0, 2),), "no samples"),
        ([], "no samples"),
        ((torch.zeros(3), torch.zeros(2)), r"\[3, 2\]"),
        ((torch.zeros(3), [1, 2, 3]), "Tensor, list"),
        ((torch.tensor(1.0),), "sample dimension"),
        (torch.zeros(3), "bare tensor"),
        (Stream(), "Stream"),
        (5, "int"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(data: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        Task(nn.Linear(3, 2), data)


def test_models_that_cannot_be_trained_are_refused() -> None:
    with pytest.raises(TaskError, match="no trainable"):
        Task(nn.Linear(3, 2).requires_grad_(False), PAIRS)
    with pytest.raises(TaskError, match="no trainable"):
        Task(nn.ReLU(), PAIRS)
    with pytest.raises(TaskError, match="no shape yet"):
        Task(nn.LazyLinear(2), PAIRS)
    with pytest.raises(TaskError, match=r"nn\.Module"):
        Task("model", PAIRS)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TaskError, match="loss"):
        Task(nn.Linear(3, 2), PAIRS, loss=None)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TaskError, match="evaluate"):
        Task(nn.Linear(3, 2), PAIRS, evaluate=3)  # type: ignore[arg-type]  # the mistake under test


def test_a_tensor_dataset_takes_the_fast_path() -> None:
    task = Task(nn.Linear(3, 2), TensorDataset(*PAIRS))
    assert isinstance(task.data, tuple)
    x, y = task.batch(torch.tensor([4, 1]), CPU)
    assert torch.equal(x, PAIRS[0][[4, 1]])
    assert y.tolist() == [0, 1]


def test_datasets_are_collated_whatever_their_items_look_like() -> None:
    class Pair(NamedTuple):
        x: torch.Tensor
        y: int

    class Items(Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> Any:
            return {"pair": Pair(torch.full((2,), float(i)), i), "name": str(i)}

    batch = Task(nn.Linear(2, 2), Items()).batch(torch.tensor([2, 0]), CPU)
    assert isinstance(batch["pair"], Pair)
    assert batch["pair"].x.tolist() == [[2, 2], [0, 0]]
    assert batch["name"] == ("2", "0")
    x, _ = Task(nn.Linear(3, 2), Subset(TensorDataset(*PAIRS), [3, 5])).batch(None, CPU)
    assert torch.equal(x, PAIRS[0][[3, 5]])


def test_a_dataset_that_fails_is_a_task_error() -> None:
    task = Task(nn.Linear(3, 2), [torch.zeros(2), torch.zeros(3)])
    with pytest.raises(TaskError, match="failed to give a batch"):
        task.batch(None, CPU)


def test_a_context_out_of_range_is_refused() -> None:
    for values in ((4, 4, 0, "trainer"), (0, 0, 0, "trainer"), (0, 1, -1, "trainer"), (0, 1, 0, "boss")):
        with pytest.raises(ConfigError):
            Context(*values)


def test_importing_the_package_does_not_import_torch() -> None:
    import subprocess

    code = "import sys, fedecado.client, fedecado.client.partition; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
