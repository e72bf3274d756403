"""A cable on which packets take their time: two TAP devices in two namespaces, and a process between them.

`python netns_delay.py NAMESPACE DEVICE OTHER_NAMESPACE SECONDS`; the other device is eth0. Says `ready`.
"""

import ctypes
import fcntl
import os
import selectors
import struct
import sys
import time
from collections import deque
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_FRAME = 65536


def tap(namespace: str, device: str) -> int:
    """A new TAP device in a namespace; what passes it is read and written here."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{namespace}").open("rb") as place:
        if libc.setns(place.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _TAP_WITHOUT_HEADER))
    return descriptor


def forward(one: int, other: int, delay: float) -> None:
    """Pass frames on, each `delay` after it came; for ever."""
    held: deque[tuple[float, int, bytes]] = deque()
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            wait = max(0.0, held[0][0] - time.monotonic()) if held else None
            for key, _ in selector.select(wait):
                held.append((time.monotonic() + delay, key.data, os.read(key.fd, _FRAME)))
            while held and held[0][0] <= time.monotonic():
                _, to, frame = held.popleft()
                try:
                    os.write(to, frame)
                except OSError:
                    continue  # the device is down, or its queue is full: the frame is lost, as frames are


if __name__ == "__main__":
    switch, port, host, seconds = sys.argv[1:]
    ends = tap(switch, port), tap(host, "eth0")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    forward(*ends, float(seconds))
