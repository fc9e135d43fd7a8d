"""Knobs of an engine, drawn: those of a candidate, or any legal ones."""

_TRIES = 1000


def drawn_knobs(random, engine, fusion, target):
    """Any ones are those of a candidate, half of them changed: of knobs that are all drawn, as
    where there is no candidate, few go together."""
    candidates = list(engine.candidates(fusion, target))
    if random.random() < 0.5:
        for _ in range(_TRIES):
            base = random.choice(candidates) if candidates else {}
            knobs = {
                k.name: random.choice(k.values)
                if k.name not in base or random.random() < 0.5
                else base[k.name]
                for k in engine.knobs(fusion, target)
            }
            if not engine.legal(knobs, fusion, target):
                assert engine.predict(fusion, knobs, target).seconds > 0
                return knobs
    return random.choice(candidates)
