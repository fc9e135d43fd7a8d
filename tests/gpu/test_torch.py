"""`dnnc.torch.sdpa` on a device, beside torch's own in float64."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import dnnc  # noqa: E402
import dnnc.torch  # noqa: E402

DOCS = Path(__file__).parent.parent.parent / "docs"
UNIT = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-18}

CASES = {
    "plain": ((2, 4, 4, 100, 100, 64), {}),
    "causal": ((2, 4, 4, 300, 300, 128), {"is_causal": True}),
    "shared heads": ((1, 8, 2, 129, 257, 64), {"enable_gqa": True}),
    "odd": ((1, 3, 3, 77, 131, 72), {"scale": 0.2}),
    "mask": ((2, 2, 2, 65, 65, 64), {"attn_mask": "booleans"}),
    "bias": ((2, 2, 2, 65, 65, 64), {"attn_mask": "numbers"}),
}


def mask_of(kind, rows, columns, dtype):
    if kind == "booleans":
        return torch.tril(torch.ones(rows, columns, dtype=torch.bool, device="cuda"))
    made = torch.randn(1, 2, rows, columns, dtype=dtype, device="cuda")
    return made.requires_grad_()


def results(function, given, options, gradient):
    """Results that a function makes of tensors, and their gradients."""
    mask = options.get("attn_mask")
    inputs = [*given, mask] if mask is not None and mask.requires_grad else given
    made = function(*given, **options)
    return [made, *torch.autograd.grad(made, inputs, gradient.to(made.dtype))]


def in_float64(tensor):
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


@pytest.mark.parametrize("dtype", UNIT, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_as_torch(case, dtype):
    (batch, heads, shared, rows, columns, depth), options = case
    sizes = (heads, rows), (shared, columns), (shared, columns)
    given = [
        torch.randn(batch, s, own, depth, device="cuda", dtype=dtype)
        .transpose(1, 2)
        .requires_grad_()
        for own, s in sizes
    ]
    if kind := options.get("attn_mask"):
        options = {"attn_mask": mask_of(kind, rows, columns, dtype)}
    gradient = torch.randn_like(given[0])
    ours = results(dnnc.torch.sdpa, given, options, gradient)
    exact_options = dict(options)
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype != torch.bool:
        exact_options["attn_mask"] = in_float64(mask)
    exact = results(
        scaled_dot_product_attention, [in_float64(t) for t in given], exact_options, gradient
    )
    for own, wanted in zip(ours, exact, strict=True):
        error = (own.double() - wanted).norm() / wanted.norm()
        assert error < 3 * UNIT[dtype], error


def test_gradcheck_in_float64():
    given = [torch.randn(1, 2, 9, 8, device="cuda", dtype=torch.float64) for _ in range(3)]
    inputs = [tensor.requires_grad_() for tensor in given]
    assert torch.autograd.gradcheck(lambda *a: dnnc.torch.sdpa(*a, is_causal=True), inputs)


def test_dropout_has_the_same_mask_backward():
    """With V of ones, a row of O is the sum of its kept weights, and so is that of dV."""
    q, k = (torch.randn(1, 2, 64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    v = torch.ones_like(q).requires_grad_()
    made = dnnc.torch.sdpa(q, k, v, dropout_p=0.5)
    (dv,) = torch.autograd.grad(made, v, torch.ones_like(made))
    torch.testing.assert_close(
        dv[..., 0].float().sum(-1), made[..., 0].float().sum(-1), rtol=5e-3, atol=5e-2
    )
    assert made[..., 0].float().std() > 0.01


def test_on_a_stream_and_of_an_odd_address():
    stream = torch.cuda.Stream()
    whole = torch.randn(2 * 2 * 40 * 64 + 1, device="cuda", dtype=torch.float16)
    q = whole[1:].view(2, 2, 40, 64)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        made = dnnc.torch.sdpa(q, q, q)
    stream.synchronize()
    exact = q.double()
    wanted = scaled_dot_product_attention(exact, exact, exact)
    torch.testing.assert_close(made.double(), wanted, rtol=1e-2, atol=2e-3)


def test_the_page():
    text = (DOCS / "torch.md").read_text()
    names = {}
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(block, "torch.md", "exec"), names)
    assert all(names[name].grad.abs().sum() > 0 for name in "qkv")


def test_tensors_on_two_devices_are_refused():
    q = torch.randn(1, 1, 8, 64, device="cuda", dtype=torch.float16)
    with pytest.raises(dnnc.DnncError, match="key on cpu"):
        dnnc.torch.sdpa(q, q.cpu(), q)
