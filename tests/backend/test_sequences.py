"""Random sequences of calls: the status that the rules say, no crash, no leak, any threads."""

import gc
import random
import sys
import threading
import weakref

import pytest

from dnnc import DnncError, Status
from dnnc import backend as b
from dnnc.backend.descriptor import Record

from .building import made, opened, tensor
from .rules import RULES, Model

SEQUENCES, LENGTH = 500, 40
KINDS = list(RULES)
NAMES = [name for rules in RULES.values() for name in rules]
TYPES = list(b.cudnnBackendAttributeType_t)


def answer(call, *arguments):
    """(status, result) of a call; what is no DnncError fails the test."""
    try:
        return Status.SUCCESS, call(*arguments)
    except DnncError as error:
        status, text = error.status, str(error)
    assert text.startswith(f"{status.name}: ")
    return status, None


class Sequence:
    """Calls on a few descriptors; each is made of the model and of `dnnc.backend`."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.pairs = []
        self.successes = 0
        self.log = []

    def run(self):
        if self.rng.random() < 0.5:
            self.prepare()
        for _ in range(LENGTH):
            step = self.rng.choices(
                [self.create, self.set, self.complete, self.finalize, self.get, self.destroy],
                [2, 5, 4, 4, 4, 1],
            )[0]
            step()

    def check(self, statuses, status, *call):
        self.log.append((*call, status.name))
        assert status in statuses, (statuses, self.log[-1], self.log)
        self.successes += status is Status.SUCCESS

    def create(self):
        if self.rng.random() < 0.1:
            wrong = self.rng.choice([44, 99, -1, "TENSOR", None])
            known = Status.NOT_SUPPORTED if isinstance(wrong, int) else Status.BAD_PARAM
            self.check({known}, answer(b.create_descriptor, wrong)[0], "create", wrong)
            return
        kind = self.rng.choice(KINDS)
        number = getattr(b, f"CUDNN_BACKEND_{kind}_DESCRIPTOR")
        status, descriptor = answer(b.create_descriptor, number)
        self.check({Status.SUCCESS}, status, "create", kind)
        self.pairs.append((Model(kind), descriptor))

    def prepare(self):
        """Some steps of the right way to a graph of a product, as far as chance lets it go."""
        dims = {1: [4, 8], 2: [8, 4], 3: [4, 4]}
        tensors = []
        for uid, sides in dims.items():
            values = [[uid], [0], [16], sides, [sides[1], 1]]
            tensors.append(self.right("TENSOR", values))
        product = self.right("MATMUL", [[0]])
        operation = self.right("OPERATION_MATMUL", [[item] for item in (*tensors, product)])
        self.right("OPERATIONGRAPH", [[operation]])

    def right(self, kind, values):
        """A pair whose required attributes are set, in their order, and mostly finalized."""
        descriptor = b.create_descriptor(getattr(b, f"CUDNN_BACKEND_{kind}_DESCRIPTOR"))
        pair = (Model(kind), descriptor)
        self.pairs.append(pair)
        names = [name for name, row in RULES[kind].items() if row.required]
        for name, items in zip(names, values, strict=True):
            row = RULES[kind][name]
            seen = [item[0] if row.nested else item for item in items]
            given = [item[1] if row.nested else item for item in items]
            self.put(pair, name, row.type, len(items), seen, given)
        if self.rng.random() < 0.9:
            statuses = pair[0].finalize()
            self.check(statuses, answer(b.finalize, descriptor)[0], "finalize", kind)
        return pair

    def pick(self, kind=None):
        """A pair, often of the kind that is wanted; None where there is none."""
        fitting = [p for p in self.pairs if p[0].kind == kind]
        if kind is not None and fitting and self.rng.random() < 0.9:
            finished = [p for p in fitting if p[0].state == "final"]
            return self.rng.choice(finished or fitting)
        return self.rng.choice(self.pairs) if self.pairs else None

    def elements(self, name, row):
        """(what the model sees, what is passed), mostly right."""
        rng = self.rng
        low, high = (row.low, min(row.high, 3)) if row else (1, 2)
        count = rng.randint(low, high)
        if rng.random() < 0.06:
            return count, None, None
        items = [self.element(name, row) for _ in range(count)]
        length = count if rng.random() < 0.94 else max(0, count - 1)
        items = items[:length]
        if rng.random() < 0.05:
            count = rng.choice([-1, 0, 9, count + 1])
        return count, [item[0] for item in items], [item[1] for item in items]

    def element(self, name, row):
        rng = self.rng
        if row is None or rng.random() < 0.04:
            value = rng.choice(["x", 1.5, None, object()])
            return (value, value)
        if row.nested:
            pair = self.pick(row.nested)
            return pair if pair is not None else (None, None)
        if row.type == b.CUDNN_TYPE_INT64:
            value = rng.choice([1, 2, 4, 4, 4, 8, 16, 0, -2])
        elif row.type == b.CUDNN_TYPE_DATA_TYPE:
            value = rng.choice([0, 0, 2, 16, 77])
        elif row.type == b.CUDNN_TYPE_BOOLEAN:
            value = rng.choice([True, False, False])
        else:
            value = rng.choice([256, 512])
        return value, value

    def put(self, pair, name, kind, count, seen, given):
        model, descriptor = pair
        statuses = model.set(name, kind, count, seen)
        status, _ = answer(b.set_attribute, descriptor, name, kind, count, given)
        self.check(statuses, status, "set", model.kind, name.name, kind.name, count, seen)

    def set(self):
        pair = self.pick()
        if pair is None:
            return
        rules = pair[0].rules
        name = self.rng.choice(list(rules) if self.rng.random() < 0.9 else NAMES)
        row = rules.get(name)
        kind = row.type if row and self.rng.random() < 0.93 else self.rng.choice(TYPES)
        if row and kind != row.type and kind in (b.CUDNN_TYPE_FLOAT, b.CUDNN_TYPE_DOUBLE):
            kind = b.CUDNN_TYPE_CHAR
        self.put(pair, name, kind, *self.elements(name, row))

    def complete(self):
        """Sets all that a descriptor needs, so that some are finalized."""
        pair = self.pick()
        if pair is None:
            return
        square = self.rng.choice([[4, 4], [4, 8], [8, 4]])
        right = {
            b.CUDNN_ATTR_TENSOR_UNIQUE_ID: [self.rng.randint(1, 9)],
            b.CUDNN_ATTR_TENSOR_DATA_TYPE: [0],
            b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: [16],
            b.CUDNN_ATTR_TENSOR_DIMENSIONS: square,
            b.CUDNN_ATTR_TENSOR_STRIDES: [square[1], 1],
            b.CUDNN_ATTR_MATMUL_COMP_TYPE: [0],
            b.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: [1, 2],
            b.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: [256, 512],
            b.CUDNN_ATTR_VARIANT_PACK_WORKSPACE: [0],
        }
        for name, row in pair[0].rules.items():
            if not row.required:
                continue
            if name in right:
                seen = given = right[name]
            else:
                found = self.pick(row.nested)
                seen, given = [found[0]], [found[1]]
            self.put(pair, name, row.type, len(given), seen, given)

    def finalize(self):
        pair = self.pick()
        if pair is None:
            return
        statuses = pair[0].finalize()
        self.check(statuses, answer(b.finalize, pair[1])[0], "finalize", pair[0].kind)

    def get(self):
        pair = self.pick()
        if pair is None:
            return
        model, descriptor = pair
        name = self.rng.choice(list(model.rules) if self.rng.random() < 0.9 else NAMES)
        row = model.rules.get(name)
        kind = row.type if row and self.rng.random() < 0.9 else self.rng.choice(TYPES)
        requested = self.rng.choice([None, None, 0, 1, 5, -1])
        statuses, count, elements = model.get(name, kind, requested)
        status, found = answer(b.get_attribute, descriptor, name, kind, requested)
        self.check(statuses, status, "get", model.kind, name.name, kind.name, requested)
        if found is None or (row and row.is_read_only):
            return
        assert found.element_count == count
        if row.nested:
            assert len(found.elements) == len(elements)
            for item, wanted in zip(found.elements, elements, strict=True):
                self.compare(item, wanted)
        else:
            assert list(found.elements) == elements

    def compare(self, descriptor, model):
        """A descriptor that was got holds what was finalized."""
        for name, row in model.rules.items():
            if not row.nested and not row.is_read_only:
                found = b.get_attribute(descriptor, name, row.type)
                assert list(found.elements) == model.get(name, row.type, None)[2]

    def destroy(self):
        pair = self.pick()
        if pair is None:
            return
        statuses = pair[0].destroy()
        self.check(statuses, answer(b.destroy_descriptor, pair[1])[0], "destroy", pair[0].kind)


@pytest.fixture
def _switching():
    """Threads take turns at almost every instruction."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def records():
    """Finalized states that are alive."""
    return sum(isinstance(item, Record) for item in gc.get_objects())


