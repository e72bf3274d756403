"""Peers that keep to no protocol: TCP noise, broken HTTP/2, broken gRPC framing, broken messages."""

import asyncio
import gzip
import random
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any

import grpc

from fedecado.common.layout import Layout
from fedecado.common.wire import CHUNK_BYTES
from fedecado.v1 import session_pb2 as pb
from fedecado.v1.transfer_pb2 import Chunk, Trailer

METHOD = "/fedecado.v1.SessionService/Session"
PATIENCE = 30.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS, _HEADERS, _DATA = 4, 1, 0


async def noise(address: str, chance: random.Random) -> int:
    """Bytes that are no HTTP at all."""
    return await _raw(address, chance.randbytes(chance.randrange(1, 1 << 16)))


async def broken_http2(address: str, chance: random.Random) -> int:
    """HTTP/2 up to its first frame, then frames of any type, length and content."""
    frames = [
        _frame(chance.randrange(256), chance.randrange(256), chance.getrandbits(31), chance.randbytes(40))
        for _ in range(20)
    ]
    return await _raw(address, _PREFACE + _frame(_SETTINGS, 0, 0, b"") + b"".join(frames))


async def broken_grpc(address: str, chance: random.Random) -> int:
    """A proper call whose messages lie about their length or their compression."""
    bomb = _bomb()
    message = chance.choice(
        [
            struct.pack(">BI", 0, 0xFFFFFFFF) + b"x" * 1000,
            struct.pack(">BI", 1, len(bomb)) + bomb,
            struct.pack(">BI", 7, 3) + b"abc",
            struct.pack(">BI", 0, 10) + b"short",
            chance.randbytes(500),
        ]
    )
    encoding = chance.choice(["identity", "gzip", "zstd"])
    headers = _headers(address, encoding)
    data = [_frame(_DATA, 0, 1, message[at : at + 16000]) for at in range(0, len(message), 16000)]
    opening = _PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, 4, 1, headers)
    return await _raw(address, opening + b"".join(data))


async def broken_messages(address: str, chance: random.Random) -> int:
    """A stream of bytes that are no messages, damaged ones, or ones out of place."""
    frames = [_message(chance) for _ in range(chance.randrange(1, 30))]
    if chance.random() < 0.5:
        frames.insert(0, _hello(chance))
    return await _stream(address, frames)


async def too_large(address: str, chance: random.Random) -> int:
    """A message above the limit."""
    return await _stream(address, [bytes(5 * CHUNK_BYTES)])


async def vanishing(address: str, chance: random.Random) -> int:
    """A transfer that is announced and never comes, on a line that is cut."""
    header = pb.WorkerMessage(update=pb.Update(task_id=1, state_bytes=1 << 40)).SerializeToString()
    return await _stream(address, [_hello(chance), header], wait=False)


ATTACKS: tuple[Callable[[str, random.Random], Awaitable[int]], ...] = (
    noise,
    broken_http2,
    broken_grpc,
    broken_messages,
    too_large,
    vanishing,
)


async def siege(address: str, seed: int, attacks: int) -> int:
    """So many attacks, eight at a time; how many bytes were thrown."""
    chance, room = random.Random(seed), asyncio.Semaphore(8)

    async def one(number: int) -> int:
        async with room:
            return await ATTACKS[number % len(ATTACKS)](address, random.Random(chance.getrandbits(32)))

    return sum(await asyncio.gather(*(one(number) for number in range(attacks))))


@cache
def _bomb() -> bytes:
    """Some kilobytes that unpack to 32 MiB."""
    return gzip.compress(bytes(32 << 20))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _headers(address: str, encoding: str) -> bytes:
    """Header fields as HPACK literals, none indexed or compressed."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": address,
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-encoding": encoding,
    }
    return b"".join(
        b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )


def _hello(chance: random.Random) -> bytes:
    """An evaluator's, mostly in order: a trainer's would change the weights of the honest ones."""
    layout = Layout.flat(chance.choice([1000, 1000, 7]))
    hello = pb.Hello(
        protocol=pb.ProtocolVersion(major=chance.choice([1, 1, 1, 9])),
        worker_id=f"evil-{chance.randrange(20)}",
        incarnation=chance.randrange(3),
        connection=chance.randrange(100),
        role=pb.ROLE_EVALUATOR,
        layout_json=layout.to_json(),
        layout_digest=layout.digest,
        description="\x1b[2J\n" * chance.randrange(1000),
    )
    return pb.WorkerMessage(hello=hello).SerializeToString()


def _message(chance: random.Random) -> bytes:
    whole = chance.choice(
        [
            _hello(chance),
            pb.WorkerMessage(update=pb.Update(task_id=chance.randrange(9), window=0.1)).SerializeToString(),
            pb.WorkerMessage(chunk=Chunk(offset=0, data=chance.randbytes(4000))).SerializeToString(),
            pb.WorkerMessage(trailer=Trailer(length=4000)).SerializeToString(),
            pb.WorkerMessage(
                evaluation=pb.Evaluation(task_id=1 << 62, metrics={str(i): 9e99 for i in range(200)})
            ).SerializeToString(),
            pb.WorkerMessage(
                task_failed=pb.TaskFailed(task_id=1, traceback="x" * 100_000)
            ).SerializeToString(),
            chance.randbytes(chance.randrange(2000)),
            bytes(CHUNK_BYTES),
        ]
    )
    if chance.random() < 0.5 or not whole:
        return whole
    spoiled = bytearray(whole)
    spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
    return bytes(spoiled)


async def _raw(address: str, data: bytes) -> int:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            writer.write(data)
            await writer.drain()
            writer.write_eof()
            while await reader.read(1 << 16):
                pass
    writer.close()
    return len(data)


async def _stream(address: str, frames: list[bytes], *, wait: bool = True) -> int:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    sent = 0
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        method: Any = channel.stream_stream(METHOD)
        call = method()
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for frame in frames:
                    sent += len(frame)
                    await call.write(frame)
                if wait:
                    await call.done_writing()
                    while await call.read() is not grpc.aio.EOF:
                        pass
        call.cancel()
    return sent
