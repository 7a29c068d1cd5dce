// Tests of rows that enter and leave a dynamic cache, and of the previous mini-batch's rows,
// against a map.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "kernels/dynamic_cache.cu"

using namespace gnnscale::cuda_host;

namespace {

constexpr int64_t kVertices = 40, kRows = 6, kCapacity = 5, kSize = 1 + 2 * kCapacity;

template <typename... Arguments>
void run(const std::string& name, Arguments... arguments) {
  void* cells[] = {&arguments...};
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return launch(kernel, 3, 256, cells, 2);
  }
  CHECK(false);
}

void check_rows(int64_t row_bytes) {
  std::vector<int32_t> slot_of(kVertices, -1);
  std::vector<int64_t> vertex_in(kRows, -1);
  std::vector<uint4> memory(kRows * row_bytes / 16 + 1);
  auto* rows = reinterpret_cast<uint8_t*>(memory.data());
  std::vector<std::vector<int64_t>> kept(kRows);
  for (int64_t step = 0; step < 8; ++step) {
    std::vector<int64_t> vertices;
    for (int64_t i = 0; i < 7; ++i) vertices.push_back((step * 5 + i * 3) % kVertices);
    const int64_t count = 7;
    std::vector<uint4> gathered(vertices.size() * row_bytes / 16 + 1);
    auto* out = reinterpret_cast<uint8_t*>(gathered.data());
    for (int64_t i = 0; i < count; ++i) {
      std::memset(out + i * row_bytes, static_cast<int>(vertices[i] + 1), row_bytes);
    }
    // Two records: the step uses the second. One position is beyond the mini-batch.
    std::vector<int32_t> records(2 * kSize, 99);
    const int64_t place = 1;
    int32_t* record = &records[kSize];
    record[0] = 3;
    const int32_t positions[] = {static_cast<int32_t>(step % 4), 5, 70};
    const int32_t slots[] = {static_cast<int32_t>(step % kRows),
                             static_cast<int32_t>((step + 1) % kRows),
                             static_cast<int32_t>((step + 2) % kRows)};
    std::memcpy(record + 1, positions, sizeof positions);
    std::memcpy(record + 1 + kCapacity, slots, sizeof slots);
    run("rows_leave", records.data(), kSize, kCapacity, &place, slot_of.data(), vertex_in.data());
    for (const int32_t slot : slots) CHECK(vertex_in[slot] == -1);
    run("rows_enter", records.data(), kSize, kCapacity, &place, vertices.data(), 1, &count, out,
        rows, row_bytes, slot_of.data(), vertex_in.data());
    CHECK(vertex_in[slots[2]] == -1);
    for (int which = 0; which < 2; ++which) {
      const int64_t v = vertices[positions[which]];
      CHECK(vertex_in[slots[which]] == v && slot_of[v] == slots[which]);
      for (int64_t i = 0; i < row_bytes; ++i) CHECK(rows[slots[which] * row_bytes + i] == v + 1);
    }
    run("rows_remember", vertices.data(), 1, &count, slot_of.data(), kRows);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t slot = slot_of[vertices[i]];
      CHECK(slot == kRows + i || (slot < kRows && vertex_in[slot] == vertices[i]));
    }
    run("rows_forget", vertices.data(), 1, &count, slot_of.data(), kRows);
    for (int64_t v = 0; v < kVertices; ++v) {
      CHECK(slot_of[v] == -1 || vertex_in[slot_of[v]] == v);
    }
  }
}

}  // namespace

int main() {
  for (const int64_t row_bytes : {1, 4, 12, 16, 400}) check_rows(row_bytes);
  return check_result();
}
