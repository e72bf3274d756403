"""The coordinator process: gRPC, files and signals around the round engine and the algorithms.

`process` starts and stops it, `service` and `admin` are what gRPC calls, `session` is one worker's
stream, `inbox` reads its messages, `post` writes ours. `run` carries the engine's effects out: `beside`
has its threads and timers, `first_model` finds the model to start from, `judging` has versions measured,
`durable` holds back what leaves until it is safe on disk. `members` and `journal` are what it remembers
for people, `memory` puts them into the store, `models` writes the last and the best version.
"""
