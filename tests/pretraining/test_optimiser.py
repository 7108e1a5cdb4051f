"""Muon and Adam against their definitions."""

import torch

from pretraining.optimiser import Optimiser, orthogonalise


def holder(*parameters):
    """A module of these parameters."""
    return torch.nn.ParameterList(parameters)


def test_orthogonalise_brings_singular_values_near_one():
    matrices = torch.randn(3, 40, 24, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    assert values.min() > 0.5
    assert values.max() < 1.5
    u, _, v = torch.linalg.svd(matrices[0], full_matrices=False)
    close = torch.nn.functional.cosine_similarity(
        orthogonalise(matrices)[0].flatten(), (u @ v).flatten(), dim=0
    )
    assert close > 0.95


def test_vectors_follow_adam():
    ours = torch.nn.Parameter(torch.linspace(-1, 1, 7))
    more = torch.nn.Parameter(torch.zeros(2, 2, 2))
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in (ours, more)]
    optimiser = Optimiser(holder(ours, more))
    reference = torch.optim.Adam(theirs, lr=0.01, betas=(0.9, 0.98), eps=1e-8)
    generator = torch.Generator().manual_seed(3)
    optimiser.rate.fill_(0.01)
    for _ in range(20):
        for mine, other in zip((ours, more), theirs, strict=True):
            gradient = 0.01 * torch.randn(
                mine.shape, generator=generator
            )  # too small to be clipped
            mine.grad.copy_(gradient)
            other.grad = gradient.clone()
        optimiser.step()
        reference.step()
    torch.testing.assert_close(ours.data, theirs[0].data, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(more.data, theirs[1].data, rtol=1e-4, atol=1e-6)


def test_queries_keys_and_values_are_three_matrices():
    packed = torch.nn.Parameter(torch.zeros(12, 4))
    optimiser = Optimiser(holder(packed, torch.nn.Parameter(torch.zeros(2))))
    assert list(optimiser.matrices) == [(4, 4)]
    optimiser.rate.fill_(1.0)
    packed.grad.copy_(torch.randn(12, 4, generator=torch.Generator().manual_seed(1)))
    optimiser.step()
    for part in packed.data.chunk(3):  # each one orthogonal, up to the length of the step
        values = torch.linalg.svdvals(part) / (0.2 * 4**0.5)
        assert values.min() > 0.4
        assert values.max() < 1.6


def test_a_batch_that_overflowed_moves_nothing():
    vector, matrix = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(4, 5))
    optimiser = Optimiser(holder(vector, matrix))
    for bad in (0.5, float("nan"), float("inf")):  # the first builds momentum up
        before = [vector.detach().clone(), matrix.detach().clone()]
        optimiser.rate.fill_(0.1)
        vector.grad.fill_(bad)
        matrix.grad.fill_(1.0)
        optimiser.step()
        moved = [not torch.equal(a, b) for a, b in zip(before, (vector, matrix), strict=True)]
        assert moved == [bad == 0.5] * 2
    assert all(torch.isfinite(tensor).all() for tensor in optimiser.state().values())


def test_gradients_and_parameters_keep_their_memory():
    layer = torch.nn.Linear(3, 4)
    optimiser = Optimiser(layer)
    layer(torch.ones(2, 3)).sum().backward()
    memory = optimiser.gradients.untyped_storage().data_ptr()
    assert layer.weight.grad.untyped_storage().data_ptr() == memory
    assert layer.bias.grad.untyped_storage().data_ptr() == memory
    assert torch.equal(layer.bias.grad, torch.full((4,), 2.0))
    assert (
        optimiser.gradients.abs().sum()
        == layer.weight.grad.abs().sum() + layer.bias.grad.abs().sum()
    )
    optimiser.rate.fill_(0.1)
    before = layer.bias.detach().clone()
    optimiser.step()
    assert not torch.equal(before, layer.bias)


def test_the_average_follows_the_parameters_and_swaps_with_them():
    layer = torch.nn.Linear(3, 4)
    optimiser = Optimiser(layer)
    expected = {name: p.detach().clone() for name, p in layer.named_parameters()}
    for step in range(1, 30):
        optimiser.gradients.copy_(torch.randn(16, generator=torch.Generator().manual_seed(step)))
        optimiser.rate.fill_(0.01)
        optimiser.step()
        share = 1 - min((1 + step) / (10 + step), 0.999)
        for name, p in layer.named_parameters():
            expected[name] += share * (p.detach() - expected[name])
    for name, average in optimiser.averaged().items():
        torch.testing.assert_close(average, expected[name])
        assert not torch.allclose(average, dict(layer.named_parameters())[name])
    last = layer.weight.detach().clone()
    optimiser.swap()
    torch.testing.assert_close(layer.weight.detach(), expected["weight"])
    optimiser.swap()
    assert torch.equal(layer.weight.detach(), last)


def test_a_slower_pace_is_a_factor_on_what_a_layer_adds():
    """A layer that starts at half and learns at half the pace equals half the output of a layer of
    its own."""
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    target = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    full, half = (torch.nn.ModuleDict({"a": torch.nn.Linear(4, 5, bias=False)}) for _ in range(2))
    vector = torch.nn.Parameter(
        torch.zeros(1)
    )  # the optimiser wants one parameter that is no matrix
    full["a"].unused, half["a"].unused = vector, torch.nn.Parameter(torch.zeros(1))
    half["a"].weight.data.copy_(0.5 * full["a"].weight.data)
    first, second = Optimiser(full), Optimiser(half, {"a.weight": 0.5})
    for _ in range(5):
        for module, optimiser, factor in ((full, first, 0.5), (half, second, 1.0)):
            optimiser.gradients.zero_()
            optimiser.rate.fill_(0.02)
            (0.01 * (factor * module["a"](x) - target).square().mean()).backward()
            optimiser.step()
    torch.testing.assert_close(
        half["a"].weight.data, 0.5 * full["a"].weight.data, rtol=0.02, atol=2e-3
    )
