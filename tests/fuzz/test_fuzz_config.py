"""Any file, environment and flags: settings, or one ConfigError that says what is wrong."""

import tempfile
from pathlib import Path
from typing import Any

from hostile_messages import fuzz
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import ConfigError
from fedecado.common.fields import settings_of
from fedecado.common.sections import Everything
from fedecado.common.settings import load

KNOWN = settings_of(Everything)
NAMES = st.sampled_from(sorted(KNOWN)) | st.text(max_size=8)
TEXTS = st.sampled_from(["", "none", "-1", "0", "nan", "inf", "1e999", "all", "25%", "[1,2]", "true", "a,b"])
WILD = TEXTS | st.text(max_size=12) | st.integers().map(str) | st.floats().map(repr)
SAFE_CHARACTERS = st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00")


def _toml(pairs: list[tuple[str, str]], noise: str) -> str:
    lines = []
    for name, value in pairs:
        section, _, key = name.rpartition(".")
        lines.append(f"{section}.{key} = {value}" if section else f"{key} = {value}")
    return "\n".join([*lines, noise])


def settled(**sources: Any) -> None:
    try:
        loaded = load(Everything, known=Everything, **sources)
    except ConfigError as error:
        assert str(error)
        return
    assert set(loaded.origin) == set(KNOWN)
    loaded.settings.model_dump(mode="json")


@fuzz(0.05)
@given(st.lists(st.tuples(NAMES, WILD), max_size=4), st.just("") | st.text(SAFE_CHARACTERS, max_size=20))
def test_a_file_is_read_or_refused(pairs: list[tuple[str, str]], noise: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fedecado.toml"
        file.write_bytes(_toml(pairs, noise).encode("utf-8", "replace"))
        settled(file=file, env={})


@fuzz(0.05)
@given(st.dictionaries(NAMES, WILD, max_size=4), st.dictionaries(NAMES, WILD, max_size=4))
def test_environment_and_flags_are_read_or_refused(env: dict[str, str], flags: dict[str, str]) -> None:
    variables = {"FEDECADO_" + name.upper().replace(".", "__"): value for name, value in env.items()}
    settled(env=variables, flags=flags)
