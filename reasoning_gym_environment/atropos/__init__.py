"""What speaks atroposlib or wandb: settings, rows, delivery, output.

The rest of the package works without Atropos, except the environment and the demo.
"""

import os

# transformers says that PyTorch is missing, which nothing here needs.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
