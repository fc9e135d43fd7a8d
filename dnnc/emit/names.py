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
    I alloca assert complex environ errno fpclassify i386 imaginary linux math_errhandling offsetof
    signbit stderr stdin stdout unix
    args error is_bad max_dynamic_smem_bytes needed out plan sizes sm_count stream workspace
    """.split()
)
# Names that no macro or type of C's headers has: small letters, but for a capital at the start, or
# a capital with a number.
_FREE = re.compile(r"[A-Z](_?[0-9]+)*|[A-Z]_?[a-z]\w*|[a-z]\w*", re.ASCII)
# Those with small letters that have: types, what CUDA declares, macros of POSIX.
_SUSPECT = re.compile(
    r"\w*_t|cu[A-Z]\w*|[LP]_\w*|(be|le)\d+toh|hto(be|le)\d+|is[a-z]+(_l)?|to(ascii|lower|upper)(_l)?"
    r"|(s[ait]|pthread|sched|sigev)_\w+|sigmask",
    re.ASCII,
)

# A plan of such a name would define a type or a macro that C, POSIX or CUDA has.
_TYPES = re.compile(
    r"(u?int(_least|_fast)?(8|16|32|64)?|u?intptr|u?intmax|cuuint(32|64)|s?size|ptrdiff|w?char\d*"
    r"|wint|wctype|wctrans|max_align|time|clock|l{0,2}div|imaxdiv|fpos|mbstate|sig_atomic|float"
    r"|double|fenv|fexcept|off|pid|locale|nullptr|byte"
    r"|u_int\d+|(u_)?quad|pthread(_\w+)?|sigset|timer|clockid|l?off(64)?|dev|ino(64)?|mode|nlink"
    r"|[ug]?id|key|register|blksize|blkcnt|fsid|fs(blk|fil)cnt|[cd]addr|u?seconds|suseconds|socklen"
    r"|errno|rsize|exit|cu(da)?(_\w+)?)",
    re.IGNORECASE | re.ASCII,
)


def identifier(text: str) -> str:
    """A C identifier as near to the text as can be; equal texts give equal ones.

    It is no keyword, macro or type, whatever the text: what may be one ends in `_`.
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if not name[:1].isalpha():
        name = f"t{name}"
    is_free = name not in _TAKEN and _FREE.fullmatch(name) and not _SUSPECT.fullmatch(name)
    return name if is_free else f"{name}_"


def prefix(text: str) -> str:
    """The prefix of all names of a file of this name."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if not name[:1].isalpha():
        name = f"dnnc_{name.lstrip('_')}"
    return f"{name}_plan" if _TYPES.fullmatch(name) else name


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
    # Not the mark of what sources fill in, either.
    text = "".join(c if c.isascii() and c.isprintable() and c != "$" else "?" for c in text)
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "|")


def string(text: str) -> str:
    """The text as a C string."""
    escaped = (_escaped(byte) for byte in text.encode())
    return f'"{"".join(escaped)}"'


def _escaped(byte: int) -> str:
    # A question mark too: two of them begin a trigraph.  A dollar is the mark of what sources fill
    # in.
    if 32 <= byte < 127 and chr(byte) not in '"\\?$':
        return chr(byte)
    return f"\\{byte:03o}"
