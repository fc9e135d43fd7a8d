"""Names of C: identifiers from any text, comments and strings that hold any text."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Words of C and C++, macros of their headers, and names that generated functions use themselves.
_TAKEN = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while
    alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class compl
    concept consteval constexpr constinit const_cast co_await co_return co_yield decltype delete
    dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public reinterpret_cast requires static_assert static_cast
    template this thread_local throw true try typeid typename typeof typeof_unqual using virtual
    wchar_t xor xor_eq
    NULL EOF BUFSIZ TRUE FALSE I errno stdin stdout stderr offsetof assert linux unix
    args error is_bad max_dynamic_smem_bytes needed out plan sizes sm_count stream workspace
    """.split()
)
_MACROS = re.compile(r"CU[A-Z0-9_]*|U?INT\w*_(MAX|MIN|C)|SIZE_MAX|HUGE_VAL\w*|INFINITY|NAN")

# A plan of such a name would define a type that C has.
_TYPES = re.compile(
    r"(u?int(_least|_fast)?(8|16|32|64)?|u?intptr|u?intmax|cuuint(32|64)|s?size|ptrdiff|w?char\d*"
    r"|wint|wctype|wctrans|max_align|time|clock|l{0,2}div|imaxdiv|fpos|mbstate|sig_atomic|float"
    r"|double|fenv|fexcept|off|pid|locale|nullptr|byte)",
    re.IGNORECASE,
)


def identifier(text: str) -> str:
    """A C identifier as near to the text as can be; equal texts give equal ones."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if not name[:1].isalpha():
        name = f"t{name}"
    return f"{name}_" if name in _TAKEN or _MACROS.fullmatch(name) else name


def prefix(text: str) -> str:
    """What the names of a file of this name begin with."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if not name[:1].isalpha():
        name = f"dnnc_{name.lstrip('_')}"
    is_taken = _TYPES.fullmatch(name) or name.lower() in ("cu", "cuda")
    return f"{name}_plan" if is_taken else name


def different(names: Iterable[tuple[str, str]]) -> list[str]:
    """(name, suffix) each -> names that differ; where some are equal, those get their suffixes.

    A name with suffix "" keeps its name if one of them may.
    """
    pairs = list(names)
    counts: dict[str, int] = {}
    for name, _ in pairs:
        counts[name] = counts.get(name, 0) + 1
    taken = {name for name, suffix in pairs if counts[name] == 1 or not suffix}
    found: list[str] = []
    kept: set[str] = set()
    for name, suffix in pairs:
        made = name
        if counts[name] > 1 and (suffix or name in kept):
            made = f"{name}_{suffix}"
            while made in taken:
                made += "_"
        taken.add(made)
        kept.add(made)
        found.append(made)
    return found


def comment(text: str) -> str:
    """The text as it may stand in a comment."""
    text = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "|")


def string(text: str) -> str:
    """The text as a C string."""
    escaped = (_escaped(byte) for byte in text.encode())
    return f'"{"".join(escaped)}"'


def _escaped(byte: int) -> str:
    # A question mark too: two of them begin a trigraph.
    if 32 <= byte < 127 and chr(byte) not in '"\\?':
        return chr(byte)
    return f"\\{byte:03o}"
