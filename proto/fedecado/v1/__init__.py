"""The wire protocol, version 1. Generated modules are committed; `python proto/generate.py` rewrites them."""

from typing import Final

# Hello and Welcome exchange these; their meaning is told at ProtocolVersion in session.proto.
PROTOCOL_MAJOR: Final = 1
PROTOCOL_MINOR: Final = 4
