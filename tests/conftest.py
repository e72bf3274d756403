"""Settings for all tests."""

import os

# Tests run beside each other and on small matrices: threads of BLAS only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
