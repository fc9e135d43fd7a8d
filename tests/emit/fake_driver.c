/* A stand-in for the CUDA driver that writes down what is called: a line a call, in `log_text`.
 *
 * map KIND TYPE RANK ADDRESS DIMS... STRIDES... ... ; memset ADDRESS VALUE BYTES STREAM ;
 * launch KERNEL GRID*3 BLOCK*3 CLUSTER*3 SMEM COOPERATIVE PROGRAMMATIC STREAM ARGUMENT...
 * An argument is its bytes in hexadecimal digits, or the line of the tensor map that it is. */
#include <cuda.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG = 1 << 20, MAPS = 4096, KERNELS = 64, ARGUMENTS = 64, MODULES = 64 };

struct CUfunc_st {
    char name[256];
    int count, sizes[ARGUMENTS];
    int smem, clustered; /* what it was allowed */
    int static_smem;
};

static struct CUfunc_st kernels[KERNELS];
static int are_told; /* whether a test says which kernels there are */
static int kernel_count, map_count, module_count, live_modules;
static char maps[MAPS][512];
static char log_text[LOG];
static size_t log_at;
static const void *images[MODULES];
static int capability[2] = {9, 0}, sm_count = 132, optin_smem = 232448;
static CUcontext context = (CUcontext)0x1000;
static char failing[64];
static int calls_until_failure;
static CUresult failure;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- what tests set and read */

const char *fake_log(void) { return log_text; }
int fake_live_modules(void) { return live_modules; }
const void *fake_image(int number) { return number < module_count ? images[number] : NULL; }
void fake_context(size_t value) { context = (CUcontext)value; }

void fake_clear(void)
{
    log_at = 0;
    log_text[0] = 0;
    map_count = 0;
}

void fake_device(int major, int minor, int processors, int smem)
{
    capability[0] = major;
    capability[1] = minor;
    sm_count = processors;
    optin_smem = smem;
    module_count = kernel_count = are_told = 0;
    failing[0] = 0;
    context = (CUcontext)0x1000;
    fake_clear();
}

static void add_kernel(const char *name, int static_smem, int count, const int *sizes)
{
    struct CUfunc_st *kernel = &kernels[kernel_count++];
    memset(kernel, 0, sizeof *kernel);
    strcpy(kernel->name, name);
    kernel->static_smem = static_smem;
    kernel->count = count;
    if (count > 0)
        memcpy(kernel->sizes, sizes, sizeof(int) * (size_t)count);
}

/* A kernel that modules have; sizes: of its arguments, in bytes. */
void fake_kernel(const char *name, int static_smem, int count, const int *sizes)
{
    are_told = 1;
    add_kernel(name, static_smem, count, sizes);
}

int fake_allowed_smem(int kernel) { return kernels[kernel].smem; }
int fake_allowed_clusters(int kernel) { return kernels[kernel].clustered; }

/* Lets a function fail at a later call of it. */
void fake_failure(const char *function, int calls, int result)
{
    strcpy(failing, function);
    calls_until_failure = calls;
    failure = (CUresult)result;
}

static CUresult result_of(const char *function)
{
    if (strcmp(function, failing) != 0 || calls_until_failure-- > 0)
        return CUDA_SUCCESS;
    failing[0] = 0;
    return failure;
}

static void put(char *text, size_t *at, size_t size, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    *at += (size_t)vsnprintf(text + *at, size - *at, format, values);
    va_end(values);
}