def test_sequences_end_as_the_rules_say_and_leave_nothing():
    gc.collect()
    before, successes, finalized = records(), 0, set()
    for seed in range(SEQUENCES):
        sequence = Sequence(seed)
        sequence.run()
        successes += sequence.successes
        finalized |= {model.kind for model, _ in sequence.pairs if model.state == "final"}
        alive = [weakref.ref(descriptor) for _, descriptor in sequence.pairs]
        del sequence  # no cycle holds them: the collector is not needed
        assert not [ref for ref in alive if ref() is not None]
    gc.collect()
    assert records() == before
    # They do not only fail: every kind that can be is finalized by some.
    assert successes > 5 * SEQUENCES
    assert finalized == set(KINDS) - {"KNOB_INFO"}


def test_sequences_in_several_threads_are_as_alone():
    failures = []

    def work(first):
        try:
            for seed in range(first, first + 15):
                Sequence(seed).run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1000 + 100 * i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


ALLOWED = {
    Status.SUCCESS, Status.BAD_PARAM, Status.NOT_INITIALIZED, Status.BAD_PARAM_NOT_FINALIZED,
    Status.BAD_PARAM_SHAPE_MISMATCH,
}  # fmt: skip


@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize("seed", range(4))
def test_descriptors_that_threads_share_are_finalized_and_destroyed_once(seed):
    """All call anything at any time; one finalize and one destroy of each has success."""
    kind = b.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR
    shared = [b.create_descriptor(kind) for _ in range(12)]
    ends = [
        (b.CUDNN_ATTR_OPERATION_RESHAPE_XDESC, [tensor(1, [4, 6])]),
        (b.CUDNN_ATTR_OPERATION_RESHAPE_YDESC, [tensor(2, [24])]),
    ]
    done = {name: [0] * len(shared) for name in ("finalize", "destroy")}
    failures, start = [], threading.Barrier(6)
    lock = threading.Lock()

    def count(name, place, status):
        assert status in ALLOWED
        if status is Status.SUCCESS:
            with lock:
                done[name][place] += 1

    def work(number):
        rng = random.Random(100 * seed + number)
        try:
            start.wait()
            for _ in range(400):
                place = rng.randrange(len(shared))
                descriptor = shared[place]
                choice = rng.random()
                if choice < 0.5:
                    name, value = rng.choice(ends)
                    status, _ = answer(
                        b.set_attribute, descriptor, name, b.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, value
                    )
                    assert status in ALLOWED
                elif choice < 0.7:
                    count("finalize", place, answer(b.finalize, descriptor)[0])
                elif choice < 0.97:
                    name, _ = rng.choice(ends)
                    kind = b.CUDNN_TYPE_BACKEND_DESCRIPTOR
                    status, found = answer(b.get_attribute, descriptor, name, kind)
                    assert status in ALLOWED
                    assert found is None or found.element_count == 1
                else:
                    count("destroy", place, answer(b.destroy_descriptor, descriptor)[0])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert max(done["finalize"]) == 1
    assert done["destroy"] == [1] * len(shared)


