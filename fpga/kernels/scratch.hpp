// Storage of aggregated rows kept for the gradients of weights, and the process that moves those
// beyond the on-chip capacity.
#pragma once

#include "kernels/blocks.hpp"

namespace gnnscale::fpga {

// Location of a part of the aggregated rows: the banks of rows, `scratch`, or not kept. Own rows of
// the input are not kept, since they can be read again.
struct Place {
  bool keeps;
  bool chip;
  int word;  // in `scratch`, of the first row
};
inline Place place_of(const Task& task, int part) {
  const bool again = task.slots > 1 && !task.hidden;
  const int number = again ? column_of(task, part) : part;
  const int offset = (number - task.kept.parts) * padded(task.stage_rows);
  return {!again || slot_of(task, part) == task.slots - 1, number < task.kept.parts,
          task.kept.outside + offset};
}

// Returns whether derivatives need a part: the sums of neighbors.
inline bool is_sum(const Task& task, int part) { return slot_of(task, part) == task.slots - 1; }

// Walks over the parts of the aggregated rows in order, each `times` times, for the process of
// `scratch`, which moves some of them.
struct ScratchWalk {
  Task task;
  bool reads_rows;
  int parts, times;
  int part = 0, time = 0;

  ScratchWalk(const Task& stage_task, int num_times, bool gradient_reads_rows)
      : task(stage_task),
        reads_rows(gradient_reads_rows),
        parts(parts_of(stage_task)),
        times(num_times) {}
  bool done() const { return part == parts; }
  bool moves() const {
    const Place location = place_of(task, part);
    const bool needed = task.mode != Mode::backward || (reads_rows && is_sum(task, part));
    return location.keeps && !location.chip && needed;
  }
  int first() const { return place_of(task, part).word + task.first_row; }
  int words() const { return task.mode == Mode::backward ? task.num_rows : padded(task.num_rows); }
  // Advances to the next repetition of a moved part, or to the next part.
  void next() {
    if (moves() && ++time < times) return;
    time = 0;
    ++part;
  }
};

// The process of `scratch`: forward it writes rows beyond the on-chip capacity, in later passes it
// reads them.
template <class D, bool reads_rows>
void move_scratch(Task task, Port port, Stream<Word> (&in)[D::kStep], Stream<Word>& out) {
  constexpr int kDepth = kIn + kOut;
  const bool writes = task.mode == Mode::forward;
  const bool transposes = task.mode == Mode::weight_gradients;
  // Backward, every tile takes all gradients of the stage.
  if (task.mode != Mode::forward) task.first_row = 0;
  ScratchWalk walk(task, transposes ? kLanes / D::kSliceRows : 1, reads_rows);
  ScratchWalk requests = walk;
  int word = 0;
  bool is_requested = false;  // one part has been requested and not yet read
  LOOP(words)
  while (!walk.done()) {
    PIPELINED(words, 1, kDepth);
    if (!walk.moves()) {
      walk.next();
      continue;
    }
    if (!writes && word == 0 && !requests.done()) {
      const bool asks = requests.moves();
      if (asks) port.read_request(requests.first(), requests.words());
      requests.next();
      if (!asks || !is_requested) {
        is_requested = is_requested || asks;
        continue;
      }
    }
    if (writes && word == 0) port.write_request(walk.first(), walk.words());
    if (writes) {
      port.write(in[word % D::kStep].read());
    } else {
      out.write(port.read());
    }
    if (++word < walk.words()) continue;
    word = 0;
    if (writes) port.write_response();
    walk.next();
  }
}

}  // namespace gnnscale::fpga
