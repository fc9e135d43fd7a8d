/* A CUDA driver that does nothing: what host code takes by itself is timed with it.
 *
 * cuda-bindings asks cuGetProcAddress for every function. Those that give something are below; any
 * other succeeds at once. There is one device, like an H100, and it has no memory.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static __thread void *current;

static int nothing(void) { return 0; }
static int version(int *found) { *found = 13000; return 0; }
static int count(int *found) { *found = 1; return 0; }
static int device(int *found, int ordinal) { *found = ordinal; return 0; }
static int name(char *text, int bytes, int ordinal) { strncpy(text, "idle", bytes); return 0; }
static int own(int *found) { *found = 0; return 0; }
static int retain(void **context, int ordinal) { *context = (void *)0x1000; return 0; }
static int get_current(void **context) { *context = current; return 0; }
static int set_current(void *context) { current = context; return 0; }
static int load(void **module, const void *code) { *module = (void *)0x2000; return 0; }
static int pointer(int *found, int kind, uint64_t address) { *found = 0; return 0; }
static int encode(void *map) { memset(map, 0, 128); return 0; }
static int error(int result, const char **text) { *text = "idle"; return 0; }

static int kernel(void **found, void *module, const char *text) {
  *found = strdup(text);
  return 0;
}

static int attribute(int *found, int kind, int ordinal) {
  switch (kind) {
  case 16: *found = 132; break;    /* multiprocessors */
  case 75: *found = 9; break;      /* compute capability, major */
  case 97: *found = 232448; break; /* shared memory of a block, at most */
  default: *found = 0;
  }
  return 0;
}

int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static const struct {
  const char *name;
  void *function;
} functions[] = {
    {"cuDriverGetVersion", version},     {"cuDeviceGetCount", count},
    {"cuDeviceGet", device},             {"cuDeviceGetName", name},
    {"cuDeviceGetAttribute", attribute}, {"cuDevicePrimaryCtxRetain", retain},
    {"cuCtxGetCurrent", get_current},    {"cuCtxSetCurrent", set_current},
    {"cuCtxGetDevice", own},             {"cuModuleLoadData", load},
    {"cuModuleGetFunction", kernel},     {"cuPointerGetAttribute", pointer},
    {"cuTensorMapEncodeTiled", encode},  {"cuTensorMapEncodeIm2col", encode},
    {"cuGetErrorString", error},         {"cuGetProcAddress", cuGetProcAddress_v2},
};

int cuGetProcAddress_v2(const char *wanted, void **found, int version, uint64_t flags, int *status) {
  if (status)
    *status = 0;
  *found = (void *)nothing;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(wanted, functions[i].name))
      *found = functions[i].function;
  return 0;
}

int cuGetProcAddress(const char *wanted, void **found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(wanted, found, version, flags, NULL);
}

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *found) { return version(found); }
