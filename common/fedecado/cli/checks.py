"""What `fedecado doctor` looks at on this machine."""

import importlib
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

from fedecado.common.errors import ConfigError
from fedecado.common.sections import Everything
from fedecado.common.settings import load
from fedecado.common.sources import DEFAULT_FILE

Level = Literal["ok", "warn", "fail"]

# What each extra is for; those of developers are not checked.
_EXTRAS = {"server": "coordinators", "client": "workers", "report": "plots and Parquet results"}
_LOW_DISK, _FULL_DISK = 2_000_000_000, 100_000_000
_FEW_FILES, _OWN_FILES = 1024, 64
"""Descriptors that give a warning, and that a coordinator needs beside one per worker."""


class Check(NamedTuple):
    """The outcome of one check; `detail` ends with what to do unless all is well."""

    name: str
    level: Level
    detail: str


class _Requirement(NamedTuple):
    name: str
    floor: str
    cap: str | None
    extra: str | None

    def too_old(self, version: str) -> bool:
        return _release(version) < _release(self.floor)

    def too_new(self, version: str) -> bool:
        return self.cap is not None and _release(version) >= _release(self.cap)


def python() -> Check:
    floor = (metadata.metadata("fedecado")["Requires-Python"] or ">=3.11").removeprefix(">=")
    here = ".".join(map(str, sys.version_info[:3]))
    if _release(here) < _release(floor):
        return Check("python", "fail", f"{here} is too old; install Python {floor} or newer")
    return Check("python", "ok", here)


def packages() -> Iterator[Check]:
    """The packages that all need, then those of each extra."""
    requirements = list(_requirements())
    for extra in (None, *_EXTRAS):
        name = "packages" if extra is None else f"packages for {_EXTRAS[extra]}"
        install = "fedecado" if extra is None else f"'fedecado[{extra}]'"
        yield _group(name, [r for r in requirements if r.extra == extra], install, needed=extra is None)


def kernels() -> Check:
    """The compiled part of the coordinator."""
    from fedecado.server.numerics import native

    if (found := native.kernels()) is not None:
        return Check("compiled passes", "ok", f"for {found.level}")
    return Check(
        "compiled passes",
        "warn",
        "there are none, so a coordinator computes with numpy and takes twice as long for large models; "
        "install a C compiler (gcc), then fedecado again: pip install --force-reinstall --no-deps fedecado",
    )


def torch() -> Check:
    found = _import("torch")
    if isinstance(found, ModuleNotFoundError):
        return Check("torch", "warn", "not installed; workers need it: pip install 'fedecado[client]'")
    if isinstance(found, BaseException):
        return Check("torch", "fail", f"does not load ({_line(found)}); install it again")
    devices = ["cpu"]
    if found.cuda.is_available():
        devices += [f"cuda:{k} {found.cuda.get_device_name(k)}" for k in range(found.cuda.device_count())]
    if found.backends.mps.is_available():
        devices.append("mps")
    return Check("torch", "ok", f"{found.__version__}, devices: {', '.join(devices)}")


def torchvision() -> Check:
    found = _import("torchvision")
    if isinstance(found, ModuleNotFoundError) and found.name == "torchvision":
        return Check("torchvision", "ok", "not installed; only image tasks of your own may want it")
    if not isinstance(found, BaseException):
        return Check("torchvision", "ok", str(found.__version__))
    if "torchvision::nms" in str(found):
        return Check(
            "torchvision",
            "warn",
            "does not fit the installed torch (operator torchvision::nms does not exist): one of them is "
            "built for CPU and the other for CUDA, or their versions do not belong together; install both "
            "from one place: pip install --force-reinstall torch torchvision "
            "--index-url https://download.pytorch.org/whl/cpu",
        )
    return Check("torchvision", "warn", f"does not load ({_line(found)}); install it again or remove it")


