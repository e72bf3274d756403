"""How a run is computed: all that a replay needs beside the events."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self, get_args

from fedecado.common.errors import ConfigError, LayoutError, StoreError
from fedecado.common.layout import Layout
from fedecado.server.algorithms import Algorithm, AlgorithmName, Options, Robust, make_algorithm
from fedecado.server.rounds import Rules, Target

_BEFORE: Final = {"reach": "curvature", "horizon": "longest", "late": "alike", "memory": 0.0}
"""What runs were computed with before it could be chosen; they go on, and are replayed, like that."""


@dataclass(frozen=True)
class Recipe:
    """The model's layout, the algorithm with its knobs, and the rules of the rounds."""

    layout: Layout
    algorithm: AlgorithmName = "fedecado"
    rules: Rules = field(default_factory=Rules)
    solver: Options | None = None
    mu: float | None = None
    server_rate: float | None = None
    robust: Robust = field(default_factory=Robust)

    def make_algorithm(self) -> Algorithm[Any]:
        return make_algorithm(
            self.algorithm,
            solver=self.solver,
            mu=self.mu,
            server_rate=self.server_rate,
            robust=self.robust,
        )

    def require_same_run(self, stored: "Recipe") -> None:
        """Raise unless a run that was begun with `stored` can go on with this."""
        if self.algorithm != stored.algorithm:
            raise ConfigError(
                f"the run was begun with {stored.algorithm}, not {self.algorithm}; go on with that, or start "
                "a new run in another folder"
            )
        if self.layout.digest != stored.layout.digest:
            raise LayoutError(
                f"the run's layout is {stored.layout.digest[:12]} ({stored.layout.parameters} parameters), "
                f"not {self.layout.digest[:12]} ({self.layout.parameters}); start a new run in another folder"
            )

    def dump(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return {
            "layout": self.layout.to_json(),
            "algorithm": self.algorithm,
            "rules": asdict(self.rules),
            "solver": None if self.solver is None else asdict(self.solver),
            "mu": self.mu,
            "server_rate": self.server_rate,
            "robust": asdict(self.robust),
        }

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Self:
        """What `dump` gave; knobs that it lacks take their defaults, or what stood in their place."""
        try:
            rules, solver = dict(saved["rules"]), saved["solver"]
            target = rules.pop("target")
            if saved["algorithm"] not in get_args(AlgorithmName):
                raise ValueError(f"unknown algorithm {saved['algorithm']!r}")
            return cls(
                layout=Layout.from_json(saved["layout"]),
                algorithm=saved["algorithm"],
                rules=replace(Rules(**rules), target=None if target is None else Target(**target)),
                solver=None if solver is None else Options(**_known(solver)),
                mu=saved["mu"],
                server_rate=saved["server_rate"],
                robust=Robust(**saved.get("robust", {})),
            )
        except (KeyError, TypeError, ValueError, ConfigError, LayoutError) as error:
            raise StoreError(
                f"the stored description of the run cannot be read ({error}); it was written by another "
                "version of fedecado"
            ) from error


def _known(solver: dict[str, Any]) -> dict[str, Any]:
    """The knobs of a stored run; those that bounded the mean of a round go on with what took its place."""
    gone = {"reach": "length", "rho": 1.0} if solver.get("reach") == "mean" else {}
    return {**_BEFORE, **solver, **gone}
