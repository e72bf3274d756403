"""The comparisons of the FedECADO paper, and one of asynchronous algorithms, as experiment files."""

from pathlib import Path
from typing import Literal, get_args

from fedecado.common.errors import ConfigError
from fedecado.common.wording import did_you_mean
from fedecado.experiments.plan import Experiment

Preset = Literal["noniid", "async", "scaling", "buffered"]
PRESETS: tuple[str, ...] = get_args(Preset)


def preset(name: str, size: str | None = None) -> Experiment:
    """A preset at one of its sizes."""
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS) or f"; presets are {', '.join(PRESETS)}"
        raise ConfigError(f"there is no preset {name!r}{hint}; files end in .toml")
    return Experiment.read(Path(__file__).parent / f"{name}.toml", size)
