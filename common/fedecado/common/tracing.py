"""OpenTelemetry spans of a process, and trace contexts as the protocol carries them.

Imported only where traces are wanted. There is no global provider: user code may have one of its own.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from fedecado.common.errors import ConfigError

try:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.trace import Span, Tracer, get_current_span, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    raise ConfigError(f"traces need {error.name}; install fedecado[otel], or leave trace.to out") from error

EXPORT_SECONDS: Final = 5.0
"""Time for sending spans; at the end of the process, for what is left."""
_HEADER: Final = "traceparent"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


@final
class Tracing:
    """The spans of one process on their way out. `close` sends what is left. Idempotent."""

    def __init__(self, to: str, **about: str) -> None:
        resource = Resource.create({f"fedecado.{name}": value for name, value in about.items()})
        self._provider = TracerProvider(resource=resource.merge(Resource({"service.name": "fedecado"})))
        # Batches leave from a thread of their own, out of a queue that drops what is too much.
        self._provider.add_span_processor(BatchSpanProcessor(_exporter(to)))
        self.tracer: Tracer = self._provider.get_tracer("fedecado")
        self._closed = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # A collector that is away must not hold the process up, and the SDK's own limits add up.
        ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(EXPORT_SECONDS)


def to_text(span: Span) -> str:
    """The context of a span, to send along."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span))
    return carrier.get(_HEADER, "")


def from_text(text: str) -> Context | None:
    """A context that was sent along; none if there is none or it makes no sense."""
    context = _PROPAGATOR.extract({_HEADER: text}) if text else None
    valid = context is not None and get_current_span(context).get_span_context().is_valid
    return context if valid else None


def trace_id(context: Context) -> int:
    """Which trace a context belongs to."""
    return get_current_span(context).get_span_context().trace_id


def _exporter(to: str) -> SpanExporter:
    if to.startswith("file:"):
        return _JsonLines(Path(to.removeprefix("file:")))
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as error:
        raise ConfigError(f"sending traces needs {error.name}; install fedecado[otel]") from error
    endpoint = None if to == "otlp" else to
    return OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS)


@final
class _JsonLines(SpanExporter):
    """A span per line; several processes may share the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        except OSError as error:
            raise ConfigError(f"cannot write traces to {path}: {error}; choose another trace.to") from error

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        lines = "".join(f"{span.to_json(indent=None)}\n" for span in spans)
        try:
            with self._path.open("ab", buffering=0) as file:  # one write, so that lines stay whole
                file.write(lines.encode())
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS
