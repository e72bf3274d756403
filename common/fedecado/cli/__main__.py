"""`python -m fedecado.cli` is `fedecado`."""

import sys

from fedecado.cli.main import main

sys.exit(main())
