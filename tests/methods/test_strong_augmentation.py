"""Second views: image by image against PIL, colorsys and a plain crop."""

import colorsys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance

from deepccg.core import make_generator
from deepccg.learners import strong_augmentation as augmentation

SIZES = [(3, 32, 32), (1, 8, 8), (3, 17, 24)]


def images_of(shape, count=12):
    return torch.randint(256, (count, *shape), generator=make_generator(0, "images")).byte()


def views_of(x, seed=0, mirror=True):
    return augmentation.second_view(x, make_generator(seed, "views"), mirror=mirror)


@pytest.mark.parametrize("shape", SIZES)
def test_a_crop_is_the_part_of_the_image_resized(shape):
    x = images_of(shape).double() / 255
    boxes = augmentation.draw_boxes(len(x), *shape[1:], make_generator(1, "boxes"))
    found = augmentation.resized_crop(x, boxes)
    for image, (top, left, height, width), view in zip(x, boxes.tolist(), found, strict=True):
        part = image[None, :, top : top + height, left : left + width]
        assert part.shape[2:] == (height, width)  # within the image
        expected = F.interpolate(part, size=shape[1:], mode="bilinear", align_corners=False)
        torch.testing.assert_close(view, expected[0])


def test_crops_are_those_of_pil():
    x = images_of((3, 32, 32))
    boxes = augmentation.draw_boxes(len(x), 32, 32, make_generator(2, "boxes"))
    found = augmentation.resized_crop(x.double(), boxes)
    for image, (top, left, height, width), view in zip(x, boxes.tolist(), found, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        part = picture.crop((left, top, left + width, top + height))
        expected = np.asarray(part.resize((32, 32), Image.Resampling.BILINEAR), dtype=float)
        assert np.abs(view.permute(1, 2, 0).numpy() - expected).max() <= 1.01  # of 255


def test_boxes_have_the_areas_and_ratios_they_should():
    height, width, top, left = 200, 200, 0, 1
    boxes = augmentation.draw_boxes(20_000, height, width, make_generator(3, "boxes"))
    area = (boxes[:, 2] * boxes[:, 3]).double() / (height * width)
    assert 0.19 < area.min() < 0.21
    assert area.max() > 0.98
    ratio = boxes[:, 3].double() / boxes[:, 2]
    assert 0.74 < ratio.min() < 0.77
    assert 1.30 < ratio.max() < 1.35
    small = area < 0.6  # no side had to be cut
    assert abs(area[small].mean().item() - 0.4) < 0.005
    assert abs(ratio[small].log().mean().item()) < 0.005
    for axis in (top, left):  # every place is as likely as any other
        place = boxes[:, axis].double() / (200 - boxes[:, 2 + axis]).clamp(min=1)
        assert abs(place[small].mean().item() - 0.5) < 0.01


def enhanced(image, kind, factor):
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    changed = np.asarray(kind(picture).enhance(factor), dtype=np.float64)
    return torch.from_numpy(changed).permute(2, 0, 1)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (augmentation.with_brightness, ImageEnhance.Brightness),
        (augmentation.with_contrast, ImageEnhance.Contrast),
        (augmentation.with_saturation, ImageEnhance.Color),
    ],
)
def test_light_and_colour_are_those_of_pil(function, kind):
    x = images_of((3, 9, 11))
    factors = torch.linspace(0.6, 1.4, len(x), dtype=torch.float64)
    found = function(x.double() / 255, factors) * 255
    for image, factor, view in zip(x, factors.tolist(), found, strict=True):
        assert (view - enhanced(image, kind, factor)).abs().max() < 2.01  # PIL rounds twice


def test_hues_are_turned_as_colorsys_does():
    x = images_of((3, 6, 7)).double() / 255
    x[0] = 0.4  # grey has no hue
    x[1, :, 0] = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)[:, None]  # two are largest
    turns = torch.linspace(-0.5, 0.5, len(x), dtype=torch.float64)
    found = augmentation.with_hue_turned(x, turns)
    for image, turn, view in zip(x, turns.tolist(), found, strict=True):
        for pixel, changed in zip(image.flatten(1).T, view.flatten(1).T, strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel.tolist())
            expected = colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)
            assert changed.tolist() == pytest.approx(expected, abs=1e-9)


def test_grey_is_pils():
    x = images_of((3, 5, 5))
    found = augmentation.grey_of(x.double())
    for image, view in zip(x, found, strict=True):
        grey = np.asarray(Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L"), dtype=float)
        assert np.abs(view.numpy() - grey).max() <= 1


def test_how_often_images_change_colour_and_turn_grey():
    x = torch.tensor([0.8, 0.4, 0.2])[:, None, None].expand(20_000, 3, 2, 2)
    found = augmentation.jittered(x, make_generator(0, "jitter"))
    grey = (found[:, 0] == found[:, 1]).all(dim=(1, 2)) & (found[:, 1] == found[:, 2]).all((1, 2))
    assert abs(grey.double().mean().item() - 0.2) < 0.01
    same = (found == x).all(dim=(1, 2, 3))
    assert abs(same.double().mean().item() - 0.2 * 0.8) < 0.01  # neither changed nor grey


@pytest.mark.parametrize("shape", SIZES)
def test_views_are_like_what_they_are_views_of(shape):
    x = images_of(shape)
    before = x.clone()
    found = views_of(x)
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    assert torch.equal(x, before)
    assert torch.equal(found, views_of(x))
    assert not torch.equal(found, views_of(x, seed=1))
    assert torch.equal(views_of(x.double()), views_of(x.double()))


def test_the_same_draws_change_every_image_by_itself():
    """No image has anything of another one: an image alone in black stays alone."""
    x = torch.zeros(6, 3, 16, 16, dtype=torch.uint8)
    x[2] = images_of((3, 16, 16), 1)[0]
    found = views_of(x)
    assert found[2].any()
    assert not found[[0, 1, 3, 4, 5]].any()


def share_mirrored(mirror):
    """Of images that grow brighter to the right, as floats: no colours are changed."""
    x = torch.arange(16.0).expand(4000, 1, 16, 16)
    found = views_of(x, mirror=mirror)
    return (found[..., 0] > found[..., -1]).all(dim=(1, 2)).double().mean().item()


def test_half_of_all_views_are_mirrored_if_wanted():
    assert abs(share_mirrored(mirror=True) - 0.5) < 0.03
    assert share_mirrored(mirror=False) == 0


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_features_of_a_vector_are_replaced_by_those_of_others(shape):
    x = torch.arange(300.0 * 6).reshape(300, *shape)
    found = views_of(x)
    assert found.shape == x.shape
    before, after = x.flatten(1).long(), found.flatten(1).long()
    assert torch.equal(before % 6, after % 6)  # of the same feature
    kept = (before == after).double().mean().item()
    assert abs(kept - (1 - augmentation.REPLACED)) < 0.03
    assert len((after // 6)[before != after].unique()) > 200  # of all the others


def test_one_vector_alone_is_its_own_view():
    x = torch.randn(1, 5)
    assert torch.equal(views_of(x), x)
