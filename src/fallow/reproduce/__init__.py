"""The papers' tables, ours beside theirs: one file per table, found by its name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A table that can be reproduced: where it is from, what it shows, what it costs on two CPU cores."""

    module: str
    paper: str
    shows: str
    minutes: float


TABLES: dict[str, Entry] = {
    "lw-table1": Entry("lw_table1", "LW, table 1", "six methods on synthetic data at three signal strengths", 1.5),
    "lw-table2": Entry("lw_tables", "LW, table 2", "six methods on four networks, with and without augmentation", 25),
    "lw-table3": Entry("lw_tables", "LW, table 3", "which of them beats which significantly", 25),
    "lw-table5": Entry("lw_table5", "LW, table 5", "baseline, rescaling and LW under an L2 penalty", 1),
    "lw-figure4": Entry("lw_diagnosed", "LW, figure 4", "the smallest margins on training data", 2),
    "lw-figure5": Entry("lw_diagnosed", "LW, figure 5", "training accuracy lost under noise on the weights", 2),
    "lw-figure6": Entry("lw_diagnosed", "LW, figure 6", "the size of the weights against the baseline's", 2),
    "lw-figure3": Entry("lw_budget", "LW, figure 3", "test accuracy against the length of a round", 3),
    "lw-figure7": Entry("lw_budget", "LW, appendix F", "LW under other hyperparameters", 6),
    "seal-table6": Entry("seal_diagnosed", "SEAL, table 6", "eigenvalues of the Hessian, scaled down", 4),
    "seal-figure2": Entry("seal_diagnosed", "SEAL, figure 2", "what neighbours know in each block, scaled down", 2),
    "seal-figure3": Entry("seal_diagnosed", "SEAL, figure 3", "the same over generations, scaled down", 6),
    "lw-ablation": Entry("lw_ablation", "LW, appendix E", "LW without rescaling, normalisation, fine-tuning", 3),
    "lw-ablation-images": Entry("lw_ablation", "LW, appendix E", "the same on images of three data sets", 15),
    "seal-table2": Entry("seal_tables", "SEAL, table 2", "normal, LLF and SEAL over generations, scaled down", 1),
    "seal-ascent": Entry("seal_ascent", "SEAL, section 3", "does the ascent forget, and is it relearned", 0.5),
    "fam-cost": Entry("fam_cost", "FAM, figures 4, 5", "the time of each form of κ against the layer's size", 2),
    "fam-reparametrisation": Entry(
        "fam_reparametrisation", "FAM, section 2", "rescaling changes SAM's sharpness, not relative flatness", 0.2
    ),
    "fam-table1": Entry("fam_table1", "FAM, table 1", "plain training, SAM and FAM, scaled down", 30),
    "fam-lambda": Entry("fam_table1", "FAM, section 4", "the gain on validation of every λ", 6),
    "fam-shapes": Entry("fam_shapes", "FAM, table 2", "shapes made whole: baseline, L2, SAM, FAM, scaled down", 30),
    "fam-shapes-small": Entry("fam_shapes", "FAM, table 2", "the same at 32³ voxels", 4),
    "fam-rte": Entry("fam_rte", "FAM, table 3", "BERT on RTE, plainly and with FAM on the pooler (extra: text)", 6),
    "iml-table5.1": Entry(
        "iml_table51", "Thesis, table 5.1", "supervised, FixMatch and the Confidence Network, scaled down", 12
    ),
    "iml-figure5": Entry("iml_figure5", "Thesis, figures 5", "the weights of a Confidence Network, and its images", 3),
    "semi-labels": Entry("semi_labels", "Thesis, FixMatch", "40 and 250 labels, a narrow WideResNet", 110),
    "semi-ood": Entry("semi_ood", "Thesis, section 5.5", "half of the images foreign: weights and all controls", 25),
    "semi-ood-centred": Entry("semi_ood", "Thesis, section 5.5", "the same by the whole gradients, centred", 25),
    "semi-ood-plain": Entry("semi_ood", "Thesis, section 5.5", "the same with the network as the thesis has it", 25),
    "seal-table1": Entry("seal_transfer", "SEAL, table 1", "linear probes of other data, scaled down", 130),
    "seal-table3": Entry("seal_table3", "SEAL, table 3", "how large the data sets to transfer to are", 0.2),
    "seal-table4": Entry("seal_transfer", "SEAL, table 4", "few-shot transfer, 1 and 5 shots, scaled down", 125),
    "seal-table4-affine": Entry("seal_transfer", "SEAL, table 4", "the same with tuned affines of norms, 5 shots", 160),
    "seal-table5": Entry("seal_transfer", "SEAL, table 5", "few-shot transfer, 20 and 50 shots, scaled down", 125),
    "seal-table1-small": Entry("seal_transfer", "SEAL, table 1", "the same from 600 images of CIFAR-10", 5),
    "seal-table4-small": Entry("seal_transfer", "SEAL, table 4", "the same from 600 images of CIFAR-10", 6),
    "seal-table5-small": Entry("seal_transfer", "SEAL, table 5", "the same from 600 images of CIFAR-10", 10),
    "seal-table2-large": Entry("seal_large", "SEAL, table 2", "a ResNet on 5,000 images, with restart", 190),
    "seal-scale-large": Entry("seal_large", "SEAL, table 2", "the same network: S = 0.1 and 0.3", 70),
    "seal-table7-large": Entry("seal_large", "SEAL, table 7", "the same network: what the later layers do", 100),
    "seal-kept-large": Entry("seal_large", "SEAL, tables 1, 4, 6", "what table 2's networks know, and transfer", 40),
    "seal-table7": Entry("seal_tables", "SEAL, table 7", "what the later layers do meanwhile, scaled down", 2.5),
    "iml-table4.1": Entry("iml_weight", "IML, table 4.1", "a decay per weight on 50 images of MNIST, scaled down", 3),
    "iml-table4.2": Entry("iml_weight", "IML, table 4.2", "a decay per weight on 50 of CIFAR-10, scaled down", 3),
    "iml-table4.3": Entry("iml_weight", "IML, table 4.3", "the same on MNIST with 32 hidden units", 3),
    "iml-figure4.1": Entry("iml_exact", "IML, figure 4.1", "solvers against the exact inverse, along a training", 2.5),
    "iml-table4.4": Entry("iml_cost", "IML, tables 4.4-6", "memory and time of the solvers", 1),
    "iml-table4.9": Entry("iml_cost", "IML, tables 4.9-10", "the same for a decay per layer", 2),
    "iml-table4.7": Entry("iml_layer", "IML, table 4.7", "a decay per layer on MNIST, scaled down", 9),
    "iml-table4.8": Entry("iml_layer", "IML, table 4.8", "a decay per layer on CIFAR-10, with its control", 9),
    "iml-tableA.8": Entry("iml_grid", "IML, table A.8", "one L2 weight from a grid, by the length of training", 13),
    "iml-ablation": Entry("iml_ablation", "IML, section 4.2.4", "fewer steps between meta-updates, scaled down", 3.5),
    "l2f-sinusoid": Entry("l2f_sinusoid", "L2F, supplement C", "MAML and L2F on sinusoids, L2F's options", 12),
    "l2f-figures": Entry("l2f_figures", "L2F, figures A-C, G", "how smooth adaptation is, how tasks conflict", 3),
    "l2f-navigation": Entry("l2f_control", "L2F, figure F", "MAML, L2F and its control on 2-D navigation", 2),
    "l2f-cheetah": Entry("l2f_control", "L2F, supplement D", "the same on half-cheetahs, scaled down", 8),
    "l2f-regression": Entry("l2f_regression", "L2F, table D", "L2F beside MuMoMAML, on sinusoids and a mixture", 25),
    "l2f-fc100": Entry("fewshot_images", "L2F, table A", "MAML, L2F, controls, prototypes on FC100, scaled down", 90),
    "l2f-cifarfs": Entry("fewshot_images", "L2F, table B", "the same on CIFAR-FS, scaled down", 90),
    "l2f-leo": Entry("l2f_leo", "L2F, section E.1", "LEO alone and with L2F, on CIFAR-FS, scaled down", 30),
    "omniglot-5way": Entry("fewshot_images", "Omniglot", "MAML, L2F, controls, prototypes, 5-way 1-shot", 60),
    "recipes": Entry("recipes", "The recipes", "training with default settings beside learners of seconds", 30),
    "recipes-pretrained": Entry("recipes", "The recipes", "a head on pretrained features, and fine-tuning", 10),
}
