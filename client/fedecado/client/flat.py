"""A torch model seen as one flat vector.

The trainable parameters become views into `values` and their gradients views into `grads`, so a
whole optimiser step is a couple of vector operations however many layers the model has.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedecado.common import spares
from fedecado.common.errors import ConfigError, LayoutError, TaskError
from fedecado.common.layout import DType, Entry, Layout, Vector

_DTYPES: dict[torch.dtype, DType] = {torch.float32: "float32", torch.float64: "float64"}


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    """A tensor of the model, the module that holds it, and its place in the flat vector."""

    owner: nn.Module
    key: str
    name: str
    tensor: Tensor
    place: Tensor

    @property
    def current(self) -> object:
        return getattr(self.owner, self.key, None)


@final
class FlatModel:
    """Moves `model` to `device` and `dtype` and rebinds its tensors into one vector.

    What travels: trainable parameters (a tied one once, under its first name), then persistent
    floating-point buffers. Frozen parameters, integer buffers and non-persistent buffers stay.
    Floating-point tensors of other dtypes are converted to `dtype`.
    """

    def __init__(self, model: nn.Module, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        if dtype not in _DTYPES:
            raise ConfigError(
                f"the flat dtype is {dtype}; use torch.float32 or torch.float64, "
                "and Plan(precision='bf16') for mixed precision"
            )
        self.model, self.device, self.dtype = model, device, dtype
        parameters = trainable(model)
        buffers = _travelling_buffers(model)
        _convert(model, device, dtype)
        self.layout = Layout(
            (
                *(Entry(name, tuple(p.shape)) for name, p in parameters),
                *(Entry(name, tuple(b.shape), "buffer") for name, b in buffers),
            ),
            _DTYPES[dtype],
        )
        self._storage = torch.empty(self.layout.size, device=device, dtype=dtype)
        self.values = self._storage[: self.d]
        self.grads = torch.zeros_like(self.values)
        self._parameters = list(_bind(model, parameters, self.values))
        self._buffers = list(_bind(model, buffers, self._storage[self.d :]))
        self._grads = self.split(self.grads)
        for slot, grad in zip(self._parameters, self._grads, strict=True):
            slot.tensor.grad = grad

    @property
    def d(self) -> int:
        """How many trainable numbers the model has."""
        return self.layout.parameters

    @property
    def parameters(self) -> list[Tensor]:
        """The trainable parameters, in the order of the layout."""
        return [slot.tensor for slot in self._parameters]

    def split(self, vector: Tensor) -> list[Tensor]:
        """A vector of size d as views shaped like the parameters."""
        shapes = [slot.place.shape for slot in self._parameters]
        parts = torch.split(vector, [math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def load(self, state: Vector) -> None:
        """Overwrite parameters and buffers with a full state vector."""
        self.layout.check(state, "state")
        self._reattach_buffers()
        self._storage.copy_(as_tensor(state))

    def state(self) -> Vector:
        """A copy of parameters and buffers as one vector."""
        self._reattach_buffers()
        room = spares.room(spares.trained, self.layout.nbytes, self.layout.dtype)
        home = torch.empty(self.layout.size, dtype=self.dtype) if room is None else torch.from_numpy(room)
        vector: Vector = home.copy_(self._storage).numpy()
        return vector

    def vector(self, values: Vector, what: str = "vector") -> Tensor:
        """A numpy vector of size d on the model's device; not a copy where it is there already."""
        if values.shape != (self.d,):
            raise LayoutError(f"{what} has shape {values.shape}, but the model has {self.d} parameters")
        return as_tensor(values).to(self.device, self.dtype)

    def check(self) -> None:
        """Raise if parameters or gradients no longer lie in the flat vectors."""
        for slot, grad in zip(self._parameters, self._grads, strict=True):
            if slot.current is not slot.tensor or slot.tensor.data_ptr() != slot.place.data_ptr():
                raise TaskError(
                    f"parameter {slot.name} was replaced during training; "
                    "change parameters in place (copy_) and build the model completely in the task factory"
                )
            if slot.tensor.grad is not grad:
                raise TaskError(
                    f"the gradient of {slot.name} was replaced during training; "
                    "the loss must not call zero_grad() or backward() itself, only return the loss"
                )

    @contextmanager
    def mode(self, *, training: bool) -> Iterator[None]:
        """Train or eval mode inside the block; every module's own mode is restored after it."""
        before = [(module, module.training) for module in self.model.modules()]
        self.model.train(training)
        try:
            yield
        finally:
            for module, was in before:
                if module.training != was:  # to look costs less: a module sees to all that is set on it
                    module.training = was

    def _reattach_buffers(self) -> None:
        """Take over buffers that the model assigned anew (`self.mean = ...`), a common idiom."""
        for slot in self._buffers:
            current = slot.current
            if current is slot.tensor:
                continue
            if not isinstance(current, Tensor) or current.shape != slot.place.shape:
                raise TaskError(f"buffer {slot.name} was replaced by something of another shape or type")
            slot.place.copy_(current.detach())
            setattr(slot.owner, slot.key, slot.tensor)


def trainable(model: nn.Module) -> list[tuple[str, Tensor]]:
    """The model's trainable parameters by name, a tied one once; raise if they cannot be trained here."""
    found: list[tuple[str, Tensor]] = []
    places: dict[int, str] = {}
    for name, p in model.named_parameters():
        if is_lazy(p):
            raise TaskError(f"parameter {name} has no shape yet; run one forward pass before making the task")
        if not p.requires_grad:
            continue
        if not p.is_floating_point():
            raise TaskError(
                f"parameter {name} is {p.dtype}; only real floating-point parameters are supported"
            )
        if p.numel() and (first := places.setdefault(p.data_ptr(), name)) != name:
            raise TaskError(
                f"parameters {first} and {name} share memory but are two Parameters; "
                "tie them by assigning the same Parameter to both modules"
            )
        found.append((name, p))
    if not any(p.numel() for _, p in found):
        raise TaskError("the model has no trainable parameters; set requires_grad on some of them")
    return found


def _travelling_buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    saved = {id(value) for value in model.state_dict(keep_vars=True).values()}
    return [(name, b) for name, b in model.named_buffers() if id(b) in saved and b.is_floating_point()]


def _convert(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Like `model.to(device, dtype)`, but it leaves complex tensors (rotary caches) complex."""
    tensors: Iterable[Tensor] = (*model.parameters(), *model.buffers())
    for tensor in tensors:
        tensor.grad = None
        tensor.data = tensor.data.to(device, dtype if tensor.is_floating_point() else tensor.dtype)


def _bind(model: nn.Module, named: list[tuple[str, Tensor]], home: Tensor) -> Iterator[_Slot]:
    """Move the tensors into consecutive pieces of `home`; the tensor objects stay the same."""
    at = 0
    for name, tensor in named:
        place = home[at : at + tensor.numel()].view(tensor.shape)
        at += tensor.numel()
        place.copy_(tensor.data)
        tensor.data = place
        path, _, key = name.rpartition(".")
        yield _Slot(model.get_submodule(path), key, name, tensor, place)


def as_tensor(vector: Vector) -> Tensor:
    """A vector as torch sees it; not a copy where it may be written to."""
    # torch warns about read-only arrays (views of received bytes), so those are copied.
    flags = vector.flags
    return torch.from_numpy(vector if flags.writeable and flags.c_contiguous else vector.copy())
