"""Run in NVFlare's environment, `nvflare_job.py CLIENTS PARAMETERS ROUNDS TIMES`: a POC and a job in it."""

import sys
from pathlib import Path

import numpy as np
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.recipe import PocEnv


def main() -> None:
    clients, parameters, rounds = map(int, sys.argv[1:4])
    times = Path(sys.argv[4])
    start = times.with_suffix(".npy")
    np.save(start, np.zeros(parameters, np.float32))
    recipe = NumpyFedAvgRecipe(
        name="noop",
        initial_ckpt=str(start),
        min_clients=clients,
        num_rounds=rounds + 1,
        train_script=str(Path(__file__).with_name("nvflare_client.py")),
        train_args=str(times),
    )
    environment = PocEnv(num_clients=clients, extra={"login_timeout": 120})
    try:
        run = recipe.execute(environment)
        print(run.get_result(timeout=3600.0))
    finally:
        environment.stop(clean_up=True)


if __name__ == "__main__":
    main()
