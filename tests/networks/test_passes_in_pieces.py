"""Many images with gradient pass the native ResNet in pieces, and it makes no difference."""

import pytest
import torch

from deepccg.networks import NetworkConfig, SlimResNet18, build_network
from deepccg.networks.kernels import collect_per_sample_gradients, unavailable_reason

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=f"{unavailable_reason()}")


class Pieces(list):
    """How many images each pass through ``network`` has, those that pad it included."""

    def __init__(self, network: SlimResNet18) -> None:
        super().__init__()
        network.stem.register_forward_pre_hook(lambda _, args: self.append(len(args[0])))


def network_and_images(count: int) -> tuple[SlimResNet18, torch.Tensor]:
    network = build_network(NetworkConfig(width=2), (3, 16, 16), 0, native=True)
    generator = torch.Generator().manual_seed(0)
    return network, torch.randint(0, 256, (count, 3, 16, 16), generator=generator).byte()


@pytest.mark.parametrize(("count", "pieces"), [(20, [24]), (48, [48]), (49, [24, 24, 8])])
def test_up_to_two_chunks_pass_at_once(count, pieces):
    network, x = network_and_images(count)
    passed = Pieces(network)
    network(x)
    assert passed == pieces


def test_pieces_have_the_embeddings_and_the_gradient_of_the_whole():
    network, x = network_and_images(60)
    parameters = list(network.parameters())
    z = network(x)
    found = torch.autograd.grad(z.square().sum(), parameters)
    with collect_per_sample_gradients(60):
        passed = Pieces(network)
        whole = network(x)
    assert passed == [64]  # gradients of each image are of one pass
    assert torch.equal(z, whole)
    halves = [network(part) for part in torch.split(x, 30)]
    expected = torch.autograd.grad(torch.cat(halves).square().sum(), parameters)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
