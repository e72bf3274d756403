"""A small LSTM that predicts the next symbol of a text."""

import torch
from torch import Tensor, nn

from fedecado.client.device import isolated_rng


class NextSymbol(nn.Module):
    """Embedding, one LSTM layer and a linear layer: logits of the next symbol after every symbol.

    Symbols run along dimension 1; the logits' classes do, too, as cross-entropy expects them.
    """

    def __init__(self, symbols: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.head = nn.Linear(hidden, symbols)

    def forward(self, text: Tensor) -> Tensor:
        outputs, _ = self.lstm(self.embedding(text))
        logits: Tensor = self.head(outputs)
        return logits.transpose(1, 2)


def next_symbol(symbols: int, seed: int, embedding: int = 16, hidden: int = 64) -> NextSymbol:
    """The model with weights from `seed`."""
    with isolated_rng(torch.device("cpu"), seed):
        return NextSymbol(symbols, embedding, hidden)
