"""How both sides set up gRPC: keepalive in both directions, no limit on messages beyond a chunk's size.

The channel options are gRPC's own. Compression is off: floats do not compress, and a peer that may
send compressed messages may send bombs.
"""

from typing import Any, Final

import grpc

from fedecado.common.timeouts import Timeouts
from fedecado.common.tls import ClientTls
from fedecado.common.wire import CHUNK_BYTES

MESSAGE_BYTES: Final = 4 * CHUNK_BYTES
"""Largest message either side takes; the largest one sent is a chunk and its header."""

STREAMS_PER_CONNECTION: Final = 100
SPARE_CONNECTIONS: Final = 1000
"""For operators, and for those who are to be told that there is no room; beyond them gRPC closes the door."""
_UNCOMPRESSED: Final = 1
"""The bit of gRPC's algorithm "identity"."""

Options = list[tuple[str, Any]]


def _common(timeouts: Timeouts) -> Options:
    return [
        ("grpc.keepalive_time_ms", round(1000 * timeouts.keepalive)),
        ("grpc.keepalive_timeout_ms", round(1000 * timeouts.keepalive_answer)),
        # Without this an unanswered keepalive ping counts only after a minute.
        ("grpc.http2.ping_timeout_ms", round(1000 * timeouts.keepalive_answer)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
    ]


def server_options(timeouts: Timeouts, sessions: int = 10_000) -> Options:
    """Options of a coordinator's server with up to so many sessions."""
    return [
        *_common(timeouts),
        # gRPC measures a message only after it has unpacked it: compressed ones are refused as they come.
        ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED),
        # A worker needs one stream and an operator a few; connections without a call are let go.
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.max_connection_idle_ms", round(1000 * 4 * timeouts.stall)),
        ("grpc.server_handshake_timeout_ms", round(1000 * timeouts.answer)),
        ("grpc.max_allowed_incoming_connections", sessions + SPARE_CONNECTIONS),
        # Two coordinators on one port would share the workers between them.
        ("grpc.so_reuseport", 0),
        # Pings from workers are welcome as often as keepalive sends them.
        ("grpc.http2.min_ping_interval_without_data_ms", round(500 * timeouts.keepalive)),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def channel_options(timeouts: Timeouts) -> Options:
    """Options of a worker's or an operator's channel."""
    return [
        *_common(timeouts),
        # Reconnecting is the worker's own business: one connection, made when asked for.
        ("grpc.initial_reconnect_backoff_ms", round(1000 * timeouts.reconnect)),
        # gRPC takes this as the time a connection attempt may take, too.
        ("grpc.min_reconnect_backoff_ms", round(1000 * timeouts.answer)),
        ("grpc.max_reconnect_backoff_ms", round(1000 * timeouts.reconnect_most)),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]


def open_channel(target: str, timeouts: Timeouts, tls: ClientTls | None = None) -> grpc.Channel:
    """A blocking channel to a coordinator."""
    if tls is None:
        return grpc.insecure_channel(target, channel_options(timeouts))
    return grpc.secure_channel(target, tls.channel_credentials(), channel_options(timeouts))


def open_async_channel(target: str, timeouts: Timeouts, tls: ClientTls | None = None) -> grpc.aio.Channel:
    """A channel to a coordinator for an event loop."""
    if tls is None:
        return grpc.aio.insecure_channel(target, options=channel_options(timeouts))
    return grpc.aio.secure_channel(target, tls.channel_credentials(), options=channel_options(timeouts))
