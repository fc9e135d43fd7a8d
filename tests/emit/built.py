"""Plans as C, compiled and linked with the stand-in for the driver, and called by ctypes."""

import ctypes

from dnnc import dtypes
from dnnc.emit import Interface, c_text, names, write_c
from dnnc.emit.interface import launches

from . import c_compiler

C_TYPES = {
    "CUdeviceptr": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "int32_t": ctypes.c_int32,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


def argument_sizes(launch):
    """Bytes of the arguments of a launch."""
    found = []
    for arg in launch.args:
        if arg.kind == "tensor_map":
            found.append(128)
        elif arg.kind == "scalar":
            found.append(4 if arg.type == "i32" else 8)
        elif arg.kind == "by_value":
            found.append(max(1, dtypes.of(arg.type).bits // 8))
        else:
            found.append(len(arg.data) // 2 if arg.kind == "bytes" else 8)
    return found


def kernel_sizes(plan):
    """Kernel -> bytes of its arguments: its name in its module, where kernels of other modules are
    called so with the place of the module, as "1:NAME"."""
    found, shared = {}, set()
    for program in plan.programs:
        kernels = {kernel.name: kernel for kernel in program.kernels}
        for launch in launches(program):
            kernel, sizes = kernels[launch.kernel], argument_sizes(launch)
            found[f"{kernel.module}:{kernel.entry}"] = sizes
            if found.setdefault(kernel.entry, sizes) != sizes:
                shared.add(kernel.entry)
    return {
        name: sizes
        for name, sizes in found.items()
        if (name.rpartition(":")[2] in shared) is (":" in name)
    }


class Built:
    """The functions of a plan's C.  device: (major, minor, SMs, shared memory)."""

    def __init__(self, plan, folder, fake_object, name="made"):
        self.plan = plan
        self.interface = Interface(plan, names.prefix(name))
        self.prefix = self.interface.prefix
        _, self.source = write_c(folder / name, plan)
        library = folder / f"{name}.so"
        c_compiler.c(
            "-O0", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", library, self.source, fake_object
        )
        self.library = ctypes.CDLL(str(library))
        self.library.fake_log.restype = ctypes.c_char_p
        self.library.fake_image.restype = ctypes.c_void_p
        self.library.fake_context.argtypes = [ctypes.c_size_t]
        self.Args = type(
            "Args",
            (ctypes.Structure,),
            {"_fields_": [(a.name, C_TYPES[a.type]) for a in self.interface.arguments]},
        )
        self.error_string = self.function("error_string")
        self.error_string.restype = ctypes.c_char_p
        self.function("run").argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p,
        ]  # fmt: skip
        self.handle = None

    def function(self, name):
        return getattr(self.library, f"{self.prefix}_{name}")

    def device(self, capability=(9, 0), sm_count=132, smem=232448):
        self.library.fake_device(*capability, sm_count, smem)
        statics = {k.entry: k.static_smem_bytes for p in self.plan.programs for k in p.kernels}
        for name, sizes in kernel_sizes(self.plan).items():
            array = (ctypes.c_int * max(1, len(sizes)))(*sizes)
            static = statics[name.rpartition(":")[2]]
            self.library.fake_kernel(name.encode(), static, len(sizes), array)

    def load(self):
        handle = ctypes.c_void_p(0xBAD)
        error = self.function("load")(ctypes.byref(handle))
        self.handle = handle
        return self.name(error)

    def unload(self):
        error = self.function("unload")(self.handle)
        self.handle = None
        return self.name(error)

    def args(self, values):
        """The struct; values: by the name of a member."""
        made = self.Args()
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def run(self, values, workspace=0, stream=0):
        made = self.args(values)
        error = self.function("run")(self.handle, ctypes.byref(made), workspace, stream)
        return self.name(error)

    def workspace_size(self, sizes):
        """(error, bytes); sizes: by symbol."""
        found = ctypes.c_size_t(0)
        values = [ctypes.c_int64(sizes[a.symbol.name]) for a in self.interface.sizes]
        error = self.function("workspace_size")(self.handle, *values, ctypes.byref(found))
        return self.name(error), found.value

    def name(self, error):
        """An error by its enumerator, without the prefix; a number of the driver's."""
        found = {row.value: row.name for row in self.interface.errors}
        return found.get(error, error)

    def lines(self):
        """Calls that the fake driver logged since the last time."""
        found = self.library.fake_log().decode().splitlines()
        self.library.fake_clear()
        return found

    def image(self, number, size):
        return ctypes.string_at(self.library.fake_image(number), size)


def text_of(plan, name="made"):
    """Header and source."""
    return "".join(c_text(plan, name))
