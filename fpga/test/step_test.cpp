// Tests of a full step through the library's interface, on several concurrent compute units.
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "csim/library.cpp"

namespace {

using namespace gnnscale::fpga;

constexpr int kSeeds = 3;
constexpr int kClasses = 5;
constexpr float kScale = 0.5F;

// Three seeds, each its own only neighbor, with weights of zero: all classes are equally likely.
struct Step {
  std::vector<Word> batch, edges, features, weights, gradients, scratch, result;
  std::string error;

  Step() : features(kSeeds), weights(17), gradients(17), scratch(1), result(1 + kSeeds) {
    for (int v = 0; v < kSeeds; ++v) features[static_cast<size_t>(v)] = filled(1.0F + v);
    for (auto& word : weights) word = filled(0.0F);
    Group group = {1, 1, 0, 2, kSeeds, kClasses, 1, {}};
    Stage stage = {};
    stage.num_sources = stage.num_rows = kSeeds;
    stage.words_in = stage.words_out = 1;
    stage.kept = words_of(padded(kSeeds), CompiledDesign::kBanks);
    stage.kept_parts = 1;
    stage.forward = 3;
    stage.num_forward = 1;
    const Tile tile = {0, kSeeds, 0, 1, {}};
    Word labels = filled(0.0F), list = filled(0.0F);
    for (int v = 0; v < kEdgesPerWord; ++v) {
      const uint32_t to = v < kSeeds ? kFirstOfSource | static_cast<uint32_t>(v) : kNoDestination;
      list.lane[2 * v] = float_of(static_cast<int32_t>(to));
      list.lane[2 * v + 1] = 1;
      labels.lane[v] = float_of(v);
    }
    batch = {word_of(group), word_of(stage), labels, word_of(tile)};
    edges = {list};
  }

  void run() {
    std::vector<Region> regions;
    const auto allow = [&](std::vector<Word>& buffer, const char* name) {
      regions.push_back({buffer.data(), static_cast<int64_t>(buffer.size() * sizeof(Word)), name});
    };
    allow(batch, "batch");
    allow(edges, "edges");
    allow(features, "features");
    allow(weights, "weights");
    allow(gradients, "gradients");
    allow(scratch, "scratch");
    allow(result, "result");
    gnnscale_csim_regions(regions.data(), static_cast<int32_t>(regions.size()));
    gnnscale_step(batch.data(), edges.data(), features.data(), weights.data(), gradients.data(),
                  scratch.data(), result.data(), 1, kTrain | kGiveLogits, 7, 0, 9, 0,
                  bits_of(kScale));
    error = gnnscale_csim_error();
  }

  ::gnnscale::fpga::Outcome outcome() const {
    return record_of<::gnnscale::fpga::Outcome>(result[0]);
  }
};

void check(const Step& step) {
  CHECK(step.error.empty());
  CHECK(step.outcome().magic == kMagic && step.outcome().status == kFine);
  CHECK(step.outcome().n == CompiledDesign::kPes &&
        step.outcome().m == CompiledDesign::kMultipliers);
  CHECK(std::abs(step.outcome().loss - kSeeds * kScale * std::log(5.0F)) < 1e-5F);
  for (int j = 0; j < kLanes; ++j) {
    // Seed v has class v and features 1 + v; the gradient is probability minus
    // target, times scale.
    const float is_own = j < kSeeds ? 1 : 0;
    const float weight = j < kClasses ? (6 / 5.0F - is_own * (1.0F + j)) * kScale : 0;
    const float bias = j < kClasses ? (3 / 5.0F - is_own) * kScale : 0;
    CHECK(std::abs(step.gradients[0].lane[j] - weight) < 1e-5F);
    CHECK(std::abs(step.gradients[16].lane[j] - bias) < 1e-5F);
  }
}

void a_step() {
  Step step;
  step.run();
  check(step);
}

void concurrent_compute_units() {
  std::vector<Step> steps(4);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::thread> threads;
    for (Step& unit : steps) threads.emplace_back([&unit] { unit.run(); });
    for (std::thread& unit : threads) unit.join();
    for (const Step& unit : steps) check(unit);
  }
}

void oversized_batches_are_rejected() {
  Step step;
  reinterpret_cast<Stage&>(step.batch[1]).words_out = CompiledDesign::kMaxWordsOut + 1;
  step.run();
  CHECK(step.error.empty() && step.outcome().status == kTooWide);
  reinterpret_cast<Stage&>(step.batch[1]).words_out = 1;
  reinterpret_cast<Tile&>(step.batch[3]).num_rows = CompiledDesign::kGatherRows + 1;
  step.run();
  CHECK(step.error.empty() && step.outcome().status == kTooManyRows);
  reinterpret_cast<Tile&>(step.batch[3]).num_rows = kSeeds;
  reinterpret_cast<Stage&>(step.batch[1]).num_rows = CompiledDesign::kRowWords + 1;
  step.run();
  CHECK(step.error.empty() && step.outcome().status == kTooManyRows);
}

void missing_buffers_are_errors() {
  Step step;
  step.features.resize(2);
  step.run();
  CHECK(step.error == "the kernel read word 2 of features, which has 2");
}

}  // namespace

int main() {
  a_step();
  concurrent_compute_units();
  oversized_batches_are_rejected();
  missing_buffers_are_errors();
  return check_result();
}
