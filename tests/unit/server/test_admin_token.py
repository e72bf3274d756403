"""The operators' shared secret."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import ConfigError
from fedecado.server.coordinator.admin_token import LEAST, AdminToken

TOKEN = "s3cret-" * 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "admin.token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return file


def test_only_the_token_of_the_file_matches(path: Path) -> None:
    token = AdminToken.from_file(path)
    assert token.matches(TOKEN)
    for other in ("", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), f"{TOKEN}\n", "\udcff"):
        assert not token.matches(other)


@given(presented=st.text(max_size=80))
def test_no_other_text_matches(presented: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any.token"
    if not file.exists():
        file.write_text(TOKEN)
        file.chmod(0o600)
    assert AdminToken.from_file(file).matches(presented) is (presented == TOKEN)


def test_a_replaced_token_counts_without_a_restart(path: Path) -> None:
    token = AdminToken.from_file(path)
    renewed = path.with_name("new")
    renewed.write_text("another-" * 6)
    renewed.replace(path)
    assert token.matches("another-" * 6)
    assert not token.matches(TOKEN)


def test_nothing_matches_while_the_file_is_missing_or_too_short(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = AdminToken.from_file(path)
    path.unlink()
    assert not token.matches(TOKEN)
    path.write_text("short")
    assert not token.matches("short")
    assert "mended" in caplog.text
    assert TOKEN not in caplog.text
    path.write_text(TOKEN)
    assert token.matches(TOKEN)


@pytest.mark.parametrize("content", [b"", b"  \n", b"x" * (LEAST - 1), b"\xff" * 40])
def test_a_file_without_a_usable_token_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="tokens admin"):
        AdminToken.from_file(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.token"):
        AdminToken.from_file(tmp_path / "nowhere.token")


def test_a_file_that_everyone_can_read_is_warned_about(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.chmod(0o644)
    AdminToken.from_file(path)
    assert "chmod 600" in caplog.text
    caplog.clear()
    path.chmod(stat.S_IRUSR | stat.S_IRGRP)
    AdminToken.from_file(path)
    assert not caplog.text
