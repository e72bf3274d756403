"""The files of a new project, as `fedecado init` writes them."""

from typing import Final

_TASK: Final = '''"""What each worker trains: a model, its own data, and how to score it."""

import torch
from fedecado.client.task import Task
from sklearn.datasets import load_digits
from torch import nn


def make(index: int, clients: int, seed: int, role: str) -> Task:
    """The task of worker `index` of `clients`. Put your own model and data here."""
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    held_out = torch.arange(len(x)) % 5 == 0
    test_x, test_y = x[held_out], y[held_out]
    # A real worker reads what lies on its own machine; here each takes its share of one data set.
    share = x[~held_out][index::clients], y[~held_out][index::clients]

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def evaluate(model: nn.Module) -> dict[str, float]:
        device = next(model.parameters()).device
        right = model(test_x.to(device)).argmax(1) == test_y.to(device)
        return {"accuracy": right.float().mean().item()}

    return Task(model, (test_x, test_y) if role == "evaluator" else share, evaluate=evaluate)
'''

_CONFIG: Final = """\
# Settings of this project. `fedecado config` shows all there are and what is in force;
# FEDECADO_SECTION__NAME variables and flags win over this file.

[run]
name = "{name}"           # also the folder below runs/ that holds the results
algorithm = "fedecado"    # or fedavg, fedprox, fednova, scaffold, feddyn, fedbuff, fedadam, fedexp
seed = 0

[task]
factory = "task:make"     # function make in task.py

# [task.arguments]        # further arguments of that function
# width = 64

[rounds]
max_rounds = 50           # "none" goes on until stopped
# mode = "stream"         # a worker gets its next task as soon as it reports

[training]                # a worker's own settings win over these
rate = 0.05
epochs = 1
batch_size = 32
device = "auto"           # cpu, cuda, cuda:1, mps

[fleet]                   # `fedecado simulate` and `fedecado up`
clients = 10
"""

_README: Final = """\
# {name}

Federated learning with fedecado. `task.py` holds the model and the data, `fedecado.toml` the settings.

    pip install 'fedecado[server,client]'

Everything on this machine, to see it work:

    fedecado up

On several machines, all with this folder: the coordinator once, a worker wherever there is data.

    fedecado coordinator --bind 0.0.0.0:50051
    fedecado worker --coordinator HOST:50051 --index 0 --clients 2
    fedecado worker --coordinator HOST:50051 --index 1 --clients 2

A worker with `--role evaluator` measures each version on the held-out data.

Meanwhile, from anywhere:

    fedecado status --watch
    fedecado model download --best -o model.safetensors

`fedecado simulate` runs the same training in one process without a network, which is the quickest way to
try settings. `fedecado doctor` checks the installation. Every command has `--help`.
"""

_GITIGNORE: Final = """\
/runs/
*.safetensors
__pycache__/
.venv/
"""


def files(name: str) -> dict[str, str]:
    """File names and contents of a project called `name`."""
    return {
        "fedecado.toml": _CONFIG.replace("{name}", name),
        "task.py": _TASK,
        "README.md": _README.replace("{name}", name),
        ".gitignore": _GITIGNORE,
    }
