"""Quadratic clients with a known optimum: the numerical proof of an algorithm.

    f_i(x) = (x - m_i)^T A_i (x - m_i) / 2,    eigenvalues of A_i uniform in [0.2, 5]

Sample counts are log-normal and give the weights w_i, so the exact optimum of sum_i w_i f_i is one
linear solve away. The minima m_i scatter around it far more widely than it lies from the start (by
`spread`): the clients disagree strongly, and an algorithm that weighs them wrongly cannot come close.
"""

import numpy as np

from fedecado.common.layout import Layout, Vector
from fedecado.server.federation import Offer, Result
from fedecado.simulator.fleet import Profile


class Quadratics:
    """Full-gradient descent on `clients` quadratics in `size` dimensions."""

    def __init__(self, clients: int, size: int = 10, spread: float = 15.0, seed: int = 0) -> None:
        draw = np.random.default_rng((seed, 2))
        bases, _ = np.linalg.qr(draw.standard_normal((clients, size, size)))
        eigenvalues = draw.uniform(0.2, 5.0, (clients, 1, size))
        self.A = (bases * eigenvalues) @ bases.transpose(0, 2, 1)
        self.samples = [int(n) for n in np.ceil(1000 * draw.lognormal(0.0, 0.5, clients))]
        self.optimum: Vector = draw.standard_normal(size)
        minima = spread * draw.standard_normal((clients, size))
        self._minima = minima + self.optimum - self._weighted_optimum(minima)
        self._pulls = np.einsum("nij,nj->ni", self.A, self._minima)
        self._curvatures = np.trace(self.A, axis1=1, axis2=2) / size
        self.layout = Layout.flat(size, "float64")

    def initial(self) -> Vector:
        return np.zeros(self.layout.size)

    def gradient(self, client: int, x: Vector) -> Vector:
        """The gradient of f_i."""
        return np.asarray(self.A[client] @ x - self._pulls[client])

    def train(self, client: int, offer: Offer, profile: Profile) -> Result:
        """One full-gradient step per epoch."""
        eta, mu = profile.rate, offer.assignment.pull
        x_start, x = offer.state, offer.state.copy()
        # The step is affine; what does not change over the window is added up once.
        matrix = eta * (self.A[client] + mu * np.eye(len(x)))
        constant = eta * (self._pulls[client] + mu * x_start)
        drift, rest = offer.assignment.drift, offer.assignment.after * eta * profile.epochs
        if drift is not None:
            constant = constant + eta * drift
        time = eta * profile.epochs / offer.weight
        with np.errstate(over="ignore", invalid="ignore"):  # a rate too large diverges; the centre refuses it
            for _ in range(profile.epochs):
                x -= matrix @ x - constant
            before, after = (self._loss(client, at) for at in (x_start, x))
            if drift is not None and rest:
                x += rest * drift
        return Result(x, time, float(self._curvatures[client]), profile.epochs, before, after)

    def evaluate(self, state: Vector) -> dict[str, float]:
        """`distance`: how far the state is from the exact weighted optimum, relative to its length."""
        gap = float(np.linalg.norm(state - self.optimum) / np.linalg.norm(self.optimum))
        weights = np.asarray(self.samples) / np.mean(self.samples)
        loss = float(weights @ [self._loss(i, state) for i in range(len(weights))] / len(weights))
        return {"distance": gap, "loss": loss}

    def _loss(self, client: int, x: Vector) -> float:
        gap = x - self._minima[client]
        return float(gap @ self.A[client] @ gap / 2)

    def _weighted_optimum(self, minima: Vector) -> Vector:
        weights = np.asarray(self.samples, np.float64)
        left = np.tensordot(weights, self.A, 1)
        right = np.einsum("n,nij,nj->i", weights, self.A, minima)
        return np.asarray(np.linalg.solve(left, right))
