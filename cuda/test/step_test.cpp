// Tests of a step's interface: records in order, around the ring; invalid samples.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "kernels/step.cu"

using namespace gnnscale::cuda_host;
using gnnscale::SampleState;

namespace {

constexpr int64_t kRecords = 3, kSeedsOf = 300, kWordsOf = 2 + kSeedsOf, kState = 80;
constexpr int64_t kPlaces = 3, kReported = 2 + 6 + kState + 2 * kPlaces;

template <typename... Arguments>
void run(const std::string& name, Arguments... arguments) {
  void* cells[] = {&arguments...};
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return launch(kernel, 1, 256, cells, 2);
  }
  CHECK(false);
}

void check_records() {
  std::vector<int64_t> records(kRecords * kWordsOf), seeds(kSeedsOf), words(3), times(6);
  std::vector<int64_t> state(kState, 7), reports(kRecords * kReported);
  const std::vector<int64_t> lists{1, 2, 3}, rows{4, 5, 6};
  float control[2] = {0, 0};
  int64_t counter = 0;
  for (int64_t step = 0; step < 7; ++step) {
    const float rate = 0.5F * static_cast<float>(step), loss = 2.0F * static_cast<float>(step);
    int64_t* record = &records[step % kRecords * kWordsOf];
    record[0] = step;
    record[1] = __float_as_uint(rate);
    for (int64_t i = 0; i < kSeedsOf; ++i) record[2 + i] = step * 1000 + i;
    run("step_take", records.data(), kWordsOf, kRecords, &counter, kSeedsOf, words.data(),
        seeds.data(), times.data());
    CHECK(counter == step + 1 && words[0] == step && words[2] == step % kRecords);
    for (int64_t i = 0; i < kSeedsOf; ++i) CHECK(seeds[i] == step * 1000 + i);
    SampleState sampled{};
    sampled.error = step < 5 ? ~uint64_t{0} : 0;
    sampled.num_vertices[0] = sampled.num_edges[0] = sampled.num_left[0] = 4;
    run("step_sampled", &sampled, times.data());
    const int64_t num_valid = step < 5 ? 4 : 0;
    CHECK(sampled.num_vertices[0] == num_valid && sampled.num_edges[0] == num_valid);
    CHECK(sampled.num_left[0] == num_valid);
    run("step_time", times.data(), int32_t{2});
    run("step_begin", &sampled, words.data(), control, times.data());
    CHECK(control[0] == (step < 5 ? 0.0F : 1.0F) && control[1] == rate);
    run("step_time", times.data(), int32_t{4});
    run("step_report", state.data(), kState, lists.data(), rows.data(), kPlaces, kPlaces,
        words.data(), times.data(), &loss, control, reports.data(), kReported);
    const int64_t* report = &reports[step % kRecords * kReported];
    CHECK(report[0] == (step < 5 ? 0 : 1));
    CHECK(__uint_as_float(static_cast<uint32_t>(report[1])) == loss);
    for (int i = 1; i < 6; ++i) CHECK(report[2 + i] >= report[1 + i]);
    for (int64_t i = 0; i < kState; ++i) CHECK(report[8 + i] == 7);
    for (int64_t i = 0; i < 6; ++i) CHECK(report[8 + kState + i] == i + 1);
  }
}

}  // namespace

int main() {
  check_records();
  return check_result();
}
