import torch

# The models are tiny: more threads only fight over the cores with the other tests.
torch.set_num_threads(1)
