"""Functions of C for sizes and numbers; a source has those that it calls."""

from __future__ import annotations

import re

# In the order of the file: a function stands after those that it calls.
_FUNCTIONS = {
    "checked_add": """\
static int64_t checked_add(struct sizes *s, int64_t a, int64_t b)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
        s->is_bad = 1;
        return 0;
    }
    return a + b;
}
""",
    "checked_mul": """\
static int64_t checked_mul(struct sizes *s, int64_t a, int64_t b)
{
    int is_over;
    if (a > 0)
        is_over = b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a;
    else
        is_over = b > 0 ? a < INT64_MIN / b : a != 0 && b < INT64_MAX / a;
    if (is_over) {
        s->is_bad = 1;
        return 0;
    }
    return a * b;
}
""",
    "floor_div": """\
/* a / b, rounded to minus infinity. */
static int64_t floor_div(struct sizes *s, int64_t a, int64_t b)
{
    if (b <= 0) {
        s->is_bad = 1;
        return 0;
    }
    return a / b - (a % b < 0);
}
""",
    "floor_mod": """\
/* a - b * floor(a / b) */
static int64_t floor_mod(struct sizes *s, int64_t a, int64_t b)
{
    if (b <= 0) {
        s->is_bad = 1;
        return 0;
    }
    return a % b < 0 ? a % b + b : a % b;
}
""",
    "ceil_div": """\
/* a / b, rounded up. */
static int64_t ceil_div(struct sizes *s, int64_t a, int64_t b)
{
    if (b <= 0) {
        s->is_bad = 1;
        return 0;
    }
    return a / b + (a % b > 0);
}
""",
    "minimum": """\
static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
""",
    "maximum": """\
static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
""",
    "magic_shift": """\
/* 31 + ceil(log2 d): n / d = (n * magic) >> magic_shift for 0 <= n < 2^31. */
static int64_t magic_shift(struct sizes *s, int64_t d)
{
    int64_t shift = 31;
    if (d <= 0) {
        s->is_bad = 1;
        return 0;
    }
    for (d -= 1; d > 0; d >>= 1)
        shift += 1;
    return shift;
}
""",
    "magic": """\
/* 2^magic_shift / d, rounded up. */
static int64_t magic(struct sizes *s, int64_t d)
{
    const int64_t shift = magic_shift(s, d);
    uint64_t quotient = 0, rest = 1;
    int64_t bit;
    if (shift == 0)
        return 0;
    if (shift < 64) {
        quotient = (UINT64_C(1) << shift) / (uint64_t)d;
        rest = (UINT64_C(1) << shift) % (uint64_t)d;
        return (int64_t)(quotient + (rest > 0));
    }
    for (bit = 0; bit < shift; bit++) { /* long division: rest < d <= 2^63 */
        quotient <<= 1;
        rest <<= 1;
        if (rest >= (uint64_t)d) {
            rest -= (uint64_t)d;
            quotient += 1;
        }
    }
    return (int64_t)(quotient + (rest > 0));
}
""",
    "outside": """\
/* Whether bytes from an offset are not all inside a room. */
static int outside(int64_t offset, int64_t count, int64_t room)
{
    return offset < 0 || count < 0 || offset > room || count > room - offset;
}
""",
    "as_i32": """\
/* A 32-bit argument. */
static int32_t as_i32(struct sizes *s, int64_t value)
{
    if (value < INT32_MIN || value > INT32_MAX) {
        s->is_bad = 1;
        return 0;
    }
    return (int32_t)value;
}
""",
    "rounded": """\
/* The bits of a float of 8 or 16 bits: rounded to nearest even, `over` past `largest`. */
static uint32_t rounded(float value, int mantissa, int bias, uint32_t largest, uint32_t over,
                        uint32_t nan, int sign_bit)
{
    uint32_t bits, sign, significand, kept, rest, half, found;
    int exponent, shift = 23 - mantissa;
    memcpy(&bits, &value, sizeof bits);
    sign = (bits >> 31) << sign_bit;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return sign | nan;
    exponent = (int)(bits >> 23);
    significand = bits & 0x7fffff;
    if (exponent > 0)
        significand |= 0x800000;
    else
        exponent = 1;
    exponent += bias - 127;
    if (exponent < 1) { /* below the normal numbers */
        shift += 1 - exponent;
        exponent = 1;
    }
    if (shift > 24)
        return sign;
    kept = significand >> shift;
    rest = significand & ((UINT32_C(1) << shift) - 1);
    half = UINT32_C(1) << (shift - 1);
    if (rest > half || (rest == half && (kept & 1) != 0))
        kept += 1;
    found = ((uint32_t)(exponent - 1) << mantissa) + kept;
    return sign | (found > largest ? over : found);
}
""",
}


def arithmetic(text: str) -> str:
    """The functions that a text calls, and what they call, in order."""
    found: list[str] = []
    for name, body in reversed(_FUNCTIONS.items()):
        if re.search(rf"\b{name}\(", text):
            found.append(body)
            text += body
    return "\n".join(reversed(found))
