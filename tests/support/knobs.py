"""Knobs of an engine, drawn: those of a candidate, or any legal ones."""

_TRIES = 1000


def drawn_knobs(random, engine, fusion, target):
    candidates = engine.candidates(fusion, target)
    if random.random() < 0.5:
        for _ in range(_TRIES):
            knobs = {k.name: random.choice(k.values) for k in engine.knobs(fusion, target)}
            if not engine.legal(knobs, fusion, target):
                assert engine.predict(fusion, knobs, target).seconds > 0
                return knobs
    return random.choice(list(candidates))
