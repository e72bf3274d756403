"""Clipping and Gaussian noise on what a worker sends, and the account of what that gives away.

A release is the parameters x_start + clip(x_end - x_start) + N(0, (z C)^2), with C the longest displacement
and z the noise multiplier. Whatever data the worker holds instead, the clipped displacement moves by 2 C at
most, so a release is the Gaussian mechanism with multiplier z / 2, and k of them one with z / (2 sqrt(k)).
"""

import json
import logging
import math
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from fedecado.common.errors import ConfigError, TaskError
from fedecado.common.layout import Vector

logger = logging.getLogger(__name__)

_BLOCK: Final = 1 << 18
"""Numbers that are given noise at a time, so that it needs little memory of its own."""


@dataclass(frozen=True, slots=True)
class Noise:
    """C and z: how much of an update is sent, and how much noise with it."""

    clip: float
    multiplier: float

    def add(self, start: Vector, end: Vector, chance: np.random.Generator) -> Vector:
        """The parameters to send instead of `end`."""
        moved: Vector = np.subtract(end, start)
        length = float(np.sqrt(sum(float(np.dot(part, part)) for part in _blocks(moved))))
        if length > self.clip:
            moved *= moved.dtype.type(self.clip / length)
        sigma = self.multiplier * self.clip
        for part in _blocks(moved):
            np.add(part, sigma * chance.standard_normal(len(part)), out=part, casting="same_kind")
        moved += start
        return moved


def _blocks(vector: Vector) -> list[Vector]:
    return [vector[at : at + _BLOCK] for at in range(0, len(vector), _BLOCK)]


def fresh_chance() -> np.random.Generator:
    """Randomness that no setting repeats: whoever knows the noise can take it off."""
    return np.random.Generator(np.random.PCG64DXSM(secrets.randbits(128)))


@final
class Account:
    """What all releases together give away; kept in a file if there is one, so that restarts count on."""

    def __init__(self, delta: float, budget: float | None = None, record: Path | None = None) -> None:
        self.delta, self._budget, self._record = delta, budget, record
        self.releases = 0
        self._spent = 0.0
        """The sum of 1 / z_i^2 over the releases' Gaussian mechanisms."""
        if record is not None and record.exists():
            self.releases, self._spent = _read(record)

    @property
    def epsilon(self) -> float:
        """With `delta`, the differential privacy of everything released so far."""
        return self._epsilon(self._spent)

    def spend(self, multiplier: float) -> None:
        """Count one release before it happens; TaskError, and nothing is counted, if the budget is spent."""
        spent = self._spent + (2.0 / multiplier) ** 2
        if self._budget is not None and self._epsilon(spent) > self._budget:
            raise TaskError(
                f"another update would bring epsilon to {self._epsilon(spent):.3g}, beyond privacy.budget = "
                f"{self._budget:g}; {self.releases} are sent"
            )
        self.releases, self._spent = self.releases + 1, spent
        if self._record is not None:
            _write(self._record, self.releases, self._spent)

    def describe(self) -> str:
        """The account in words."""
        return (
            f"{self.releases} updates released; epsilon is {self.epsilon:.3g} at delta {self.delta:g}, "
            "for all the data of this worker against whoever sees its updates"
        )

    def _epsilon(self, spent: float) -> float:
        return 0.0 if spent == 0 else _gaussian_epsilon(1 / math.sqrt(spent), self.delta)


@final
class Guard:
    """A worker's privacy: noise with its account."""

    def __init__(self, noise: Noise, account: Account) -> None:
        _accounting()  # a missing library is to be found before anything is trained
        self._noise, self.account = noise, account
        self._chance = fresh_chance()

    def release(self, start: Vector, end: Vector, parameters: int) -> Vector:
        """The state to send. Buffers stay as they came: noise on a variance may make it negative."""
        self.account.spend(self._noise.multiplier)
        sent: Vector = start.copy()
        sent[:parameters] = self._noise.add(start[:parameters], end[:parameters], self._chance)
        logger.info("privacy: %s", self.account.describe())
        return sent


def _accounting() -> Any:
    try:
        from dp_accounting import gaussian_mechanism
    except ModuleNotFoundError as error:
        raise ConfigError(f"privacy needs {error.name}; install fedecado[privacy]") from error
    return gaussian_mechanism


def _gaussian_epsilon(multiplier: float, delta: float) -> float:
    """Exact for the Gaussian mechanism, and so for any number of them one after the other."""
    return float(_accounting().get_epsilon_gaussian(multiplier, delta))


def _read(record: Path) -> tuple[int, float]:
    try:
        saved = json.loads(record.read_text(encoding="utf-8"))
        releases, spent = int(saved["releases"]), float(saved["spent"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"the privacy record {record} cannot be read ({error}); without it the account would start anew: "
            "restore it, or name another file if that is meant"
        ) from error
    if releases < 0 or not 0 <= spent < math.inf:
        raise ConfigError(f"the privacy record {record} says {saved!r}, which cannot be; restore it")
    return releases, spent


def _write(record: Path, releases: int, spent: float) -> None:
    aside = record.with_name(f"{record.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps({"releases": releases, "spent": spent}))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(record)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise TaskError(
            f"the privacy record {record} cannot be written ({error}); nothing is sent"
        ) from error
