"""A second view of every example, for methods that contrast views; each example by itself.

An image: a random part, resized; mirrored; brightness, contrast, saturation and hue changed; grey.
A vector: some features replaced by those of other examples. What is drawn comes from the caller's
generator; what is done with it are functions of plain numbers.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

Mirror = Annotated[
    bool,
    Field(
        description="the second view of an image is mirrored half the time; false where left and "
        "right differ, as in writing"
    ),
]

LEAST_AREA, LARGEST_RATIO = 0.2, 4 / 3  # of a crop: its share of the image, its sides
MIRRORED, JITTERED, GREYED = 0.5, 0.8, 0.2  # how often
STRENGTH, HUE = 0.4, 0.1  # of brightness, contrast and saturation; of the hue, in turns
REPLACED = 0.3  # of a vector's features
GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue are


def second_view(x: Tensor, generator: torch.Generator, *, mirror: bool) -> Tensor:
    """Return another view of each example ``[B, ...]``, in the same shape and type.

    Colours change in images of bytes only: of floats nobody knows what black and white are.
    """
    if x.ndim != 4:
        return replace_features(x, generator)
    boxes = draw_boxes(len(x), x.shape[2], x.shape[3], generator).to(x.device)
    mirrored = (torch.rand(len(x), generator=generator) < MIRRORED * mirror).to(x.device)
    images = x if x.is_floating_point() else x.float() / 255
    images = resized_crop(images, boxes)
    images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    if x.is_floating_point():
        return images
    return (jittered(images, generator) * 255).round().to(torch.uint8)


def replace_features(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each feature of ``x [B, ...]``, with a certain chance, as it is in a random example of x.

    So values stay in the range of their feature, whatever its scale (Bahri et al., "SCARF", 2022).
    """
    rows = x.flatten(1)
    replaced = torch.rand(rows.shape, generator=generator) < REPLACED
    other = torch.randint(len(rows), rows.shape, generator=generator)
    view = torch.where(replaced.to(x.device), rows.gather(0, other.to(x.device)), rows)
    return view.reshape(x.shape)


def draw_boxes(count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Top, left, height and width ``[B, 4]`` of random parts of an image, in pixels.

    Area and logarithm of the ratio of sides are uniform; a side that would be longer than the
    image's is as long as it.
    """
    drawn = torch.rand(count, 4, generator=generator, dtype=torch.float64)
    area = height * width * (LEAST_AREA + (1 - LEAST_AREA) * drawn[:, 0])
    ratio = LARGEST_RATIO ** (2 * drawn[:, 1] - 1)
    whole = torch.tensor([height, width])
    sides = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()], dim=1).round().long()
    sides = torch.minimum(sides.clamp(min=1), whole)
    begin = (drawn[:, 2:] * (whole - sides + 1)).long()
    return torch.cat([begin, sides], dim=1)


def resized_crop(images: Tensor, boxes: Tensor) -> Tensor:
    """The part ``boxes [B, 4]`` of each image ``[B, C, H, W]``, resized to H x W (bilinear)."""
    for axis in (0, 1):
        side = images.shape[2 + axis]
        begin, length = boxes[:, axis, None], boxes[:, 2 + axis, None]
        centre = (torch.arange(side, device=images.device, dtype=images.dtype) + 0.5) / side
        place = (begin + centre * length - 0.5).clamp(begin, begin + length - 1)  # [B, side]
        images = _interpolated(images, place.to(images.dtype), 2 + axis)
    return images


def _interpolated(images: Tensor, place: Tensor, axis: int) -> Tensor:
    """Images between their pixels at ``place [B, side]`` along an axis."""
    last = images.shape[axis] - 1
    shape = [len(images), 1, 1, 1]
    shape[axis] = -1
    before = place.floor().clamp(0, last)
    part = (place - before).reshape(shape)
    index = before.long().reshape(shape)
    near = images.gather(axis, index.expand_as(images))
    far = images.gather(axis, (index + 1).clamp(max=last).expand_as(images))
    return torch.lerp(near, far, part.expand_as(images))


def jittered(images: Tensor, generator: torch.Generator) -> Tensor:
    """Most images ``[B, C, H, W]`` in [0, 1] with other light and colours; some of them grey.

    Images that are not of red, green and blue only change brightness and contrast.
    """
    drawn = torch.rand(len(images), 6, generator=generator).to(images)
    brightness, contrast, saturation = (1 + STRENGTH * (2 * drawn[:, :3] - 1)).unbind(dim=1)
    changed = with_contrast(with_brightness(images, brightness), contrast)
    coloured = images.shape[1] == len(GREY)
    if coloured:
        changed = with_saturation(changed, saturation)
        changed = with_hue_turned(changed, HUE * (2 * drawn[:, 3] - 1))
    images = torch.where(_each(drawn[:, 4] < JITTERED), changed, images)
    if coloured:
        images = torch.where(_each(drawn[:, 5] < GREYED), grey_of(images), images)
    return images


def with_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Each image ``[B, C, H, W]`` times its ``factor [B]``."""
    return (_each(factor) * images).clamp(0, 1)


def with_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Each image with its distance from its mean grey times ``factor [B]``."""
    mean = grey_of(images).mean(dim=(1, 2, 3))
    return torch.lerp(_each(mean).expand_as(images), images, _each(factor)).clamp(0, 1)


def with_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Each image with the distance of each pixel from its grey times ``factor [B]``."""
    return torch.lerp(grey_of(images), images, _each(factor)).clamp(0, 1)


def with_hue_turned(images: Tensor, turns: Tensor) -> Tensor:
    """Each image ``[B, 3, H, W]`` with hues moved on the circle by ``turns [B]``."""
    red, green, blue = images.unbind(dim=1)
    value, index = images.max(dim=1)
    chroma = value - images.amin(dim=1)
    from_largest = torch.stack([green - blue, blue - red, red - green], dim=1)
    offset = from_largest.gather(1, index[:, None])[:, 0] / chroma.clamp(min=1e-12)
    sixths = 2 * index + offset + 6 * turns[:, None, None]  # six from red to red
    distance = [((shift + sixths) % 6) for shift in (5, 3, 1)]  # as red, green and blue see it
    parts = [torch.minimum(k, 4 - k).clamp(0, 1) for k in distance]
    return value[:, None] - chroma[:, None] * torch.stack(parts, dim=1)


def grey_of(images: Tensor) -> Tensor:
    """How bright each pixel is, in every channel."""
    if images.shape[1] != len(GREY):
        return images.mean(dim=1, keepdim=True).expand_as(images)
    weights = torch.tensor(GREY, dtype=images.dtype, device=images.device)[:, None, None]
    return (weights * images).sum(dim=1, keepdim=True).expand_as(images)


def _each(factor: Tensor) -> Tensor:
    """One number for each image, ``[B, 1, 1, 1]``."""
    return factor[:, None, None, None]
