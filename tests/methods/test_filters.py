"""Finding the filters of a network, and switching them off."""

import copy

import pytest
import torch
from torch import nn

from deepccg.core import InputError
from deepccg.methods.packnet_filters import filter_layers, filters_enabled
from deepccg.networks import MLP, Flat, NetworkConfig, SlimResNet18, build_network


def test_every_layer_of_the_resnet_has_its_norm():
    network = SlimResNet18(width=2)
    layers = filter_layers(network)
    assert [layer.width for layer in layers] == [2] * 5 + [4] * 5 + [8] * 5 + [16] * 5
    names = dict(network.named_modules())
    block = names["stages.2"]
    found = {layer.name: layer for layer in layers}
    assert found["stages.2.conv1"].norm is block.norm1
    assert found["stages.2.conv2"].norm is block.norm2
    assert found["stages.2.shortcut.0"].norm is block.shortcut[1]
    assert sum(p.numel() for layer in layers for p in layer.parameters) == sum(
        p.numel() for p in network.parameters()
    )


def test_layers_without_a_norm_and_networks_without_layers():
    remapped = build_network(NetworkConfig(kind="mlp", layers=(4, 3), remap=True), (5,), 0)
    layers = filter_layers(remapped)
    assert [(layer.width, layer.norm is None) for layer in layers] == [
        (4, False),
        (3, False),
        (3, True),
    ]
    assert filter_layers(Flat(4)) == []


def test_what_is_fixed_is_left_alone():
    network = MLP(4, (3, 2))
    network.layers[0].requires_grad_(False)
    network.layers[1].requires_grad_(False)
    assert [layer.name for layer in filter_layers(network)] == ["layers.3"]


@pytest.mark.parametrize("network", [MLP(6, (5, 4)), SlimResNet18(width=3)])
def test_filters_that_are_off_give_zero_behind_their_norm(network):
    torch.manual_seed(0)
    layers = filter_layers(network)
    for parameter in network.parameters():
        parameter.data += 0.5 * torch.rand_like(parameter)  # shifts that are not 0
    on = [torch.arange(layer.width) % 2 == 0 for layer in layers]
    x = torch.randn(2, 6) if isinstance(network, MLP) else torch.randn(2, 3, 16, 16)
    outputs = []
    plain = network(x)
    with filters_enabled(layers, on):
        handles = [
            module.register_forward_hook(lambda _m, _x, y: outputs.append(y))
            for layer in layers
            for module in (layer.layer, layer.norm)
        ]
        switched = network(x)
    for handle in handles:
        handle.remove()
    assert len(outputs) == 2 * len(layers)
    for y in outputs:
        assert not bool(y[:, 1::2].any())
        assert bool(y[:, ::2].any())
    assert not torch.equal(plain, switched)
    assert torch.equal(network(x), plain)  # outside, nothing is left


def test_the_network_is_left_as_it_was_even_after_an_error():
    network = MLP(4, (3, 2))
    names, copied = list(network.state_dict()), copy.deepcopy(network)
    layers = filter_layers(network)
    off = [torch.zeros(layer.width, dtype=torch.bool) for layer in layers]
    with pytest.raises(RuntimeError, match="shape"), filters_enabled(layers, off):
        network(torch.zeros(2, 9))
    assert list(network.state_dict()) == names
    assert not any(module._forward_hooks for module in network.modules())
    x = torch.randn(2, 4)
    assert torch.equal(network(x), copied(x))


def tied():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    return network


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "running statistics of 1 drift"),
        (
            nn.Sequential(nn.Conv2d(3, 3, 1), nn.InstanceNorm2d(3, track_running_stats=True)),
            "drift with every task",
        ),
        (nn.Sequential(nn.Linear(3, 3), nn.PReLU()), "1.weight belongs to no filter"),
        (nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 3)), "0.weight belongs to no filter"),
        (nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2)), nn.LayerNorm(2)), "2.weight"),
        (nn.ConvTranspose2d(3, 3, 1), "weight belongs to no filter"),
        (tied(), "or to several"),
    ],
)
def test_networks_that_cannot_be_packed_are_refused(network, message):
    with pytest.raises(InputError, match=message):
        filter_layers(network)
