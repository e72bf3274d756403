"""A model bound into one flat vector stays an ordinary torch model."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedecado.client.flat import FlatModel
from fedecado.common import allocator
from fedecado.common.errors import ConfigError, LayoutError, TaskError

CPU = torch.device("cpu")


class Tied(nn.Module):
    """An embedding whose weight is also the output layer, and a frozen scale."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=True)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.embed(tokens) * self.scale)
        return out


class Norms(nn.Module):
    """One buffer updated in place, one assigned anew, one integer, one that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("cache", torch.zeros(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean * 0.5 + 1
        out: torch.Tensor = self.norm(x)
        return out


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 2**31))
def test_a_loaded_state_comes_back_unchanged_and_is_what_the_model_computes_with(
    widths: list[int], seed: int
) -> None:
    pairs = zip([2, *widths], widths, strict=False)
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in pairs))
    flat = FlatModel(model, CPU)
    state = np.random.default_rng(seed).normal(size=flat.layout.size).astype(np.float32)
    flat.load(state)
    np.testing.assert_array_equal(flat.state(), state)
    named = flat.layout.unpack(state)
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), named[name])


def test_binding_does_not_change_what_the_model_computes() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    x = torch.randn(4, 1, 4, 4)
    expected = model(x)
    FlatModel(model, CPU)
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)


def test_the_state_is_a_copy() -> None:
    flat = FlatModel(nn.Linear(2, 1), CPU)
    before = flat.state()
    flat.values.add_(1)
    np.testing.assert_allclose(flat.state() - before, 1, rtol=1e-6)


def test_backward_passes_write_gradients_into_the_flat_buffer() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    reference = copy.deepcopy(model)
    flat = FlatModel(model, CPU)
    for _ in range(2):
        x = torch.randn(5, 3)
        flat.grads.zero_()
        reference.zero_grad()
        model(x).sum().backward()
        reference(x).sum().backward()
        expected = torch.cat([p.grad.flatten() for p in reference.parameters() if p.grad is not None])
        torch.testing.assert_close(flat.grads, expected)
        flat.check()


def test_a_tied_parameter_travels_once_and_a_frozen_one_not_at_all() -> None:
    model = Tied()
    flat = FlatModel(model, CPU)
    assert [entry.name for entry in flat.layout.entries] == ["embed.weight", "head.bias"]
    assert flat.d == 20
    flat.load(np.arange(20, dtype=np.float32))
    assert model.head.weight is model.embed.weight
    assert model.head.weight[1, 0].item() == 3
    torch.autograd.backward(functional.cross_entropy(model(torch.tensor([1, 2])), torch.tensor([2, 3])))
    flat.check()
    assert flat.grads[:15].abs().sum() > 0


def test_floating_point_buffers_follow_the_parameters() -> None:
    model = Norms()
    flat = FlatModel(model, CPU)
    kinds = {entry.name: entry.kind for entry in flat.layout.entries}
    assert kinds == {
        "norm.weight": "parameter",
        "norm.bias": "parameter",
        "mean": "buffer",
        "norm.running_mean": "buffer",
        "norm.running_var": "buffer",
    }
    model(torch.ones(4, 2))
    named = flat.layout.unpack(flat.state())
    np.testing.assert_allclose(named["norm.running_mean"], 0.1)
    np.testing.assert_allclose(named["mean"], 1.0)


def test_a_buffer_that_the_model_assigned_anew_is_taken_over_and_overwritten_by_a_load() -> None:
    model = Norms()
    flat = FlatModel(model, CPU)
    start = flat.state()
    model(torch.ones(4, 2))
    flat.load(start)
    np.testing.assert_array_equal(model.mean.numpy(), 0)
    model.mean = torch.zeros(7)
    with pytest.raises(TaskError, match="buffer mean"):
        flat.state()


def test_other_floating_point_types_are_converted_and_complex_ones_refused() -> None:
    mixed = nn.Sequential(nn.Linear(2, 2).double(), nn.Linear(2, 2).to(torch.bfloat16))
    flat = FlatModel(mixed, CPU)
    assert flat.state().dtype == np.float32
    assert mixed(torch.ones(1, 2)).dtype == torch.float32
    model = nn.Module()
    model.w = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(TaskError, match="complex64"):
        FlatModel(model, CPU)


def test_double_precision_is_available_and_half_is_not() -> None:
    assert FlatModel(nn.Linear(2, 1), CPU, torch.float64).layout.dtype == "float64"
    with pytest.raises(ConfigError, match="bf16"):
        FlatModel(nn.Linear(2, 1), CPU, torch.float16)


def test_a_state_of_the_wrong_length_or_type_is_refused() -> None:
    flat = FlatModel(nn.Linear(2, 1), CPU)
    with pytest.raises(LayoutError, match=r"\(4,\)"):
        flat.load(np.zeros(4, np.float32))
    with pytest.raises(LayoutError, match="float64"):
        flat.load(np.zeros(3, np.float64))
    with pytest.raises(LayoutError, match="drift"):
        flat.vector(np.zeros(4, np.float32), "drift")


def test_the_states_of_a_long_model_are_copies_of_their_own() -> None:
    model = nn.Linear(1 + (allocator.KEPT >> 2), 1, bias=False)
    flat = FlatModel(model, CPU)
    flat.values.fill_(1.0)
    first = flat.state()
    flat.values.fill_(2.0)
    second = flat.state()
    assert first[0] == first[-1] == 1.0
    assert second[0] == second[-1] == 2.0
    address = first.ctypes.data
    del first
    assert flat.state().ctypes.data == address  # its memory is used again once nobody has it
    assert second[0] == 2.0


def test_read_only_vectors_are_accepted() -> None:
    flat = FlatModel(nn.Linear(2, 1), CPU)
    received = np.frombuffer(np.ones(3, np.float32).tobytes(), np.float32)
    flat.load(received)
    assert flat.vector(received).tolist() == [1, 1, 1]


def test_a_replaced_parameter_or_gradient_is_noticed() -> None:
    model = nn.Linear(2, 1)
    flat = FlatModel(model, CPU)
    model.zero_grad()
    with pytest.raises(TaskError, match="gradient of weight"):
        flat.check()
    flat = FlatModel(model, CPU)
    model.weight.data = torch.zeros(1, 2)
    with pytest.raises(TaskError, match="parameter weight"):
        flat.check()
    flat = FlatModel(model, CPU)
    model.bias = nn.Parameter(torch.zeros(1))
    with pytest.raises(TaskError, match="parameter bias"):
        flat.check()


def test_two_parameters_in_the_same_memory_are_refused() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight.data = model[0].weight.data
    with pytest.raises(TaskError, match=r"0\.weight and 1\.weight"):
        FlatModel(model, CPU)


def test_modes_of_single_modules_are_restored() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    model[1].eval()
    with FlatModel(model, CPU).mode(training=True):
        assert model[1].training
    assert model.training
    assert not model[1].training
