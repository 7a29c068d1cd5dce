// NVML's answers for a machine of two GPUs, of which the second has less free memory. With
// GNNSCALE_TEST_NVML=broken it fails to start; with old, the driver is of CUDA 11; with taken, a
// process has the second GPU for itself; with shared, GPUs have the host's memory; with "none" there
// is no GPU; with quiet, nothing counts energy or bytes.
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kNotLoaded = 9, kInvalid = 2, kNotSupported = 3, kTooSmall = 7;

// As nvmlFieldValue_t.
struct Field {
  unsigned id, scope;
  long long timestamp, latency;
  int type, status;
  unsigned long long value;
};

bool is(const char* word) {
  const char* how = std::getenv("GNNSCALE_TEST_NVML");
  return how != nullptr && std::strcmp(how, word) == 0;
}
bool is_first(void* handle) { return reinterpret_cast<unsigned long>(handle) == 1; }

int copied(const char* text, char* to, unsigned room) {
  std::strncpy(to, text, room);
  return 0;
}

}  // namespace

extern "C" {

int nvmlInitWithFlags(unsigned) { return is("broken") ? kNotLoaded : 0; }
int nvmlInit_v2() { return nvmlInitWithFlags(0); }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlSystemGetDriverVersion(char* to, unsigned room) { return copied("580.65.06", to, room); }
int nvmlSystemGetCudaDriverVersion(int* version) { return *version = is("old") ? 11080 : 13000, 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = is("none") ? 0 : 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index > 1) return kInvalid;
  *handle = reinterpret_cast<void*>(static_cast<unsigned long>(index + 1));
  return 0;
}
int nvmlDeviceGetName(void*, char* to, unsigned room) { return copied("NVIDIA H100", to, room); }
int nvmlDeviceGetUUID(void* handle, char* to, unsigned room) {
  return copied(is_first(handle) ? "GPU-aa-0" : "GPU-ab-1", to, room);
}
int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* memory) {
  if (is("shared")) return kNotSupported;
  memory[0] = 80ULL << 30;
  memory[1] = (is_first(handle) ? 79ULL : 20ULL) << 30;
  memory[2] = memory[0] - memory[1];
  return 0;
}
int nvmlDeviceGetComputeMode(void* handle, int* mode) {
  return *mode = is("taken") && !is_first(handle) ? 3 : 0, 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void* processes) {
  *count = 1;
  return processes == nullptr ? kTooSmall : 0;
}
// Every question takes the first GPU 1.5 J and 4,096 bytes from the host, the second twice as much.
int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* energy) {
  static unsigned long long calls = 0;
  *energy = ++calls * (is_first(handle) ? 1500 : 3000);
  return is("quiet") ? kNotSupported : 0;
}
int nvmlDeviceGetFieldValues(void* handle, int count, Field* fields) {
  static unsigned long long calls = 0;
  if (is("quiet")) return kNotSupported;
  ++calls;
  for (int i = 0; i < count; ++i) {
    fields[i].status = i == 0 ? 0 : kNotSupported;
    fields[i].value = calls * (is_first(handle) ? 4096 : 8192);
  }
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  return *major = 9, *minor = 0, 0;
}
}
