"""A method in Hugging Face's Trainer
==================================

``FallowTrainer`` is a ``Trainer`` with a method. Here a tiny vision transformer, from its configuration, learns 300
handwritten digits by sharpness-aware minimisation (SAM).
"""

# %%
# The data and the model as for any Trainer. Digits of 8 × 8 pixels are cut into four patches.

import tempfile

import torch
from sklearn.datasets import load_digits
from transformers import TrainingArguments, ViTConfig, ViTForImageClassification

from fallow.adapters.transformers import FallowTrainer

x, y = load_digits(return_X_y=True)
x = torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
rows = [{"pixel_values": image, "labels": int(label)} for image, label in zip(x, y, strict=True)]

torch.manual_seed(0)
model = ViTForImageClassification(
    ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=128, num_labels=10,
    )
)  # fmt: skip

# %%
# SAM runs a step's batch again at the worst point nearby, with the same dropout; with accumulated batches, all of them.

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, num_train_epochs=20, per_device_train_batch_size=25, per_device_eval_batch_size=500, learning_rate=3e-3,
        save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = FallowTrainer(
        model, arguments, train_dataset=rows[:300], eval_dataset=rows[300:], method="sam:rho=0.05",
        compute_metrics=lambda said: {"accuracy": float((said.predictions.argmax(1) == said.label_ids).mean())},
    )  # fmt: skip
    trainer.train()
    print(f"test accuracy: {trainer.evaluate()['eval_accuracy']:.3f}")

# %%
# Other methods by other names: ``method="llf", generations=4, schedule="cosine"`` re-draws the later layers by the
# model's own ``_init_weights``, ``method="fam"`` adds the relative flatness of the head to the loss.
