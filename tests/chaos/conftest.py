"""The tools of the integration tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from processes import processes  # noqa: F401 - a fixture, found through the line above