def configuration(file: Path | None) -> tuple[Everything, Check]:
    """The settings, or the defaults when they are wrong."""
    try:
        settings = load(Everything, file=file).settings
    except ConfigError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        return Everything(), Check("configuration", "fail", " | ".join(lines))
    if file is None and not DEFAULT_FILE.is_file():
        return settings, Check("configuration", "ok", f"no {DEFAULT_FILE} here, the defaults hold")
    return settings, Check("configuration", "ok", f"{file or DEFAULT_FILE} is valid")


def disk(runs: Path) -> Check:
    """Room and permission where runs are kept."""
    folder = runs.absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Check("disk", "fail", f"{there} is no folder to write to; set run.directory to one that is")
    free = shutil.disk_usage(there).free
    text = f"{free / 1e9:.1f} GB free for {folder}"
    if free < _FULL_DISK:
        return Check("disk", "fail", f"{text}; make room, or set run.directory to another disk")
    if free < _LOW_DISK:
        return Check("disk", "warn", f"{text}; each client's flow takes as much as the model, make room")
    return Check("disk", "ok", text)


def open_files() -> Check:
    """A coordinator holds a descriptor per worker."""
    try:
        import resource
    except ImportError:
        return Check("open files", "ok", "not limited per process on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Check("open files", "ok", "no limit")
    text = f"limit {soft:,}, room for about {max(0, soft - _OWN_FILES):,} workers on one coordinator"
    if soft >= _FEW_FILES:
        return Check("open files", "ok", text)
    most = "as many as needed" if hard == resource.RLIM_INFINITY else f"{hard}"
    return Check("open files", "warn", f"{text}; raise it with ulimit -n (up to {most})")


def _group(name: str, requirements: list[_Requirement], install: str, *, needed: bool) -> Check:
    versions = {r.name: _version(r.name) for r in requirements}
    missing = [r.name for r in requirements if versions[r.name] is None]
    old = [
        f"{r.name} {v} is older than {r.floor}"
        for r in requirements
        if (v := versions[r.name]) and r.too_old(v)
    ]
    new = [
        f"{r.name} {v} is newer than tried" for r in requirements if (v := versions[r.name]) and r.too_new(v)
    ]
    if not (missing or old or new):
        return Check(name, "ok", ", ".join(f"{package} {version}" for package, version in versions.items()))
    problems = [*(f"{package} is not installed" for package in missing), *old, *new]
    level: Level = "fail" if old or (missing and needed) else "warn"
    return Check(name, level, f"{', '.join(problems)}; run pip install -U {install}")


def _requirements() -> Iterator[_Requirement]:
    """What the installed package says it needs, with its lower and upper bounds."""
    for text in metadata.requires("fedecado") or []:
        spec, _, marker = text.partition(";")
        name = re.match(r"[A-Za-z0-9._-]+", spec)
        floor, cap = re.search(r">=\s*([\d.]+)", spec), re.search(r"<\s*([\d.]+)", spec)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        foreign = "Windows" in marker and sys.platform == "win32"
        if name and floor and not foreign and (extra is None or extra[1] in _EXTRAS):
            yield _Requirement(name[0], floor[1], cap[1] if cap else None, extra[1] if extra else None)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, without zeros at the end: 2.6.0+cpu is (2, 6)."""
    leading = re.split(r"[^\d.]", version, maxsplit=1)[0]
    numbers = [int(part) for part in leading.split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _import(name: str) -> ModuleType | BaseException:
    """The module, or what importing it raised; broken packages raise anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except Exception as error:
            return error


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def certificate(path: Path) -> Check:
    """Whether a TLS certificate is still good for a while."""
    try:
        from fedecado.common.certificates import expiry
    except ModuleNotFoundError as error:
        return Check("certificate", "warn", f"cannot look into {path} without {error.name}")
    try:
        left = (expiry(path) - datetime.now(UTC)).days
    except ConfigError as error:
        return Check("certificate", "fail", str(error))
    if left < 0:
        return Check("certificate", "fail", f"{path} has expired; `fedecado certs issue` renews it")
    level: Level = "warn" if left < 14 else "ok"
    return Check("certificate", level, f"{path} is good for {left} more days")
