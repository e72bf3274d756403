"""What is compared: a grid of settings, algorithms and seeds, read from a TOML file.

    title = "..."                   what the report is called
    target = "accuracy>=0.8"        for rounds-to-target
    seeds = 5                       0 to 4, or a list
    [base]                          settings of every run, as in fedecado.toml
    [settings.NAME]                 what a setting changes; several are run one after the other
    [algorithms.NAME]               what an algorithm changes; `run.algorithm` is NAME unless said
    [tune.NAME]                     lists of values per setting name: the grid that NAME is tuned over
    [sizes.SIZE]                    for --size SIZE: `base` is laid over the file's, all else replaces it

Later tables win: base, setting, algorithm, and then whatever the user gave on the command line.
"""

import itertools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, get_args

from fedecado.common.errors import ConfigError
from fedecado.common.names import AlgorithmName
from fedecado.common.target import Target
from fedecado.common.wording import did_you_mean

Values = Mapping[str, Any]
"""Settings by dotted name."""

TUNED = "-tuned"
_KEYS = ("title", "target", "seeds", "base", "settings", "algorithms", "tune", "sizes")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the grid."""

    setting: str
    algorithm: str
    seed: int
    values: Values

    @property
    def name(self) -> str:
        return f"{self.setting}--{self.algorithm}--{self.seed}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A comparison; every table's values are by dotted name."""

    title: str
    seeds: tuple[int, ...] = (0,)
    target: Target | None = None
    base: Values = field(default_factory=dict)
    settings: Mapping[str, Values] = field(default_factory=lambda: {"all": {}})
    algorithms: Mapping[str, Values] = field(default_factory=dict)
    grids: Mapping[str, tuple[Values, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, size: str | None = None) -> Self:
        """The experiment in a file, at one of the sizes it knows."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"cannot read the experiment {path}: {error}") from error
        return cls.parse(content, str(path), size)

    @classmethod
    def parse(cls, content: Mapping[str, Any], name: str, size: str | None = None) -> Self:
        for key in content:
            if key not in _KEYS:
                raise ConfigError(f"{name} has no use for {key!r}{did_you_mean(key, _KEYS)}")
        sizes = content.get("sizes", {})
        if size is not None and size not in sizes:
            raise ConfigError(f"{name} knows no size {size!r}; it has: {', '.join(sizes) or 'only one'}")
        whole = content if size is None else _at_size(content, sizes[size])
        target = whole.get("target")
        return cls(
            title=str(whole.get("title", Path(name).stem)),
            seeds=_seeds(whole.get("seeds", 1), name),
            target=None if target is None else Target.parse(target),
            base=flat(whole.get("base", {})),
            settings={key: flat(table) for key, table in whole.get("settings", {"all": {}}).items()},
            algorithms={key: _algorithm(key, table) for key, table in whole.get("algorithms", {}).items()},
            grids={key: _points(flat(table), name) for key, table in whole.get("tune", {}).items()},
        )

    def only(
        self,
        algorithms: list[str] | None,
        seeds: tuple[int, ...] | None,
        settings: list[str] | None = None,
    ) -> Self:
        """The same with some algorithms, or others by their own names, other seeds, some of the settings."""
        chosen = self.algorithms
        if algorithms is not None:
            chosen = {name: self.algorithms.get(name) or _algorithm(name, {}) for name in algorithms}
        if not chosen:
            raise ConfigError("nothing to compare; name some with --algorithms fedecado,fedavg")
        for name in settings or ():
            if name not in self.settings:
                has = ", ".join(self.settings)
                raise ConfigError(f"there is no setting {name!r} in this experiment; it has: {has}")
        places = self.settings if settings is None else {name: self.settings[name] for name in settings}
        return replace(self, algorithms=chosen, seeds=self.seeds if seeds is None else seeds, settings=places)

    def cells(self, given: Values) -> Iterator[Cell]:
        """Every run, seed by seed, so that what is done early is a fair sample of all."""
        for seed, (setting, own), (algorithm, knobs) in itertools.product(
            self.seeds, self.settings.items(), self.algorithms.items()
        ):
            values = {**self.base, **own, **knobs, **given, "run.seed": seed}
            yield Cell(setting, algorithm, seed, values)


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted names."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _algorithm(name: str, table: Mapping[str, Any]) -> Values:
    """An algorithm's values; a name that is none of ours must say which it is."""
    values = flat(table)
    known = get_args(AlgorithmName)
    if values.setdefault("run.algorithm", name) not in known:
        raise ConfigError(
            f"there is no algorithm {values['run.algorithm']!r}{did_you_mean(name, known)} "
            "(a variant of one says so with run.algorithm in its table)"
        )
    return values


def _points(grid: Values, name: str) -> tuple[Values, ...]:
    """Every combination of the values of a grid."""
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{name}: tune {key} is {values!r}; it must be a list of values to try")
    return tuple(dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values()))


def _seeds(value: Any, name: str) -> tuple[int, ...]:
    if type(value) is int and value >= 1:
        return tuple(range(value))
    if isinstance(value, list) and value and all(type(seed) is int and seed >= 0 for seed in value):
        return tuple(dict.fromkeys(value))
    raise ConfigError(f"{name}: seeds is {value!r}; it must be a number of seeds or a list of them")


def _at_size(content: Mapping[str, Any], size: Mapping[str, Any]) -> dict[str, Any]:
    base = {**flat(content.get("base", {})), **flat(size.get("base", {}))}
    return {**content, **size, "base": base}
