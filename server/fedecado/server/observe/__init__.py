"""See a run: Prometheus metrics, and a dashboard that the coordinator serves itself.

`observer` is what the run tells; `metrics` and `live` turn it into numbers for machines and into
pictures for people, `events` streams the latter to browsers, `finished` reads a run that is over, and
`http` serves it all. `observatory` ties them together. All of it only reads.
"""
