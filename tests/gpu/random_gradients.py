"""Random gradients of convolutions on the device against float64, by many processes.

    python -m tests.gpu.random_gradients --first 0 --count 1000 --processes 14

A seed is a graph (layout, strides, dilations, groups, paddings, types, work before and after), an
engine, knobs and inputs.  The engines take turns: those of filters' gradients, those of images'
and the fallback of both.  With `--only` all seeds are of one kind.  Other options:
`many_seeds.py`.
"""

from __future__ import annotations

import argparse
import sys

from . import many_seeds

_FILTERS = ("conv_wgrad_sm90", "conv_wgrad_sm80", "conv_wgrad_depthwise")
_IMAGES = (
    "conv_sm90", "conv_sm80", "conv_depthwise", "conv_grouped_sm80", "conv_product_sm90",
    "conv_stem_sm90",
)  # fmt: skip
_FALLBACK = ("conv_dgrad", "conv_wgrad")
# Engines of Hopper's layers twice: they have the most forms.
TURNS = (*_FILTERS, *_IMAGES, *_FALLBACK, "conv_wgrad_sm90", "conv_sm90")
KINDS = tuple(dict.fromkeys(TURNS))


def kind_of(seed: int, only: str = "") -> str:
    return only or TURNS[seed % len(TURNS)]


def check(seed: int, kind: str, options: argparse.Namespace) -> None:
    from tests.engines.conv import test_random_conv_gradients as fallback
    from tests.engines.conv import test_random_convs as images
    from tests.engines.conv import test_random_wgrads as filters

    if kind in _FALLBACK:
        fallback.run(kind, seed)
    elif kind in _FILTERS:
        filters.run(kind, seed)
    else:
        images.run(kind, seed, is_gradient=True)


def main(arguments: list[str] | None = None) -> int:
    command = many_seeds.Command("random_gradients", KINDS, kind_of, check)
    return many_seeds.main(command, arguments)


if __name__ == "__main__":
    sys.exit(main())
