"""Train a classifier of digits under torchrun: one worker breaks down, and all go on from the last checkpoint.

torchrun starts this program on each node, and again on all of them when one fails. Checkpoints are in the folder
WEFT_CHECKPOINT_DIR, or beside the program.
"""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEST = 360


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--break-after", type=int, default=0, metavar="EPOCH", help="the last rank fails once, here")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    checkpoint = Path(os.environ.get("WEFT_CHECKPOINT_DIR", "."), "elastic.pt")
    begin = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["epoch"]
    print(f"rank {rank} of {world} begins after epoch {begin}, {restarts} restarts", flush=True)
    parallel = DistributedDataParallel(model)
    mine = torch.arange(TEST + rank, len(labels), world)[: (len(labels) - TEST) // world]  # as many for each rank
    for epoch in range(begin + 1, args.epochs + 1):
        for some in mine.split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(images[some]), labels[some])
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
            partial = checkpoint.with_suffix(".part")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, partial)
            partial.replace(checkpoint)
        dist.barrier()
        if epoch == args.break_after and restarts == 0 and rank == world - 1:
            sys.exit("this worker breaks down")
    if rank == 0:
        accuracy = (model(images[:TEST]).argmax(1) == labels[:TEST]).float().mean().item()
        print(f"accuracy {accuracy:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
