"""Every error fedecado raises on purpose.

FedecadoError
├── ConfigError          a setting is unknown, missing or out of range
├── LayoutError          a vector or a model does not fit the agreed parameter layout
├── FormatError          numbers travel in a format that the receiver does not take
├── NumericsError        a central update cannot be computed from what it was given
│   ├── NonFiniteError   NaN or infinity in a vector or a scalar
│   ├── WindowError      a client window T_i that is not a positive, finite time
│   ├── NormError        an update far longer than its like
│   ├── NoUpdatesError   nothing to aggregate
│   └── DuplicateClientError
├── RoundError           an event that the round engine cannot accept as things stand
├── ProtocolError        a peer sent something the protocol does not allow
│   ├── IdentityError    a token or a certificate is not good for this
│   ├── VersionError     the peers speak different protocol versions
│   └── ChecksumError    bytes were damaged or cut short on the way
├── QuotaError           a peer asks for more than it is granted now
├── TaskError            the user's model, data or loss failed
├── DataError            a data set or a model file is missing or malformed
└── StoreError           a run's folder cannot be read, written or trusted

Messages name the offending value and the remedy.
"""


class FedecadoError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(FedecadoError):
    """A setting is unknown, missing or out of range."""


class LayoutError(FedecadoError):
    """A vector or a model does not fit the agreed parameter layout."""


class FormatError(FedecadoError):
    """Numbers travel in a format that the receiver does not take."""


class NumericsError(FedecadoError):
    """A central update cannot be computed from what it was given."""


class NonFiniteError(NumericsError):
    """NaN or infinity in a vector or a scalar."""


class WindowError(NumericsError):
    """A client window T_i that is not a positive, finite time."""


class NormError(NumericsError):
    """An update far longer than its like."""


class NoUpdatesError(NumericsError):
    """Nothing to aggregate."""


class DuplicateClientError(NumericsError):
    """One client appears twice in a round."""


class RoundError(FedecadoError):
    """An event that the round engine cannot accept as things stand."""


class ProtocolError(FedecadoError):
    """A peer sent something the protocol does not allow."""


class IdentityError(ProtocolError):
    """A token or a certificate is not good for this."""


class VersionError(ProtocolError):
    """The peers speak different protocol versions."""


class ChecksumError(ProtocolError):
    """Bytes were damaged or cut short on the way."""


class QuotaError(FedecadoError):
    """A peer asks for more than it is granted now; `retry_after` is in seconds, None for never."""

    def __init__(self, message: str, retry_after: float | None = 5.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TaskError(FedecadoError):
    """The user's model, data or loss failed."""


class DataError(FedecadoError):
    """A data set or a model file is missing or malformed."""


class StoreError(FedecadoError):
    """A run's folder cannot be read, written or trusted."""
