"""The part of a source that is the same for every plan, but for its names: loading and launching.

It stands in two parts, before and after the plan's own tables; `$` marks what differs.
"""

from __future__ import annotations

# Types, and what the functions of variants call.
BEFORE = """\
struct kernel {
    const char *name;
    int module;
    int64_t smem; /* dynamic shared memory, in bytes; -1: what the device allows */
    int is_clustered;
    const size_t *argument_bytes;
    int arguments;
};

enum rule { EXACT, MINOR, LATER }; /* capability itself; later ones of its major version; later */

struct code {
    enum rule rule;
    int major, minor;
    int program;
    const void *const *images;
    int modules;
    const struct kernel *kernels;
    int kernel_count;
};

struct $plan {
    CUcontext context;
    const struct code *code;
    int64_t sm_count, max_dynamic_smem_bytes;
    CUmodule modules[$modules];
    CUfunction kernels[$kernels];
};

/* Bytes that a tensor takes. */
struct span {
    CUdeviceptr at;
    int64_t bytes;
    unsigned alignment;
    int is_written;
};

struct shape {
    unsigned block[3], cluster[3];
    int is_cooperative, is_programmatic;
};

struct grid {
    unsigned x, y, z, smem; /* x is 0 where there is nothing to do */
};
"""

# Each is there if the rest of the source calls it.
OPTIONAL = {
    "tensor_map": """\
/* The map of a number; maps lie at multiples of their size, before which buffers may begin. */
static CUtensorMap *tensor_map(unsigned char *buffer, int number)
{
    const uintptr_t mask = sizeof(CUtensorMap) - 1;
    return (CUtensorMap *)(((uintptr_t)buffer + mask) & ~mask) + number;
}
""",
    "grid_of": """\
static $error_t grid_of(const struct sizes *s, int64_t x, int64_t y, int64_t z, int64_t smem,
                        struct grid *grid)
{
    grid->x = grid->y = grid->z = grid->smem = 0;
    if (s->is_bad)
        return $UNSUPPORTED_SIZES;
    if (x == 0 || y == 0 || z == 0)
        return $SUCCESS;
    if (x < 0 || y < 0 || z < 0 || x > INT32_MAX || y > UINT16_MAX || z > UINT16_MAX)
        return $GRID;
    if (smem < 0 || smem > s->max_dynamic_smem_bytes)
        return $SHARED_MEMORY;
    grid->x = (unsigned)x;
    grid->y = (unsigned)y;
    grid->z = (unsigned)z;
    grid->smem = (unsigned)smem;
    return $SUCCESS;
}
""",
    "launch": """\
static CUresult launch(CUfunction kernel, const struct grid *grid, const struct shape *shape,
                       void **arguments, CUstream stream)
{
    CUlaunchConfig config;
    CUlaunchAttribute attributes[3];
    unsigned count = 0;
    memset(&config, 0, sizeof config);
    memset(attributes, 0, sizeof attributes);
    config.gridDimX = grid->x;
    config.gridDimY = grid->y;
    config.gridDimZ = grid->z;
    config.blockDimX = shape->block[0];
    config.blockDimY = shape->block[1];
    config.blockDimZ = shape->block[2];
    config.sharedMemBytes = grid->smem;
    config.hStream = stream;
    if (shape->cluster[0] * shape->cluster[1] * shape->cluster[2] > 1) {
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[count].value.clusterDim.x = shape->cluster[0];
        attributes[count].value.clusterDim.y = shape->cluster[1];
        attributes[count].value.clusterDim.z = shape->cluster[2];
        count += 1;
    }
    if (shape->is_cooperative) {
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[count].value.cooperative = 1;
        count += 1;
    }
    if (shape->is_programmatic) {
        attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count].value.programmaticStreamSerializationAllowed = 1;
        count += 1;
    }
    config.attrs = attributes;
    config.numAttrs = count;
    return cuLaunchKernelEx(&config, kernel, arguments, NULL);
}
""",
}

CHECKS = """\
static int overlaps(const struct span *span, CUdeviceptr from, int64_t bytes)
{
    return span->bytes > 0 && bytes > 0 && span->at < from + (CUdeviceptr)bytes
           && from < span->at + (CUdeviceptr)span->bytes;
}

/* Addresses are there and aligned, what is written is apart from all else, as is the workspace. */
static $error_t check_spans(const struct span *spans, int count, const int (*in_place)[2],
                            int pairs, CUdeviceptr workspace, int64_t needed)
{
    int i, j, k;
    for (i = 0; i < count; i++) {
        if (spans[i].bytes > 0 && spans[i].at == 0)
            return ($error_t)($STEP * (i + 1) + $NULL_POINTER);
        if (spans[i].at % spans[i].alignment != 0)
            return ($error_t)($STEP * (i + 1) + $MISALIGNED_POINTER);
    }
    for (i = 0; i < count; i++) {
        for (j = 0; spans[i].is_written && j < count; j++) {
            int is_allowed = i == j;
            for (k = 0; k < pairs && spans[i].at == spans[j].at; k++)
                is_allowed |= in_place[k][0] == i && in_place[k][1] == j;
            if (!is_allowed && overlaps(&spans[i], spans[j].at, spans[j].bytes))
                return ($error_t)($STEP * (i + 1) + $BAD_PARAM);
        }
    }
    if (needed <= 0)
        return $SUCCESS;
    if (workspace == 0)
        return $NULL_WORKSPACE;
    if (workspace % $WORKSPACE_ALIGNMENT != 0)
        return $MISALIGNED_WORKSPACE;
    for (i = 0; i < count; i++) {
        if (overlaps(&spans[i], workspace, needed))
            return $OVERLAP_WORKSPACE;
    }
    return $SUCCESS;
}
"""

