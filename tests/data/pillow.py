"""FixMatch's strong augmentation image by image, by Pillow: what the batched one must equal."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from fallow.data.strong import GREY, OPERATIONS, Strong


def operate(image: Image.Image, name: str, magnitude: float) -> Image.Image:
    factor, signed = 0.05 + 0.9 * magnitude, 2 * magnitude - 1
    width, height = image.size

    def affine(*matrix: float) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, matrix)

    match name:
        case "auto-contrast":
            return ImageOps.autocontrast(image)
        case "brightness":
            return ImageEnhance.Brightness(image).enhance(factor)
        case "color":
            return ImageEnhance.Color(image).enhance(factor)
        case "contrast":
            return ImageEnhance.Contrast(image).enhance(factor)
        case "equalize":
            return ImageOps.equalize(image)
        case "posterize":
            return ImageOps.posterize(image, 4 + min(4, int(magnitude * 5)))
        case "rotate":
            return image.rotate(30 * signed)
        case "sharpness":
            return ImageEnhance.Sharpness(image).enhance(factor)
        case "shear-x":
            return affine(1, 0.3 * signed, 0, 0, 1, 0)
        case "shear-y":
            return affine(1, 0, 0, 0.3 * signed, 1, 0)
        case "solarize":
            return ImageOps.solarize(image, 256 * magnitude)
        case "translate-x":
            return affine(1, 0, 0.3 * width * signed, 0, 1, 0)
        case "translate-y":
            return affine(1, 0, 0, 0, 1, 0.3 * height * signed)
    return image


def cutout(pixels: np.ndarray, centre: tuple[float, float]) -> None:
    half = min(pixels.shape[:2]) / 4
    box = []
    for length, share in zip(pixels.shape[:2], centre, strict=True):
        begin, end = length * share - half, length * share + half
        box.append(slice(max(0, int(np.ceil(begin - 0.5))), max(0, int(np.floor(end - 0.5)) + 1)))
    pixels[tuple(box)] = GREY


def strongly(x: Tensor, strong: Strong) -> Tensor:
    """uint8 images N×C×H×W, one after the other."""
    done = []
    for i, pixels in enumerate(x.permute(0, 2, 3, 1).numpy()):
        image = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
        for number, magnitude in zip(strong.operation[i].tolist(), strong.magnitude[i].tolist(), strict=True):
            image = operate(image, OPERATIONS[number], magnitude)
        finished = np.array(image).reshape(pixels.shape)
        cutout(finished, tuple(strong.centre[i].tolist()))
        done.append(finished)
    return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2)
