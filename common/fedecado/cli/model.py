"""Download a run's model, or look into a model file.

Files are safetensors: every framework reads them and loading one runs no code. In torch:
  from fedecado.client.load import load_into
  model = load_into(MyModel(), "model.safetensors")

Examples:
  fedecado model download -o model.safetensors          the newest version
  fedecado model download --best -o best.safetensors    the one with the best evaluation
  fedecado model inspect best.safetensors
"""

import argparse
from pathlib import Path

from fedecado.cli.admin import add_coordinator
from fedecado.cli.model_download import download
from fedecado.cli.model_inspect import inspect
from fedecado.cli.subcommands import run_subcommand, subcommands

DOWNLOAD = """Download a model version as a safetensors file.

The file appears complete or not at all, and an older one of that name stays until then.

Examples:
  fedecado model download -o model.safetensors
  fedecado model download --best -o best.safetensors
  fedecado model download --version 40 -o models/v40.safetensors --coordinator fl.example.org:50051
"""

INSPECT = """Look into a model file: its tensors, their norms, where it comes from, and whether it is sound.

Exits with 1 when a number is not finite, so that a script can refuse such a model.

Examples:
  fedecado model inspect model.safetensors
  fedecado model inspect model.safetensors --json | jq .parameters
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = subcommands(parser, "download | inspect")
    get = actions.add_parser("download", help="fetch a version from the coordinator", description=DOWNLOAD)
    get.set_defaults(action=download)
    which = get.add_mutually_exclusive_group()
    which.add_argument("--best", action="store_true", help="the version with the best evaluation")
    which.add_argument("--version", type=int, metavar="N", help="this version (default: the newest)")
    get.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="file to write")
    add_coordinator(get)
    look = actions.add_parser("inspect", help="show what a model file holds", description=INSPECT)
    look.set_defaults(action=inspect)
    look.add_argument("file", type=Path, metavar="FILE", help="safetensors file")
    look.add_argument("--json", action="store_true", help="print JSON")


def run(_: None, args: argparse.Namespace) -> int:
    return run_subcommand(args)
