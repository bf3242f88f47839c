"""Settings for all tests: one thread, and examples that are the same in every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("keepset", deadline=None, derandomize=True, database=None)
settings.load_profile("keepset")
