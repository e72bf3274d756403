"""Messages of the coordinator as plain values and words."""

import math
from datetime import UTC, datetime
from typing import Any

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp


def plain(message: Message) -> dict[str, Any]:
    """A message for JSON: numbers stay numbers, enums are words, moments are ISO 8601, absent is null.

    protobuf's own JSON would write every 64-bit number as a string.
    """
    content: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            content[field.name] = {key: _value(value[key], None) for key in sorted(value)}
        elif field.is_repeated:
            content[field.name] = [_value(item, field.enum_type) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            content[field.name] = None
        else:
            content[field.name] = _value(value, field.enum_type)
    return content


def word(enum: EnumDescriptor, number: int) -> str:
    """An enum value as people say it: PHASE_RUNNING is `running`."""
    if number not in enum.values_by_number:
        return f"unknown ({number})"
    # Every enum begins with its UNSPECIFIED, which tells the prefix that all share.
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return str(enum.values_by_number[number].name).removeprefix(prefix).lower().replace("_", " ")


def clean(text: str) -> str:
    """Text of a peer for one line of a terminal: control characters could repaint it."""
    return "".join(char if char.isprintable() else " " for char in text)


def clean_lines(text: str) -> str:
    """The same, with its lines kept."""
    return "\n".join(clean(line.expandtabs()) for line in text.splitlines())


def seconds_since(moment: Timestamp, now: datetime | None = None) -> float:
    """Seconds from `moment` to now; negative when it is yet to come."""
    return ((now or datetime.now(UTC)) - moment.ToDatetime(UTC)).total_seconds()


def span(seconds: float) -> str:
    """A duration in its two largest units: `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = max(0, round(seconds))
    for unit, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def nbytes(count: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def scores(metrics: Any) -> str:
    """Metrics on one line."""
    return "  ".join(f"{clean(name)} {metrics[name]:.4g}" for name in sorted(metrics))


def _value(value: Any, enum: Any) -> Any:
    if isinstance(value, Timestamp):
        return value.ToJsonString()
    if isinstance(value, Message):
        return plain(value)
    if enum is not None:
        return word(enum, value)
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no word for these; a string is better than a file that no parser takes.
        return str(value)
    return value
