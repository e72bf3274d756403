"""Where a worker computes, and the random numbers it draws there."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedecado.common.errors import ConfigError


def pick_device(name: str = "auto", local_index: int | None = None) -> torch.device:
    """The device called `name`: "auto", "cpu", "mps", "cuda" or "cuda:N".

    "auto" takes the first of CUDA, MPS and CPU that exists. Workers on one host pass their
    `local_index`, so that "auto" and "cuda" spread them over its GPUs.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if gpus else "mps" if mps else "cpu"
    if name == "cpu" or (name == "mps" and mps):
        return torch.device(name)
    if name == "cuda" and gpus:
        return torch.device("cuda", (local_index or 0) % gpus)
    kind, colon, number = name.partition(":")
    if kind == "cuda" and colon and number.isdecimal() and int(number) < gpus:
        return torch.device("cuda", int(number))
    there = ["cpu", *(["mps"] if mps else []), *(f"cuda:{i}" for i in range(gpus))]
    raise ConfigError(f"device {name!r} does not exist here; use auto or one of: {', '.join(there)}")


@contextmanager
def isolated_rng(device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's global generators inside the block and put them back as they were after it.

    Covers the CPU and, when `device` is one, that CUDA device.
    """
    cpu = torch.default_generator
    before = cpu.get_state()
    on_cuda = device.type == "cuda"
    gpu_before = torch.cuda.get_rng_state(device) if on_cuda else None
    try:
        # Not torch.manual_seed: it would reseed every other accelerator of the process too.
        cpu.manual_seed(seed)
        if on_cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
    finally:
        cpu.set_state(before)
        if gpu_before is not None:
            torch.cuda.set_rng_state(gpu_before, device)
