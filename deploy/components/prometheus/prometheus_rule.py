"""Wrap alerts.yaml, which Prometheus itself reads, into rule.yaml for the Prometheus operator.

`--check` writes nothing and fails when rule.yaml is not what it should be.
"""

import sys
from pathlib import Path
from textwrap import indent

HERE = Path(__file__).parent
SOURCE, RULE = HERE / "alerts.yaml", HERE / "rule.yaml"
HEAD = """\
# Made from alerts.yaml by prometheus_rule.py; change that file and run it.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: fedecado
spec:
"""


def main() -> int:
    wanted = HEAD + indent(SOURCE.read_text(encoding="utf-8"), "  ")
    if "--check" not in sys.argv[1:]:
        RULE.write_text(wanted, encoding="utf-8")
        return 0
    if RULE.is_file() and RULE.read_text(encoding="utf-8") == wanted:
        return 0
    sys.stderr.write(f"{RULE} is out of date; run python {Path(__file__).name}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
