"""Sentences that the demo reads: pairs that say nearly the same in other words."""

PAIRS = (
    (
        "A compiler translates the whole program before it runs.",
        "Source code is turned into machine instructions ahead of time.",
    ),
    (
        "The cat is sleeping on a warm windowsill.",
        "A kitten naps by the window in the sun.",
    ),
    (
        "The central bank raised interest rates again.",
        "Borrowing money became more expensive after the bank's decision.",
    ),
    (
        "She boiled pasta and made a tomato sauce for dinner.",
        "For supper he cooked spaghetti with tomatoes.",
    ),
)
