"""A client of NVFlare that sends back what it got; the first one notes when each round reaches it."""

import sys
import time
from pathlib import Path

import nvflare.client as flare


def main() -> None:
    flare.init()
    times = Path(sys.argv[1])
    while flare.is_running():
        model = flare.receive()
        if model is None:
            break
        if flare.get_site_name() == "site-1":
            with times.open("a") as file:
                file.write(f"{time.time()!r}\n")
        flare.send(flare.FLModel(params=model.params, metrics={"accuracy": 0.0}))


if __name__ == "__main__":
    main()
