"""The coordinator process: gRPC, files and signals around the round engine and the algorithms.

`process` starts and stops it, `service` and `admin` are what gRPC calls, `session` is one worker's
stream, `inbox` reads its messages, `run` carries the engine's effects out, `members` and `journal`
are what it remembers for people, `models` is what it writes to disk.
"""
