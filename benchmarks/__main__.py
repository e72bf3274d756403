"""`python -m benchmarks [NAME ...] [--quick]`: run the named benchmarks, or all.

`python -m benchmarks report` writes what was measured into docs/performance.md.
"""

import argparse
import time
import traceback
from importlib import import_module

from benchmarks import harness, summary

NAMES = (
    *("central", "central_total", "scaling"),
    *("control", "upload", "broadcast", "startup", "memory", "formats"),
    *("simulate", "flower", "nvflare"),
    *("durability", "robustness"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*NAMES, "report", []], metavar="NAME", help=", ".join(NAMES)
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats")
    chosen = parser.parse_args()
    if chosen.quick:
        harness.RESULTS /= "quick"  # not among those that are reported
    failed = [name for name in chosen.names or NAMES if not _ran(name, chosen.quick)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _ran(name: str, quick: bool) -> bool:
    """Run one; the others run even if it fails."""
    if name == "report":
        summary.write()
        return True
    began = time.monotonic()
    try:
        import_module(f"benchmarks.{name}").run(quick)
    except (Exception, SystemExit):
        traceback.print_exc()
        return False
    print(f"{name} took {time.monotonic() - began:.0f} s", flush=True)
    return True


main()
