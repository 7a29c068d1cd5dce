// Tests of the row gather against a loop, for the sanitizers.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "kernels/gather.cu"

using namespace gnnscale::cuda_host;

namespace {

template <typename... Arguments>
void run(const std::string& name, unsigned grid, Arguments... arguments) {
  void* cells[] = {&arguments...};
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return launch(kernel, grid, 256, cells, 2);
  }
  CHECK(false);
}

// Rows of `row_bytes`, read in words of `word` bytes; the table begins `offset` words in.
void check_copies(int64_t row_bytes, int64_t word, int64_t offset, bool shifts, bool cached) {
  constexpr int64_t kRows = 21;
  // Ids that are no row of the table must not be read: no memory follows the table.
  std::vector<uint4> memory((kRows * row_bytes + offset * word) / 16 + 1);
  auto* table = reinterpret_cast<uint8_t*>(memory.data()) + offset * word;
  for (int64_t i = 0; i < kRows * row_bytes; ++i) table[i] = static_cast<uint8_t>(i * 7919 >> 3);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 70; ++i) ids.push_back(i * 13 % kRows);
  ids[5] = kRows;
  ids[40] = -1;
  const auto num_ids = static_cast<int64_t>(ids.size());
  std::vector<uint4> out(num_ids * row_bytes / 16 + 1, uint4{1, 1, 1, 1});
  auto* rows = reinterpret_cast<uint8_t*>(out.data());
  gnnscale::GatherTask task{table,  kRows,   row_bytes, rows, row_bytes, 0,      0,
                            shifts, nullptr, 0,         {},   {},        nullptr};
  // Every third row is cached by one of two members, and not in the table.
  std::vector<uint4> cached_rows[2];
  std::vector<int32_t> slots(kRows, -1);
  uint64_t reads[3] = {9, 9, 9};
  std::vector<uint8_t> all(table, table + kRows * row_bytes);
  if (cached) {
    task.slots = slots.data();
    task.num_members = 2;
    task.found = reads;
    int32_t slot = 0;
    for (const int member : {0, 1}) {
      task.first_slots[member] = slot;
      cached_rows[member].resize(kRows * row_bytes / 16 + 1);
      auto* to = reinterpret_cast<uint8_t*>(cached_rows[member].data());
      task.kept[member] = to;
      for (int64_t row = member; row < kRows; row += 3, ++slot, to += row_bytes) {
        slots[row] = slot;
        std::memcpy(to, table + row * row_bytes, row_bytes);
        std::memset(table + row * row_bytes, 0xee, row_bytes);
      }
      task.first_slots[member + 1] = slot;
    }
  }
  const int64_t count = num_ids - 3;
  uint64_t wrong = 0;
  run("gather_begin", 1, &task, &wrong);
  run("gather_" + std::to_string(word) + "_int64", 3, &task, ids.data(), num_ids, &count, &wrong);
  CHECK(wrong == 5);
  const std::vector<uint8_t> zeros(row_bytes);
  for (int64_t i = 0; i < count; ++i) {
    const bool good = ids[i] >= 0 && ids[i] < kRows;
    const uint8_t* expected = good ? &all[ids[i] * row_bytes] : zeros.data();
    CHECK(std::memcmp(rows + i * row_bytes, expected, row_bytes) == 0);
  }
  if (!cached) return;
  uint64_t counts[3] = {0, 0, 0};
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] >= 0 && ids[i] < kRows) ++counts[ids[i] % 3];
  }
  for (int location = 0; location < 3; ++location) CHECK(reads[location] == counts[location]);
}

}  // namespace

int main() {
  for (const int64_t word : {1, 2, 4, 8, 16}) {
    for (const int64_t num_words : {1, 8, 13, 33, 130}) {
      for (const int64_t offset : {0, 3}) {
        for (const bool shifts : {false, true}) {
          if (num_words * word % 16 == 0 || word < 16) {
            for (const bool cached : {false, true}) {
              check_copies(num_words * word, word, offset, shifts, cached);
            }
          }
        }
      }
    }
  }
  return check_result();
}
