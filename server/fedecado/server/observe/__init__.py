"""See a run: Prometheus metrics, a dashboard that the coordinator serves itself, traces, other tools.

`observer` and `traces` are what the run tells. `metrics` and `state_metrics` turn it into numbers for
machines and `live` into pictures for people, which `events` streams to browsers; `finished` and `stored`
read a run that is over; `http` serves it all and `access` says to whom. `observatory` ties these together.
`otel` makes spans, `scribe` has TensorBoard or MLflow written. All of it only reads but `actions`, which
acts for operators.
"""
