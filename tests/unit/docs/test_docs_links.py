"""What the documentation prints is true: links lead somewhere, commands and settings exist, code compiles."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from fedecado.cli.main import COMMANDS, main
from fedecado.common.fields import settings_of
from fedecado.common.sections import Everything
from fedecado.common.settings import load

ROOT = Path(__file__).parents[3]
PAGES = sorted(page for folder in (ROOT, ROOT / "docs", ROOT / "deploy") for page in folder.glob("*.md"))
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    return [
        Block(name, *found)
        for name, page in zip(NAMES, PAGES, strict=True)
        for found in _FENCE.findall(page.read_text("utf-8"))
        if found[0] in languages
    ]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


def inline_code() -> Iterator[tuple[str, str]]:
    """Every code span, with the page it stands on; table cells escape their bars."""
    for name, page in zip(NAMES, PAGES, strict=True):
        for code in _INLINE.findall(prose(page)):
            yield name, code.replace("\\|", "|")


def command_lines() -> Iterator[tuple[str, str]]:
    """Every line that runs fedecado, from shell blocks and from code spans."""
    for block in blocks("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if re.search(r"\bfedecado [a-z-]", line):
                yield block.page, line
    for page, code in inline_code():
        if re.match(r"fedecado [a-z-]", code) and " listens on " not in code:
            yield page, code


def words(line: str) -> list[list[str]]:
    """The arguments of each `fedecado` call of a shell line."""
    calls: list[list[str]] = []
    within = False
    for word in shlex.split(line, comments=True):
        if word in ("|", "&&", "||", ";", ">"):
            within = False
        elif word == "fedecado":
            calls.append([])
            within = True
        elif within:
            calls[-1].append(word)
    return calls


@cache
def flags_of(*command: str) -> frozenset[str]:
    """The flags that a command's --help lists."""
    with redirect_stdout(StringIO()) as shown:
        assert main([*command, "--help"]) == 0
    heads = re.findall(r"^  (-\S*.*?)(?: {2,}|$)", shown.getvalue(), re.MULTILINE)
    return frozenset(flag for head in heads for flag in re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", head))


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        assert target.is_relative_to(ROOT), f"{page.name} links to {link}, outside the project"
        if anchor:
            assert anchor in anchors_of(target), f"{page.name} links to {link}; {path} has no such heading"


def test_commands_exist_and_have_the_flags_they_are_shown_with() -> None:
    for page, line in command_lines():
        for name, *rest in words(line):
            if name.startswith("-"):
                assert name in ("--help", "--version"), f"{page}: {line}"
                continue
            assert name in COMMANDS, f"{page}: {line}: there is no command {name!r}"
            command = [name, *rest[:1]] if name in ("certs", "model", "store", "tokens") and rest else [name]
            for word in rest:
                flag = word.partition("=")[0]
                if re.match(r"--?[A-Za-z]", flag):
                    assert flag in flags_of(*command), f"{page}: {line}: fedecado {name} has no {flag}"


def test_every_command_is_shown_somewhere() -> None:
    guides = [line for page, line in command_lines() if page.startswith(("README", "docs/"))]
    shown = {call[0] for line in guides for call in words(line) if call}
    assert not COMMANDS.keys() - shown, "neither README nor docs show these commands"


def test_every_page_can_be_reached_from_the_readme() -> None:
    readme = ROOT / "README.md"
    seen, todo = {readme}, [readme]
    while todo:
        page = todo.pop()
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(prose(page))}
        fresh = {target for target in targets & set(PAGES) if target not in seen}
        seen |= fresh
        todo += fresh
    assert not set((ROOT / "docs").glob("*.md")) - seen, "no way leads from the README to these pages"


def test_flags_named_in_passing_exist() -> None:
    known = frozenset().union(
        *(flags_of(name) for name in COMMANDS),
        *(flags_of(*sub) for sub in (("model", "download"), ("model", "inspect"), ("tokens", "create"))),
    )
    for page, code in inline_code():
        for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", code if code.startswith("--") else ""):
            assert flag in known, f"{page} names {flag}, which no command has"


def test_settings_named_in_passing_exist() -> None:
    known = settings_of(Everything)
    sections = {name.partition(".")[0] for name in known}
    for page, code in inline_code():
        name = re.fullmatch(r"([a-z]+\.[a-z_]+)( = .+)?", code)
        # File names have a dot, too.
        if (
            name
            and name[1].partition(".")[0] in sections
            and name[1].partition(".")[2] not in ("md", "py", "sqlite")
        ):
            assert name[1] in known, f"{page} names {name[1]}, which is no setting"


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.page)
def test_python_blocks_compile(block: Block) -> None:
    compile(block.text, block.page, "exec")


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.page)
def test_configuration_blocks_are_valid_settings(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "fedecado.toml"
    file.write_text(block.text, encoding="utf-8")
    given = tomllib.loads(block.text)
    origin = load(Everything, file=file, env={}).origin
    for section, values in given.items():
        assert all(origin[f"{section}.{name}"] == str(file) for name in values)


def test_the_bring_your_own_example_is_short_and_the_first_of_its_kind() -> None:
    """Another test runs the README's first block that makes a Task; it must be this one."""
    first = next(b.text for b in blocks("python") if b.page == "README.md" and "Task(" in b.text)
    assert "def make(" in first
    assert len(first.strip().splitlines()) <= 20


def test_images_are_well_formed_and_described() -> None:
    for image in (ROOT / "docs" / "images").glob("*.svg"):
        root = ElementTree.parse(image).getroot()  # noqa: S314 - our own file
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
