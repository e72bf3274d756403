"""Devices are picked by name, and random state is borrowed and given back."""

import pytest
import torch

from fedecado.client.device import isolated_rng, pick_device
from fedecado.common.errors import ConfigError


def having(monkeypatch: pytest.MonkeyPatch, *, gpus: int = 0, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


def test_auto_prefers_cuda_then_mps_then_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, gpus=2, mps=True)
    assert pick_device() == torch.device("cuda:0")
    having(monkeypatch, mps=True)
    assert pick_device() == torch.device("mps")
    having(monkeypatch)
    assert pick_device() == torch.device("cpu")


def test_workers_of_one_host_spread_over_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, gpus=3)
    assert [pick_device("auto", i).index for i in range(5)] == [0, 1, 2, 0, 1]
    assert pick_device("cuda", 4) == torch.device("cuda:1")
    assert pick_device("cuda:2", 4) == torch.device("cuda:2")
    assert pick_device("cpu", 4) == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:2", "cuda:", "cuda:x", "cuda:-1", "mps", "tpu", ""])
def test_a_device_that_is_not_there_names_those_that_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, gpus=2)
    with pytest.raises(ConfigError, match="cpu, cuda:0, cuda:1"):
        pick_device(name)


def test_cuda_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch)
    with pytest.raises(ConfigError, match="one of: cpu"):
        pick_device("cuda")


def test_random_state_is_seeded_inside_and_restored_after_even_on_failure() -> None:
    before = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with pytest.raises(KeyError), isolated_rng(torch.device("cpu"), 5):
            draws.append(torch.rand(3))
            raise KeyError
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(torch.get_rng_state(), before)
