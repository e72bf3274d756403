"""A model file goes back into a torch model, or says why it does not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn

from fedecado.client.flat import FlatModel
from fedecado.client.load import load_into
from fedecado.common.errors import LayoutError
from fedecado.common.model_file import save_model

CPU = torch.device("cpu")


class Tied(nn.Module):
    """A network with all that is special: tied, frozen, buffers of several sorts."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, width)
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def saved(model: nn.Module, path: Path) -> Path:
    flat = FlatModel(model, CPU)
    save_model(path, flat.layout, flat.state(), {})
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    trained = Tied()
    trained.state_dict()["norm.running_mean"].fill_(7)
    return saved(trained, tmp_path / "model.safetensors")


def test_tied_and_buffers_are_loaded_and_frozen_ones_stay(file: Path) -> None:
    torch.manual_seed(0)
    trained = Tied()
    model = Tied()
    frozen = model.frozen.weight.clone()
    assert load_into(model, str(file)) is model
    assert torch.equal(model.embed.weight, trained.embed.weight)
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.frozen.weight, frozen)
    assert model.state_dict()["norm.running_mean"].tolist() == [7, 7, 7]
    assert model.embed.weight.requires_grad


def test_a_model_frozen_for_inference_is_loaded_all_the_same(file: Path) -> None:
    model = Tied().requires_grad_(False)
    before = model.embed.weight.clone()
    load_into(model, file)
    assert not torch.equal(model.embed.weight, before)


def test_numbers_are_converted_to_the_models_own(file: Path) -> None:
    model = load_into(Tied().double(), file)
    assert model.norm.weight.dtype == torch.float64
    assert model.norm.weight.tolist() == [1, 1, 1]


def test_a_tied_parameter_may_stand_under_either_name(tmp_path: Path) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

    path = tmp_path / "m.safetensors"
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    save_file({"b.weight": values}, path)
    assert load_into(Pair(), path).a.weight.tolist() == values.tolist()
    save_file({"a.weight": values, "b.weight": values + 1}, path)
    with pytest.raises(LayoutError, match=r"a.weight and b.weight differ, but the model ties them"):
        load_into(Pair(), path)


def test_another_model_is_refused_and_left_as_it_was(file: Path) -> None:
    other = nn.Linear(2, 2)
    before = other.weight.clone()
    with pytest.raises(
        LayoutError, match=r"does not fit Linear: it lacks weight, bias and holds .* embed.weight, norm"
    ):
        load_into(other, file)
    wider = Tied(4)
    with pytest.raises(LayoutError, match=r"embed.weight has shape \(5, 3\), the model's has \(5, 4\)"):
        load_into(wider, file)
    assert torch.equal(other.weight, before)


def test_a_lazy_model_is_told_to_run_once(file: Path) -> None:
    with pytest.raises(LayoutError, match="run one forward pass"):
        load_into(nn.LazyLinear(3), file)
