"""PTX without locations: the text that LLVM writes for kernels that name no stretches."""

import re

_PLACE = re.compile(
    r"^(?:\t\.(?:loc|file)\t.*|\$L__(?:tmp|func_begin|func_end)\d+:"
    r"|\t\.section\t\.debug_str\n\t\{\n[^}]*\t\}|\t\.section\t\.debug_macinfo\t\{\t\})\n",
    re.MULTILINE,
)


def plain(ptx):
    # Before a location LLVM ends the line of inline assembly once more.
    return _PLACE.sub("", ptx).replace("\n\n\t// end inline asm", "\n\t// end inline asm")