static void write_down(const char *line)
{
    pthread_mutex_lock(&lock);
    put(log_text, &log_at, LOG, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

/* ---- the driver */

CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = error == CUDA_ERROR_LAUNCH_FAILED ? "unspecified launch failure" : "some error";
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *found)
{
    *found = context;
    return result_of("cuCtxGetCurrent");
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return result_of("cuCtxGetDevice");
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *value = capability[0];
    else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        *value = capability[1];
    else if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        *value = sm_count;
    else if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        *value = optin_smem;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return result_of("cuDeviceGetAttribute");
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    const CUresult result = result_of("cuModuleLoadData");
    if (result != CUDA_SUCCESS)
        return result;
    images[module_count++] = image;
    live_modules += 1;
    *module = (CUmodule)(size_t)live_modules;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    live_modules -= 1;
    return result_of("cuModuleUnload");
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    int i;
    char whole[300]; /* as one of several modules has it */
    snprintf(whole, sizeof whole, "%zu:%s", (size_t)module - 1, name);
    if (!are_told) /* any kernel, of unknown arguments */
        add_kernel(name, 0, -1, NULL);
    for (i = 0; i < kernel_count; i++) {
        if (strcmp(kernels[i].name, name) == 0 || strcmp(kernels[i].name, whole) == 0) {
            *function = &kernels[i];
            return result_of("cuModuleGetFunction");
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    if (attribute != CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    *value = function->static_smem;
    return result_of("cuFuncGetAttribute");
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    const CUresult result = result_of("cuFuncGetParamInfo");
    if (function->count < 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (index >= (size_t)function->count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    *bytes = (size_t)function->sizes[index];
    return result;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value + function->static_smem > optin_smem)
            return CUDA_ERROR_INVALID_VALUE;
        function->smem = value;
    } else if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
        function->clustered = value;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return result_of("cuFuncSetAttribute");
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream stream)
{
    char line[256];
    size_t size = 0;
    const CUresult result = result_of("cuMemsetD8Async");
    if (result != CUDA_SUCCESS)
        return result;
    put(line, &size, sizeof line, "memset %llu %u %zu %zu", at, value, count, (size_t)stream);
    write_down(line);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra)
{
    static const char digits[] = "0123456789abcdef";
    char line[1 << 14];
    size_t at = 0;
    unsigned cluster[3] = {1, 1, 1}, i;
    int cooperative = 0, programmatic = 0, j, k;
    const CUresult result = result_of("cuLaunchKernelEx");
    if (result != CUDA_SUCCESS)
        return result;
    if (extra != NULL || (config->sharedMemBytes > 48 * 1024
                          && config->sharedMemBytes > (unsigned)function->smem))
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            cluster[0] = attribute->value.clusterDim.x;
            cluster[1] = attribute->value.clusterDim.y;
            cluster[2] = attribute->value.clusterDim.z;
        } else if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
            cooperative = attribute->value.cooperative;
        } else if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
            programmatic = attribute->value.programmaticStreamSerializationAllowed;
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    put(line, &at, sizeof line, "launch %s %u %u %u %u %u %u %u %u %u %u %d %d %zu",
        function->name, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
        config->blockDimY, config->blockDimZ, cluster[0], cluster[1], cluster[2],
        config->sharedMemBytes, cooperative, programmatic, (size_t)config->hStream);
    for (j = 0; j < function->count; j++) {
        const unsigned char *bytes = (const unsigned char *)arguments[j];
        if (function->sizes[j] == 128) {
            if ((size_t)bytes % 64 != 0)
                return CUDA_ERROR_INVALID_VALUE;
            put(line, &at, sizeof line, " [%s]", maps[*(const cuuint64_t *)bytes]);
            continue;
        }
        put(line, &at, sizeof line, " ");
        for (k = 0; k < function->sizes[j]; k++)
            put(line, &at, sizeof line, "%c%c", digits[bytes[k] >> 4], digits[bytes[k] & 15]);
    }
    write_down(line);
    return CUDA_SUCCESS;
}

/* ---- what programs call themselves: the device's memory is the host's */

CUresult cuInit(unsigned int flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *found, CUdevice device)
{
    (void)device;
    *found = (CUcontext)0x1000;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext wanted)
{
    context = wanted;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    *stream = (CUstream)(size_t)(1000 + flags);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    (void)stream;
    puts(log_text);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *made, size_t bytes)
{
    *made = (CUdeviceptr)(size_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    memcpy((void *)(size_t)to, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    memcpy(to, (const void *)(size_t)from, bytes);
    return CUDA_SUCCESS;
}

/* ---- tensor maps: a number, by which their line is found */

static CUresult new_map(CUtensorMap *map, const char *line)
{
    if ((size_t)map % 64 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    map->opaque[0] = (cuuint64_t)map_count;
    strcpy(maps[map_count++ % MAPS], line);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static void put_wide(char *line, size_t *at, size_t size, const cuuint64_t *values, unsigned count)
{
    unsigned i;
    for (i = 0; i < count; i++)
        put(line, at, size, " %llu", (unsigned long long)values[i]);
}

static void put_words(char *line, size_t *at, size_t size, const cuuint32_t *values, unsigned count)
{
    unsigned i;
    for (i = 0; i < count; i++)
        put(line, at, size, " %u", values[i]);
}

CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
    const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    char line[512];
    size_t at = 0;
    const CUresult result = result_of("cuTensorMapEncodeTiled");
    if (result != CUDA_SUCCESS)
        return result;
    put(line, &at, sizeof line, "tiled %d %u %zu", type, rank, (size_t)address);
    put_wide(line, &at, sizeof line, dims, rank);
    put_wide(line, &at, sizeof line, strides, rank - 1);
    put_words(line, &at, sizeof line, box, rank);
    put_words(line, &at, sizeof line, steps, rank);
    put(line, &at, sizeof line, " %d %d %d %d", interleave, swizzle, promotion, fill);
    return new_map(map, line);
}

CUresult cuTensorMapEncodeIm2col(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *dims, const cuuint64_t *strides, const int *lower, const int *upper,
    cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    char line[512];
    size_t at = 0;
    unsigned i;
    const CUresult result = result_of("cuTensorMapEncodeIm2col");
    if (result != CUDA_SUCCESS)
        return result;
    put(line, &at, sizeof line, "im2col %d %u %zu", type, rank, (size_t)address);
    put_wide(line, &at, sizeof line, dims, rank);
    put_wide(line, &at, sizeof line, strides, rank - 1);
    for (i = 0; i < rank - 2; i++)
        put(line, &at, sizeof line, " %d", lower[i]);
    for (i = 0; i < rank - 2; i++)
        put(line, &at, sizeof line, " %d", upper[i]);
    put(line, &at, sizeof line, " %u %u", channels, pixels);
    put_words(line, &at, sizeof line, steps, rank);
    put(line, &at, sizeof line, " %d %d %d %d", interleave, swizzle, promotion, fill);
    return new_map(map, line);
}
