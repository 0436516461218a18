"""``python -m benchmarks NAME [--json]``: one JSON object whose ``ratios`` maps a name to a median ratio."""

from __future__ import annotations

import argparse
import json
from importlib import import_module

NAMES = {
    "loop": "fit against a bare PyTorch loop, methods against normal, channels_last (two minutes)",
    "start": "fallow --help, and importing fallow beyond torch (a minute)",
    "methods": "every method against an ordinary step (three minutes)",
    "compare": "a comparison with one and with two workers, and against a bare loop (eight minutes)",
    "interrupt": "compare, tune, semi, reproduce killed at random moments: the share that ends the same (15 minutes)",
    "adapters": "steps in Lightning and in Hugging Face's Trainer with a method against plain ones (four minutes)",
    "flatness": "steps of fam and sam against a plain one, and the memory of fam (three minutes)",
    "shapes": "steps of fam on the 64×8 layer of the autoencoder of shapes against a plain one (two minutes)",
    "hypergradient": "a hypergradient against betty, torchopt and a textbook's loop (two minutes)",
    "fewshot": "meta-gradients of MAML against a hand-written loop and higher (six minutes)",
    "control": "navigation for all tasks at once against a gymnasium vector environment (a minute)",
    "transfer": "few-shot episodes in the span of their supports against a loop of SGD (four minutes)",
    "tables": "csv files: the best network against the best yardstick, predict against what was recorded (8 minutes)",
    "signals": "made signals: what fit does by itself against k-NN and an scnn (four minutes)",
    "volumes": "made volumes: what fit does by itself against the best yardstick and an mlp (five minutes)",
    "augment": "strong and weak augmentation against Pillow, and a meta-update against a step (a minute)",
    "diagnose": "the largest eigenvalue against PyHessian, neighbours against scikit-learn (four minutes)",
    "labels": "what twice the labels would bring, forecast and measured (four minutes)",
    "null": "races of tiny networks with nothing to find: false verdicts (15 minutes)",
    "race": "a simulation of the race: false verdicts, power, method runs, coverage (three minutes)",
    "attack": "malformed requests and damaged folders: tracebacks, hangs and accepted nonsense (six minutes)",
    "resume": "runs killed at random moments and resumed: the share that ends with the same bits (20 minutes)",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="; ".join(
        f"{name}: {what}" for name, what in NAMES.items()))  # fmt: skip
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="print the JSON object only")
    parser.add_argument("--repetitions", type=int, default=None)
    options = parser.parse_args()
    measured = import_module(f"benchmarks.{options.name}").measure(options.repetitions)
    if options.json:
        print(json.dumps(measured))
        return
    for name, ratio in measured["ratios"].items():
        low, high = measured.get("spread", {}).get(name, (ratio, ratio))
        print(f"{name:24} {ratio:6.3f}   (middle half {low:.3f} to {high:.3f})")
    for name, count in measured.get("counts", {}).items():
        print(f"{name}: {count}")
    for name, count in measured.get("operations", {}).items():
        print(f"{name:24} {count:6.1f} operations a step")
    for name, speed in measured.get("images_per_second", {}).items():
        print(f"{name:24} {speed:6.0f} images a second of CPU")
    for name, seconds in measured.get("seconds", {}).items():
        print(f"{name}: {seconds:.3f} s")
    for name, clocks in measured.get("microseconds", {}).items():
        print(f"{name:24} {clocks['cpu']:10.1f} µs of CPU, {clocks['wall']:10.1f} µs in all, per step")


if __name__ == "__main__":
    main()
