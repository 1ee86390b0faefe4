"""Train a classifier of digits with DistributedDataParallel; RANK, WORLD_SIZE and MASTER_* name the processes."""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TEST = 360


def digits():
    """Return the train rows and the test rows; a row is an image of 64 pixels and its label."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    return TensorDataset(images[TEST:], labels[TEST:]), TensorDataset(images[:TEST], labels[:TEST])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world}", flush=True)

    torch.manual_seed(0)
    train, test = digits()
    sampler = DistributedSampler(train)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(train, batch_size=32, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1} loss {loss.item():.3f}", flush=True)
    if rank == 0:
        images, labels = test.tensors
        accuracy = (model.module(images).argmax(1) == labels).float().mean().item()
        print(f"accuracy {accuracy:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
