# SPDX-License-Identifier: Apache-2.0
"""A round of `networks-gpu` as a PyTorch loop, in a process of its own; prints its seconds as JSON.

JAX stays on the CPU here (`JAX_PLATFORMS=cpu`): it only makes the parameters, which are the same on every device, and
the numbers that PyTorch must agree with. In one process with JAX on the GPU, PyTorch has hung.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from typing import Any

from benchmarks.apart import say


def main(name: str, clients: int, rows: int, batch_size: int, small: int) -> None:
    """Seconds of one whole round over all clients, after two clients that warm up."""
    if importlib.util.find_spec("torch") is None:
        print(json.dumps("not measured: PyTorch is not installed"))
        return
    import torch

    # before JAX is loaded: whatever libraries both bring, PyTorch has its own first
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.zeros(1, device=device)
    say(f"torch {torch.__version__} on {device}")
    import jax

    from benchmarks import network_problems as problems
    from benchmarks import networks_torch
    from benchmarks.by_hand import torch_rows
    from idiolect.objectives import ClientLoss

    federation, model = problems.contest(name, clients, rows, bool(small))
    loss = ClientLoss(model=model)
    params = loss.init(jax.random.key(0))
    data = torch_rows(torch, device, federation.train)
    net = getattr(networks_torch, name)(torch, params).to(device)
    _allow_tf32(torch, False)
    problems.check_same(torch, net, loss, params, federation.train, data)
    _allow_tf32(torch, True)
    say("torch computes the same")

    def work(chosen: list[Any]) -> float:
        began = time.perf_counter()
        networks_torch.one_round(torch, net, chosen, batch_size, problems.STEP_SIZE)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    say(f"torch, two clients: {work(data[:2]):.4f} s")
    print(json.dumps({"seconds of a round": work(data), "torch": torch.__version__, "device": device}))


def _allow_tf32(torch: Any, allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
