"""Bad clients in real training: two of ten send the opposite of their work, and labels are skewed."""

from benchmarks.robustness import Cell, accuracy
from fedecado.server.algorithms import Options

ROUNDS = 20


def reached(bad: int, defence: str, solver: Options | None = None) -> float:
    return accuracy(Cell(1.0, 0, "fedecado", bad, "flipped", defence), ROUNDS, solver)


def test_two_liars_of_ten_cost_little_and_honest_clients_with_skewed_labels_nothing() -> None:
    honest = reached(0, "none", Options(memory=0.0))  # as it is where responses are listened to
    assert reached(0, "response") == honest, "nobody is taken for a liar because of its labels"
    assert reached(2, "response") > honest - 0.03
    assert reached(2, "none") < 0.2, "the attack is one"
