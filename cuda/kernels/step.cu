// Interface of a training step between host and device.
//
// For each step the host writes a request record to memory that the device reads, and reads a
// result record that the device has written. The device counts the steps, so replayed launches
// (CUDA graphs) take the next record. See gnnscale/backend/cuda/step_records.py.
#include "gnnscale_cuda/sample.hpp"

namespace gnnscale {
namespace {

// Words of a request record, and of the device's copy of it.
constexpr int kStep = 0, kRate = 1, kSeeds = 2, kPlace = 2;
// Timestamps: begun, sampled, gathered; training begun, gradients ready, weights updated.
constexpr int kTimes = 6;
constexpr int kBegun = 0, kSampled = 1, kTrainingBegun = 3, kUpdated = 5;
// State of all steps, float32: whether updates are halted, and the learning rate.
constexpr int kHalted = 0, kLearningRate = 1;

}  // namespace
}  // namespace gnnscale

// Takes the next record. Runs as one block.
extern "C" __global__ void __launch_bounds__(256)
    step_take(const int64_t* records, int64_t record_words, int64_t num_records, int64_t* counter,
              int64_t num_seeds, int64_t* words, int64_t* seeds, int64_t* times) {
  using namespace gnnscale;
  const int64_t index = *counter % num_records;
  const int64_t* record = records + index * record_words;
  for (int64_t i = threadIdx.x; i < num_seeds; i += kThreads) seeds[i] = record[kSeeds + i];
  __syncthreads();
  if (threadIdx.x != 0) return;
  words[kStep] = record[kStep];
  words[kRate] = record[kRate];
  words[kPlace] = index;
  times[kBegun] = nanoseconds();
  *counter += 1;
}
GNNSCALE_EXPORT(step_take);

extern "C" __global__ void __launch_bounds__(256) step_time(int64_t* times, int which) {
  if (threadIdx.x == 0) times[which] = gnnscale::nanoseconds();
}
GNNSCALE_EXPORT(step_time);

// Runs after sampling: an invalid sample becomes an empty one, whatever its lists hold.
extern "C" __global__ void __launch_bounds__(256)
    step_sampled(gnnscale::SampleState* state, int64_t* times) {
  using namespace gnnscale;
  if (threadIdx.x == 0) times[kSampled] = nanoseconds();
  if (state->error == ~uint64_t{0} || threadIdx.x > kMaxHops) return;
  state->num_vertices[threadIdx.x] = 0;
  if (threadIdx.x == kMaxHops) return;
  state->num_edges[threadIdx.x] = state->num_left[threadIdx.x] = 0;
}
GNNSCALE_EXPORT(step_sampled);

// Runs before training: from the first invalid sample on, steps change nothing until the host has
// cleared `halted`. The optimizer skips halted updates as it skips those with overflowed gradients.
extern "C" __global__ void __launch_bounds__(256)
    step_begin(const gnnscale::SampleState* state, const int64_t* words, float* control,
               int64_t* times) {
  using namespace gnnscale;
  if (threadIdx.x != 0) return;
  if (state->error != ~uint64_t{0}) control[kHalted] = 1.0F;
  control[kLearningRate] = __uint_as_float(static_cast<uint32_t>(words[kRate]));
  times[kTrainingBegun] = nanoseconds();
}
GNNSCALE_EXPORT(step_begin);

// Reports a finished step: whether it was halted, its loss, its times, the sample's state, and with
// a cache the reads of lists and rows by location.
extern "C" __global__ void __launch_bounds__(256)
    step_report(const int64_t* state, int64_t state_words, const int64_t* lists,
                const int64_t* rows, int64_t num_lists, int64_t num_rows, const int64_t* words,
                int64_t* times, const float* loss, const float* control, int64_t* records,
                int64_t record_words) {
  using namespace gnnscale;
  int64_t* record = records + words[kPlace] * record_words;
  if (threadIdx.x == 0) {
    times[kUpdated] = nanoseconds();
    record[0] = control[kHalted] != 0.0F ? 1 : 0;
    record[1] = static_cast<int64_t>(__float_as_uint(*loss));
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < kTimes; i += kThreads) record[2 + i] = times[i];
  record += 2 + kTimes;
  for (int64_t i = threadIdx.x; i < state_words; i += kThreads) record[i] = state[i];
  record += state_words;
  for (int64_t i = threadIdx.x; i < num_lists; i += kThreads) record[i] = lists[i];
  record += num_lists;
  for (int64_t i = threadIdx.x; i < num_rows; i += kThreads) record[i] = rows[i];
}
GNNSCALE_EXPORT(step_report);
