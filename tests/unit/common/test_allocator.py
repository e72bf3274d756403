"""Buffers of chunks that are used again instead of being mapped anew."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from fedecado.common.allocator import keep_chunk_buffers
if sys.argv[1] == "kept":
    assert keep_chunk_buffers()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
chunk = bytes(1 << 20)
def pass_by():
    received = [b"".join((b"header", chunk)) for _ in range(8)]
    del received
pass_by()
before = faults()
for _ in range(20):
    pass_by()
print(faults() - before)
"""


def _faults(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True)
    return int(ran.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the knobs are glibc's")
def test_chunks_that_come_and_go_touch_no_fresh_memory() -> None:
    pages = 20 * 8 * (1 << 20) // 4096
    assert _faults("kept") < pages / 100
    assert _faults("mapped") > pages / 4, "without the knobs there is nothing to be saved"
