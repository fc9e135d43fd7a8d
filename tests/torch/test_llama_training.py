"""`python -m examples.llama train` on the CPU: the same losses and gradients as torch's own."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import dnnc.torch  # noqa: E402
from examples.llama.__main__ import main  # noqa: E402
from examples.llama.train_command import trained  # noqa: E402

pytestmark = pytest.mark.torch


def test_the_command(capsys):
    words = ["train", "--device", "cpu", "--batch", "1", "--tokens", "8", "--steps", "2"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "float32" in printed
    assert printed.count("\n") >= 5


def test_a_wrong_gradient_is_found(monkeypatch, capsys):
    def wrong(q, k, v, **options):
        return scaled_dot_product_attention(q, k, 1.01 * v, **options)

    monkeypatch.setattr("dnnc.torch.sdpa", wrong)
    assert main(["train", "--device", "cpu", "--tokens", "8", "--steps", "1"]) == 1
    assert "largest relative error" in capsys.readouterr().out


def test_losses_fall():
    found = trained("small", "cpu", 2, 8, 8, 0, dnnc.torch.sdpa, torch.float32)
    assert found.losses[-1] < found.losses[0]
