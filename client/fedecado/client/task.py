"""What a user brings: a model, this client's data and a loss; and how it is found by name."""

import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from fedecado.client.flat import trainable
from fedecado.common.errors import ConfigError, FedecadoError, TaskError

Role = Literal["trainer", "evaluator"]
Loss = Callable[[nn.Module, Any], Tensor]
Evaluate = Callable[[nn.Module], Mapping[str, float]]


def cross_entropy_on_pairs(model: nn.Module, batch: Any) -> Tensor:
    """Mean cross-entropy of `model(inputs)` for a batch (inputs, class indices)."""
    inputs, targets = batch
    return functional.cross_entropy(model(inputs), targets)


@dataclass(frozen=True, eq=False)
class Task:
    """A model, the data of one client and the mean loss to minimise.

    `data` is a map-style Dataset, or a tuple of tensors with equal first dimension, which is indexed
    whole and much faster. `loss(model, batch)` returns the mean loss of a batch as a scalar tensor.
    `evaluate(model)` returns named scores; it runs in eval mode without gradients.
    `collate` turns a list of a Dataset's items into a batch.
    """

    model: nn.Module
    data: Any
    loss: Loss = cross_entropy_on_pairs
    evaluate: Evaluate | None = None
    collate: Callable[[list[Any]], Any] = default_collate
    _placed: dict[torch.device, tuple[Tensor, ...]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise TaskError(f"model is a {type(self.model).__name__}; it must be a torch.nn.Module")
        trainable(self.model)
        if isinstance(self.data, TensorDataset):
            object.__setattr__(self, "data", self.data.tensors)
        _check_data(self.data)
        for name in ("loss", "collate"):
            if not callable(getattr(self, name)):
                raise TaskError(f"{name} is {getattr(self, name)!r}; it must be a function")
        if self.evaluate is not None and not callable(self.evaluate):
            raise TaskError(f"evaluate is {self.evaluate!r}; it must be a function of the model, or None")

    def __len__(self) -> int:
        return self.samples

    @property
    def samples(self) -> int:
        return len(self.data[0]) if isinstance(self.data, tuple) else len(self.data)

    def batch(self, indices: Tensor | None, device: torch.device) -> Any:
        """The samples at `indices` (all of them for None) as a batch on `device`."""
        if isinstance(self.data, tuple):
            tensors = self._tensors(device)
            if indices is None:
                return tensors
            where = indices.to(device)
            return tuple(tensor.index_select(0, where) for tensor in tensors)
        rows = list(range(self.samples)) if indices is None else indices.tolist()
        try:
            fetch = getattr(self.data, "__getitems__", None)
            items = fetch(rows) if fetch else [self.data[i] for i in rows]
            return _move(self.collate(items), device)
        except Exception as error:
            raise TaskError(f"the data set failed to give a batch: {_describe(error)}") from error

    def mean_loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of one batch; whatever goes wrong in user code becomes a TaskError."""
        try:
            loss = self.loss(model, batch)
        except FedecadoError:
            raise
        except Exception as error:
            raise TaskError(f"the loss function failed: {_describe(error)}") from error
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TaskError(
                f"the loss function returned {what}; return one scalar tensor, as loss.mean() gives"
            )
        return loss.reshape(()) if loss.ndim else loss

    def _tensors(self, device: torch.device) -> tuple[Tensor, ...]:
        """The data on `device`, moved there once."""
        if device not in self._placed:
            self._placed[device] = tuple(tensor.to(device) for tensor in self.data)
        return self._placed[device]


@dataclass(frozen=True, slots=True)
class Context:
    """Which client a task is made for."""

    index: int
    clients: int
    seed: int
    role: Role = "trainer"

    def __post_init__(self) -> None:
        if self.clients < 1 or not 0 <= self.index < self.clients:
            raise ConfigError(f"client index {self.index} of {self.clients}; it must lie in 0..clients-1")
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; it must not be negative")
        if self.role not in get_args(Role):
            raise ConfigError(f"role is {self.role!r}; it must be 'trainer' or 'evaluator'")


def load_task(spec: str, context: Context, arguments: Mapping[str, Any]) -> Task:
    """Call the factory at `package.module:factory`.

    It gets `arguments` as keywords, and of the context's fields those that its signature names.
    Modules of the current directory can be imported.
    """
    factory = _find(spec)
    keywords = _keywords(spec, factory, asdict(context), arguments)
    try:
        task = factory(**keywords)
    except FedecadoError:
        raise
    except Exception as error:
        raise TaskError(f"{spec} failed: {_describe(error)}") from error
    if not isinstance(task, Task):
        raise TaskError(f"{spec} returned a {type(task).__name__}; it must return a fedecado Task")
    return task


def _find(spec: str) -> Callable[..., Any]:
    module_name, _, path = spec.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise TaskError(f"task {spec!r} is not of the form package.module:factory")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise TaskError(f"cannot import {module_name!r} of task {spec!r}: {_describe(error)}") from error
    try:
        factory = functools.reduce(getattr, path.split("."), module)
    except AttributeError as error:
        public = [name for name in vars(module) if not name.startswith("_")]
        raise TaskError(f"{module_name} has no {path!r}{_nearest(path, public)}") from error
    if not callable(factory):
        raise TaskError(f"{spec} is a {type(factory).__name__}; it must be a function that returns a Task")
    return factory


def _keywords(
    spec: str, factory: Callable[..., Any], context: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Match context and arguments to the factory's signature, before user code runs."""
    for name in arguments.keys() & context.keys():
        raise TaskError(f"task argument {name!r} is set by fedecado for every client; leave it out")
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError as error:
        raise TaskError(f"{spec} has no readable signature; make it a plain Python function") from error
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        keywords = {**context, **arguments}
    else:
        for name in arguments.keys() - named.keys():
            raise TaskError(
                f"{spec} takes no argument {name!r}{_nearest(name, named.keys() - context.keys())}"
            )
        keywords = {**{k: v for k, v in context.items() if k in named}, **arguments}
    missing = [name for name, p in named.items() if p.default is p.empty and name not in keywords]
    if missing:
        raise TaskError(f"{spec} needs {', '.join(missing)}; give it among the task's arguments")
    return keywords


def _check_data(data: Any) -> None:
    if isinstance(data, Tensor):
        raise TaskError("data is a bare tensor; pass a tuple of tensors, such as (inputs, targets)")
    if isinstance(data, tuple):
        if not data or not all(isinstance(part, Tensor) and part.ndim for part in data):
            kinds = ", ".join(type(part).__name__ for part in data)
            raise TaskError(f"data is a tuple of ({kinds}); all must be tensors with a sample dimension")
        lengths = [len(tensor) for tensor in data]
        if len(set(lengths)) > 1:
            raise TaskError(f"the data tensors hold {lengths} samples; they must hold equally many")
    elif isinstance(data, IterableDataset) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TaskError(
            f"data is a {type(data).__name__}; it must have a length and items, or be a tuple of tensors"
        )
    if not len(data[0] if isinstance(data, tuple) else data):
        raise TaskError("data holds no samples; a client needs at least one")


def _move(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: _move(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        moved = [_move(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else tuple(moved)
    return batch


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _nearest(name: str, valid: Any) -> str:
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it has: {', '.join(sorted(valid)) or 'none'}"
