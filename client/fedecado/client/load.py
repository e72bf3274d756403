"""A downloaded model back into torch: `load_into(MyModel(), "model.safetensors")`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedecado.common.errors import LayoutError
from fedecado.common.layout import Vector
from fedecado.common.model_file import load_model

Model = TypeVar("Model", bound=nn.Module)

_SHOWN = 5
"""So many names stand in an error message."""


def load_into(model: Model, path: str | Path) -> Model:
    """Copy the tensors of a model file into `model`, in place, and return it.

    The file must hold every trainable parameter (a tied one under any of its names) and every persistent
    floating-point buffer, and nothing the model lacks. Frozen parameters that were frozen in training,
    too, are not in the file and keep their values. On an error the model is unchanged.
    """
    layout, state, _ = load_model(Path(path))
    tensors = layout.unpack(state)
    targets = dict(_named(model))
    _check_names(path, model, targets, tensors.keys())
    _check_values(path, targets, tensors)
    with torch.no_grad():
        for name, values in tensors.items():
            targets[name].copy_(torch.from_numpy(values))
    return model


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that can be loaded, tied ones under each of their names."""
    saved = model.state_dict(keep_vars=True)
    for name, p in model.named_parameters(remove_duplicate=False):
        if is_lazy(p):
            raise LayoutError(f"parameter {name} has no shape yet; run one forward pass before loading")
        yield name, p
    for name, b in model.named_buffers(remove_duplicate=False):
        if name in saved and b.is_floating_point():
            yield name, b


def _check_names(
    path: str | Path, model: nn.Module, targets: dict[str, Tensor], names: Iterable[str]
) -> None:
    unknown = [name for name in names if name not in targets]
    here = {id(targets[name]) for name in names if name in targets}
    frozen = {id(p) for p in model.parameters() if not p.requires_grad}
    missing = [name for name, tensor in targets.items() if id(tensor) not in here | frozen]
    if unknown or missing:
        parts = [("lacks", missing), ("holds what the model has not:", unknown)]
        words = " and ".join(f"{verb} {_some(found)}" for verb, found in parts if found)
        raise LayoutError(
            f"{path} does not fit {type(model).__name__}: it {words}; build the model as in training"
        )


def _check_values(path: str | Path, targets: dict[str, Tensor], tensors: dict[str, Vector]) -> None:
    first: dict[int, str] = {}
    for name, values in tensors.items():
        target = targets[name]
        if tuple(target.shape) != values.shape:
            raise LayoutError(
                f"{path}: {name} has shape {values.shape}, the model's has {tuple(target.shape)}; "
                "build the model as in training"
            )
        twin = first.setdefault(id(target), name)
        if not np.array_equal(tensors[twin], values, equal_nan=True):
            raise LayoutError(f"{path}: {twin} and {name} differ, but the model ties them")


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
