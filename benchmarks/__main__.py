"""`python -m benchmarks [NAME ...] [--quick]`: run the named benchmarks, or all."""

import argparse
from importlib import import_module

NAMES = (
    *("central", "central_total", "scaling"),
    *("control", "upload", "broadcast", "startup", "memory"),
    *("simulate", "flower", "nvflare"),
    *("durability", "robustness"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats")
    chosen = parser.parse_args()
    for name in chosen.names or NAMES:
        import_module(f"benchmarks.{name}").run(chosen.quick)


main()