LOADING = """\
static int runs_on(const struct code *code, int major, int minor)
{
    const int is_same_major = major == code->major;
    if (code->rule == EXACT)
        return is_same_major && minor == code->minor;
    if (code->rule == MINOR)
        return is_same_major && minor >= code->minor;
    return major > code->major || (is_same_major && minor > code->minor);
}

#if defined(CUDA_VERSION) && CUDA_VERSION >= 12040
#pragma weak cuFuncGetParamInfo
#endif

/* Whether a kernel's parameters are the arguments that launches give: it would read what is not
 * there.  Drivers tell from CUDA 12.4 on; of others it is taken to be so. */
static int takes_arguments(CUfunction function, const struct kernel *kernel)
{
#if defined(CUDA_VERSION) && CUDA_VERSION >= 12040
    size_t offset, bytes;
    int i;
    for (i = 0; cuFuncGetParamInfo != NULL && i <= kernel->arguments; i++) {
        const CUresult result = cuFuncGetParamInfo(function, (size_t)i, &offset, &bytes);
        if (result == CUDA_ERROR_INVALID_VALUE) /* past the last */
            return i == kernel->arguments;
        if (result != CUDA_SUCCESS)
            return 1;
        if (i == kernel->arguments || bytes > kernel->argument_bytes[i])
            return 0;
    }
#endif
    (void)function;
    (void)kernel;
    return 1;
}

/* Allows a kernel what its launches ask for. */
static $error_t load_kernel($plan_t *plan, int number)
{
    const struct kernel *kernel = &plan->code->kernels[number];
    CUfunction *function = &plan->kernels[number];
    CUresult result = cuModuleGetFunction(function, plan->modules[kernel->module], kernel->name);
    int64_t smem = kernel->smem;
    int own = 0; /* Static shared memory counts, too. */
    if (result == CUDA_SUCCESS && !takes_arguments(*function, kernel))
        return $ARGUMENTS;
    if (result == CUDA_SUCCESS)
        result = cuFuncGetAttribute(&own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, *function);
    if (smem < 0)
        smem = plan->max_dynamic_smem_bytes - own;
    if (result == CUDA_SUCCESS && smem + own > 48 * 1024
        && smem + own <= plan->max_dynamic_smem_bytes)
        result = cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    (int)smem);
    if (result == CUDA_SUCCESS && kernel->is_clustered)
        result = cuFuncSetAttribute(*function,
                                    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    return ($error_t)result;
}

static $error_t load_code($plan_t *plan)
{
    const int count = (int)(sizeof codes / sizeof codes[0]);
    CUdevice device;
    CUresult result;
    $error_t error;
    int major = 0, minor = 0, processors = 0, smem = 0, i;
    if ((result = cuCtxGetCurrent(&plan->context)) != CUDA_SUCCESS
        || (result = cuCtxGetDevice(&device)) != CUDA_SUCCESS
        || (result = cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                          device)) != CUDA_SUCCESS
        || (result = cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                          device)) != CUDA_SUCCESS
        || (result = cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                          device)) != CUDA_SUCCESS
        || (result = cuDeviceGetAttribute(&smem,
                                          CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                          device)) != CUDA_SUCCESS)
        return ($error_t)result;
    plan->sm_count = processors;
    plan->max_dynamic_smem_bytes = smem;
    for (i = 0; i < count && !runs_on(&codes[i], major, minor); i++)
        ;
    if (i == count)
        return $NO_CODE;
    plan->code = &codes[i];
    for (i = 0; i < plan->code->modules && result == CUDA_SUCCESS; i++)
        result = cuModuleLoadData(&plan->modules[i], plan->code->images[i]);
    error = ($error_t)result;
    for (i = 0; i < plan->code->kernel_count && error == $SUCCESS; i++)
        error = load_kernel(plan, i);
    return error;
}

$load
{
    $plan_t *plan;
    $error_t error;
    if (out == NULL)
        return $NO_ARGUMENT;
    *out = NULL;
    plan = ($plan_t *)calloc(1, sizeof *plan);
    if (plan == NULL)
        return $NO_MEMORY;
    error = load_code(plan);
    if (error != $SUCCESS)
        $unload_name(plan);
    else
        *out = plan;
    return error;
}

$unload
{
    CUresult result = CUDA_SUCCESS;
    int i;
    if (plan == NULL)
        return $SUCCESS;
    for (i = 0; plan->code != NULL && i < plan->code->modules; i++) {
        if (plan->modules[i] != NULL) {
            const CUresult own = cuModuleUnload(plan->modules[i]);
            result = result == CUDA_SUCCESS ? own : result;
        }
    }
    free(plan);
    return ($error_t)result;
}
"""
