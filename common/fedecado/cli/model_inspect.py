"""`fedecado model inspect`: what a model file holds, and whether it is sound."""

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedecado.cli.picture import show
from fedecado.cli.plain import clean, nbytes
from fedecado.common.layout import Entry, Kind, Layout, Vector
from fedecado.common.model_file import load_model


@dataclass(frozen=True, slots=True)
class Summary:
    """One tensor; norm and range are None unless all its numbers are finite."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    size: int
    norm: float | None
    least: float | None
    most: float | None
    non_finite: int


def inspect(args: argparse.Namespace) -> int:
    layout, state, metadata = load_model(args.file)
    tensors = layout.unpack(state)
    summaries = [_summary(entry, tensors[entry.name]) for entry in layout.entries]
    if args.json:
        content = {
            "file": str(args.file),
            "dtype": layout.dtype,
            "digest": layout.digest,
            "parameters": layout.parameters,
            "bytes": layout.nbytes,
            "sound": all(summary.non_finite == 0 for summary in summaries),
            "metadata": metadata,
            "tensors": [asdict(summary) for summary in summaries],
        }
        sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
    else:
        show(_picture(layout, summaries, metadata))
    return 1 if any(summary.non_finite for summary in summaries) else 0


def _summary(entry: Entry, values: Vector) -> Summary:
    flat = values.reshape(-1)
    non_finite = flat.size - int(np.count_nonzero(np.isfinite(flat)))
    norm = least = most = None
    if not non_finite:
        # einsum adds up in float64 piece by piece; np.linalg.norm would convert a copy of the whole.
        norm = math.sqrt(np.einsum("i,i->", flat, flat, dtype=np.float64))
        least, most = (float(flat.min()), float(flat.max())) if flat.size else (None, None)
    return Summary(entry.name, entry.kind, entry.shape, entry.size, norm, least, most, non_finite)


def _picture(layout: Layout, summaries: list[Summary], metadata: dict[str, str]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("tensor", overflow="fold")
    for name in ("kind", "shape", "numbers", "norm", "least", "most"):
        table.add_column(name, justify="left" if name in ("kind", "shape") else "right", no_wrap=True)
    for summary in summaries:
        shape = " x ".join(map(str, summary.shape)) or "scalar"
        numbers = [_number(value) for value in (summary.norm, summary.least, summary.most)]
        style = "bold red" if summary.non_finite else ""
        table.add_row(
            Text(clean(summary.name)), summary.kind, shape, f"{summary.size:,}", *numbers, style=style
        )
    facts = Table.grid(padding=(0, 2))
    for name in sorted(metadata):
        facts.add_row(Text(clean(name), style="bold"), Text(clean(metadata[name])))
    facts.add_row(Text("layout", style="bold"), layout.digest)
    buffers = layout.size - layout.parameters
    total = f"{layout.parameters:,} parameters and {buffers:,} numbers in buffers, {layout.dtype}, "
    return Group(facts, Text(), table, Text(), Text(total + nbytes(layout.nbytes)), _verdict(summaries))


def _verdict(summaries: list[Summary]) -> Text:
    bad = [summary for summary in summaries if summary.non_finite]
    if not bad:
        return Text("all numbers are finite", style="green")
    count = sum(summary.non_finite for summary in bad)
    names = ", ".join(clean(summary.name) for summary in bad[:5])
    return Text(f"{count:,} numbers are NaN or infinite, in {names}; do not use this model", style="bold red")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