@pytest.mark.usefixtures("_switching")
def test_two_that_are_set_on_each_other_never_wait_for_each_other():
    name, kind = b.CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, b.CUDNN_TYPE_BACKEND_DESCRIPTOR
    numbers = b.CUDNN_TYPE_INT64
    rest = [
        (b.CUDNN_ATTR_TENSOR_UNIQUE_ID, numbers, [1]),
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, b.CUDNN_TYPE_DATA_TYPE, [0]),
        (b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, numbers, [4]),
        (b.CUDNN_ATTR_TENSOR_DIMENSIONS, numbers, [4]),
        (b.CUDNN_ATTR_TENSOR_STRIDES, numbers, [1]),
    ]
    for _ in range(300):
        pair = [opened(b.CUDNN_BACKEND_TENSOR_DESCRIPTOR, *rest) for _ in range(2)]
        for one, other in (pair, pair[::-1]):
            b.set_attribute(one, name, kind, 1, other)
        start = threading.Barrier(2)

        def work(descriptor, start=start):
            start.wait()
            assert answer(b.finalize, descriptor)[0] is Status.BAD_PARAM_NOT_FINALIZED

        threads = [threading.Thread(target=work, args=(item,), daemon=True) for item in pair]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()


def test_destroying_frees_what_a_descriptor_holds_at_once():
    """Without the garbage collector, also where others were finalized with it."""
    kind = b.CUDNN_TYPE_BACKEND_DESCRIPTOR
    x, y = tensor(1, [4, 6]), tensor(2, [24])
    reshape = made(
        b.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
        (b.CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kind, [x]),
        (b.CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kind, [y]),
    )
    open_ = b.create_descriptor(b.CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
    b.set_attribute(open_, b.CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kind, 1, tensor(3, [4]))
    set_on_it = weakref.ref(next(iter(open_._values.values())).values[0])
    states = [weakref.ref(item._record) for item in (x, y, reshape)]
    descriptors = [weakref.ref(item) for item in (x, y)]
    gc.disable()
    try:
        del x, y  # what is finalized keeps their states, not them
        assert all(ref() is None for ref in descriptors)
        assert all(ref() is not None for ref in states)
        b.destroy_descriptor(reshape)
        assert all(ref() is None for ref in states)
        b.destroy_descriptor(open_)
        assert set_on_it() is None
    finally:
        gc.enable()
