"""Muon and Adam against their definitions."""

import torch

from pretraining.optimiser import Optimiser, orthogonalise


def test_orthogonalise_brings_singular_values_near_one():
    matrices = torch.randn(3, 40, 24, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    assert values.min() > 0.5
    assert values.max() < 1.5
    u, _, v = torch.linalg.svd(matrices[0], full_matrices=False)
    close = torch.nn.functional.cosine_similarity(orthogonalise(matrices)[0].flatten(), (u @ v).flatten(), dim=0)
    assert close > 0.95


def test_vectors_follow_adam():
    ours = torch.nn.Parameter(torch.linspace(-1, 1, 7))
    more = torch.nn.Parameter(torch.zeros(2, 2, 2))
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in (ours, more)]
    optimiser = Optimiser([ours, more])
    reference = torch.optim.Adam(theirs, lr=0.01, betas=(0.9, 0.98), eps=1e-8)
    generator = torch.Generator().manual_seed(3)
    optimiser.rate.fill_(0.01)
    for _ in range(20):
        for mine, other in zip((ours, more), theirs, strict=True):
            gradient = 0.01 * torch.randn(mine.shape, generator=generator)  # too small to be clipped
            mine.grad.copy_(gradient)
            other.grad = gradient.clone()
        optimiser.step()
        reference.step()
    torch.testing.assert_close(ours.data, theirs[0].data, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(more.data, theirs[1].data, rtol=1e-4, atol=1e-6)


def test_queries_keys_and_values_are_three_matrices():
    packed = torch.nn.Parameter(torch.zeros(12, 4))
    optimiser = Optimiser([packed, torch.nn.Parameter(torch.zeros(2))])
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
    optimiser = Optimiser([vector, matrix])
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
    optimiser = Optimiser(layer.parameters())
    layer(torch.ones(2, 3)).sum().backward()
    memory = optimiser.gradients.untyped_storage().data_ptr()
    assert layer.weight.grad.untyped_storage().data_ptr() == memory
    assert layer.bias.grad.untyped_storage().data_ptr() == memory
    assert torch.equal(layer.bias.grad, torch.full((4,), 2.0))
    assert optimiser.gradients.abs().sum() == layer.weight.grad.abs().sum() + layer.bias.grad.abs().sum()
    optimiser.rate.fill_(0.1)
    before = layer.bias.detach().clone()
    optimiser.step()
    assert not torch.equal(before, layer.bias)
