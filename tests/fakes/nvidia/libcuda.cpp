// A driver that notes who initialises CUDA in the file GNNSCALE_TEST_CUDA_LOG, and fails.
#include <cstdio>
#include <cstdlib>

namespace {

int noted(const char* call) {
  const char* log = std::getenv("GNNSCALE_TEST_CUDA_LOG");
  if (std::FILE* file = log == nullptr ? nullptr : std::fopen(log, "a")) {
    std::fprintf(file, "%s\n", call);
    std::fclose(file);
  }
  return 100;  // no device
}

}  // namespace

extern "C" {
int cuInit(unsigned) { return noted("cuInit"); }
int cuDeviceGetCount(int*) { return noted("cuDeviceGetCount"); }
int cuCtxCreate_v2(void**, unsigned, int) { return noted("cuCtxCreate"); }
int cuDevicePrimaryCtxRetain(void**, int) { return noted("cuDevicePrimaryCtxRetain"); }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuGetProcAddress_v2(const char*, void**, int, unsigned long, void*) {
  return noted("cuGetProcAddress");
}
}
