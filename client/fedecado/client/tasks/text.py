"""The next character of a text, by a small LSTM; each client holds a stretch of the text."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedecado.client import partition as deal
from fedecado.client.task import Role, Task
from fedecado.client.tasks.models.lstm import next_symbol
from fedecado.common.errors import ConfigError, DataError

_TEST_EVERY = 10


class _Text(NamedTuple):
    symbols: int
    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


def make(  # noqa: PLR0913 - the last four are the user's to choose from
    index: int,
    clients: int,
    seed: int,
    role: Role,
    *,
    file: str | None = None,
    partition: Literal["stretches", "iid"] = "stretches",
    length: int = 40,
    hidden: int = 64,
) -> Task:
    """Predict each next character of the text in `file`, in pieces of `length`.

    Every tenth piece is held out. A client's share is one stretch of the rest in the text's own order, so
    clients differ as chapters or authors do; "iid" mixes the pieces.
    """
    if partition not in ("stretches", "iid"):
        raise ConfigError(f"partition is {partition!r}; it must be stretches or iid")
    if length < 2:
        raise ConfigError(f"length is {length}; a piece needs 2 characters or more")
    text = _load(file, length)
    if role == "evaluator":
        data = text.test_inputs, text.test_targets
    else:
        mine = torch.from_numpy(_parts(len(text.inputs), clients, seed, partition)[index])
        data = text.inputs[mine], text.targets[mine]

    def evaluate(model: nn.Module) -> Mapping[str, float]:
        device = next(model.parameters()).device
        right = loss = 0.0
        for inputs, targets in zip(
            torch.split(text.test_inputs, 256), torch.split(text.test_targets, 256), strict=True
        ):
            logits, known = model(inputs.to(device)), targets.to(device)
            right += (logits.argmax(1) == known).sum().item()
            loss += functional.cross_entropy(logits, known, reduction="sum").item()
        return {"accuracy": right / text.test_targets.numel(), "loss": loss / text.test_targets.numel()}

    return Task(next_symbol(text.symbols, seed, hidden=hidden), data, evaluate=evaluate)


@lru_cache(maxsize=2)
def _load(file: str | None, length: int) -> _Text:
    if file is None:
        raise DataError("the text task needs a text; give it with --task-arg file=FILE (UTF-8)")
    try:
        letters = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the text {file}: {error}") from error
    symbols, codes = np.unique(np.array(list(letters)), return_inverse=True)
    pieces = (len(codes) - 1) // length
    if pieces < 2 * _TEST_EVERY:
        raise DataError(f"{file} has {len(codes)} characters; {2 * _TEST_EVERY * length + 1} are needed")
    whole = torch.from_numpy(codes[: pieces * length + 1].astype(np.int64))
    inputs, targets = whole[:-1].view(pieces, length), whole[1:].view(pieces, length)
    test = torch.arange(pieces) % _TEST_EVERY == 0
    return _Text(len(symbols), inputs[~test], targets[~test], inputs[test], targets[test])


def _parts(pieces: int, clients: int, seed: int, partition: str) -> list[deal.Indices]:
    if partition == "iid":
        return deal.iid(pieces, clients, np.random.default_rng(seed))
    if clients > pieces:
        raise DataError(f"{pieces} pieces of text cannot be dealt out to {clients} clients; use fewer")
    return [part.astype(np.int64) for part in np.array_split(np.arange(pieces), clients)]
