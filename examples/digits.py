"""Trains a small convolutional network on scikit-learn's digits to at least 98% test accuracy."""

import time

from _report import Row, console, run_on
from rich.progress import track
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import torch
from torch import nn

EPOCHS = 12
BATCH = 64


def make_model() -> nn.Module:
    """Convolutions with batch norm, max pooling and dropout, for 8x8 images."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(256, 10),
    )


def main() -> Row:
    """Train on both devices from the same start."""
    console.rule("training a convolutional network: scikit-learn's digits")
    digits = load_digits()
    split = train_test_split(digits.images, digits.target, test_size=0.25, random_state=0, stratify=digits.target)
    train_x, test_x = (torch.tensor(x, dtype=torch.float32).unsqueeze(1) / 16 for x in split[:2])
    train_y, test_y = (torch.tensor(y) for y in split[2:])

    def train(device: str):
        torch.manual_seed(0)
        model = make_model().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
        steps = EPOCHS * (len(train_x) // BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
        x, y = train_x.to(device), train_y.to(device)
        loss_function = nn.CrossEntropyLoss()
        order = torch.Generator().manual_seed(1)
        start = time.perf_counter()
        for _ in track(range(EPOCHS), f"digits on {device}", console=console):
            shuffled = torch.randperm(len(x), generator=order)
            for batch in shuffled.split(BATCH):
                if len(batch) < BATCH:
                    continue
                batch = batch.to(device)
                loss = loss_function(model(x[batch]), y[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(test_x.to(device)).argmax(1).cpu() == test_y).float().mean().item()
        seconds = time.perf_counter() - start
        return accuracy, seconds

    cpu = run_on("cpu", train)
    tpu = run_on("tpu", train)
    (cpu_accuracy, cpu_time), (accuracy, tpu_time) = cpu.result, tpu.result
    return Row(
        "digits CNN",
        f"{accuracy:.1%} test accuracy",
        f"CPU {cpu_accuracy:.1%}",
        cpu.seconds,
        tpu,
        accuracy >= 0.98,
        cpu_time / tpu_time,
    )
