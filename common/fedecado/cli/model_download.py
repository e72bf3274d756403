"""`fedecado model download`: a model version from the coordinator into a file."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from fedecado.cli.admin import Admin
from fedecado.cli.plain import clean, nbytes, scores
from fedecado.common.errors import ChecksumError, ConfigError, ProtocolError
from fedecado.common.layout import Layout, Vector
from fedecado.common.model_file import save_model
from fedecado.common.wire import BulkChunk, Receiver
from fedecado.v1 import admin_pb2 as pb

Pieces = Iterator[pb.GetModelResponse | BulkChunk]

_BAR_BYTES = 16_000_000
"""Smaller models arrive before a bar could be read."""


def download(args: argparse.Namespace) -> int:
    request = _request(args)
    _check_place(args.output)
    with Admin.of(args) as admin:
        pieces = admin.model(request)
        header = _header(pieces)
        layout = _layout(header)
        with _bar(header.state_bytes) as advance:
            state = _receive(pieces, header, layout, advance)
    metrics = dict(header.evaluation.metrics)
    metadata = {
        "run_id": header.run_id,
        "run_name": header.run_name,
        "version": str(header.model_version),
        "metrics": json.dumps(metrics, sort_keys=True),
    }
    save_model(args.output, layout, state, metadata)
    measured = f", {scores(metrics)}" if metrics else ""
    sys.stdout.write(
        f"wrote {args.output}: version {header.model_version} of {clean(header.run_name)}, "
        f"{nbytes(header.state_bytes)}{measured}\n"
    )
    return 0


def _request(args: argparse.Namespace) -> pb.GetModelRequest:
    if args.version is None:
        choice = pb.GetModelRequest.CHOICE_BEST if args.best else pb.GetModelRequest.CHOICE_LAST
        return pb.GetModelRequest(choice=choice)
    if not 0 <= args.version < 1 << 64:
        raise ConfigError(f"--version is {args.version}; versions are counted from 0")
    return pb.GetModelRequest(version=args.version)


def _check_place(output: Path) -> None:
    """Before the download, not after it."""
    if output.is_dir() or not output.parent.is_dir():
        what = "is a folder" if output.is_dir() else f"lies in {output.parent}, which is no folder"
        raise ConfigError(f"--output {output} {what}; name a file in a folder that exists")


def _header(pieces: Pieces) -> pb.ModelHeader:
    first = next(pieces, None)
    if not isinstance(first, pb.GetModelResponse) or first.WhichOneof("content") != "header":
        raise ProtocolError("the coordinator sent no model header; install the same fedecado on both sides")
    return first.header


def _layout(header: pb.ModelHeader) -> Layout:
    layout = Layout.from_json(header.layout_json)
    if layout.digest != header.layout_digest or layout.nbytes != header.state_bytes:
        raise ProtocolError(
            f"{header.state_bytes} bytes of layout {header.layout_digest[:12]} are announced, but "
            f"the layout it sent is {layout.digest[:12]} of {layout.nbytes} bytes; try again"
        )
    return layout


def _receive(
    pieces: Pieces, header: pb.ModelHeader, layout: Layout, advance: Callable[[int], None]
) -> Vector:
    receiver = Receiver(header.state_bytes, layout.dtype, max_bytes=layout.nbytes)
    for piece in pieces:
        if isinstance(piece, BulkChunk):
            receiver.add(piece)
            advance(receiver.received)
        elif piece.WhichOneof("content") == "trailer":
            return receiver.finish(piece.trailer)
    raise ChecksumError(
        f"the download ended after {receiver.received} of {header.state_bytes} bytes; try again"
    )


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """A function that takes the bytes so far; it shows them when that is worth it."""
    console = Console(stderr=True)
    if total < _BAR_BYTES or not console.is_terminal:
        yield lambda received: None
        return
    columns = (DownloadColumn(), BarColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda received: progress.update(task, completed=received)
