// Tasks of the engines, pass by pass, and checks that they fit the design.
#pragma once

#include "gnnscale_fpga/dropout.hpp"
#include "kernels/messages.hpp"

namespace gnnscale::fpga {

// Properties of a run that all stages share.
struct Request {
  int32_t flags;
  uint64_t seed;
  uint64_t step;
  float scale;  // loss scale
};

inline Activation activation_of(const Stage& stage, const Request& request) {
  const bool drops = (stage.flags & kDrops) != 0;
  const int drop = stage.dropout & 0xffff;
  return {(stage.flags & kActivates) != 0, drops, static_cast<uint32_t>(drop),
          dropout_key(request.seed, request.step, static_cast<uint64_t>(stage.dropout >> 16))};
}

// Returns the dropout scale of a stage's kept rows.
inline float scale_of(const Stage& stage) {
  const int drop = (stage.flags & kDrops) != 0 ? stage.dropout & 0xffff : 0;
  return 65536.0F / static_cast<float>(65536 - drop);
}

// Returns the task fields that all passes and tiles of a stage share. Its source rows are the
// input, or the rows of the stage `below`.
inline Task task_of(const Group& group, const Stage& stage, bool hidden, const Stage& below) {
  Task task = {};
  task.slots = (stage.flags & kConcatenates) != 0 ? 2 : 1;
  task.words_in = stage.words_in;
  task.words_out = stage.words_out;
  task.num_rows = task.stage_rows = stage.num_rows;
  task.weights = stage.weights;
  task.hidden = hidden;
  task.features = group.features;
  task.num_sources = stage.num_sources;
  task.below = hidden ? below.hidden : 0;
  task.source_scale = hidden ? scale_of(below) : 1.0F;
  task.rows = stage.hidden;
  task.kept = {stage.kept, stage.kept_parts, stage.outside};
  return task;
}

// Returns the task of a forward tile. The first pass of a run has `unclear` sums to clear.
template <class D>
Task forward_task(Task task, const Stage& stage, const Tile& tile, const Activation& how,
                  int unclear) {
  task.mode = Mode::forward;
  task.passes = stage.words_in;
  task.incoming = stage.num_sources;
  task.how = how;
  task.first_row = tile.first;
  task.num_rows = tile.num_rows;
  task.own = task.slots > 1 ? padded(tile.num_rows) : 0;
  task.sums = task.slots * padded(tile.num_rows) / D::kPes;
  task.unclear = unclear;
  task.edges = tile.edges;
  task.edge_words = tile.num_words;
  task.vertices = stage.vertices + tile.first / 8;
  return task;
}

// Returns the task of a stage's weight gradients; `adds` accumulates onto those of earlier groups.
inline Task weights_task(Task task, bool adds) {
  task.mode = Mode::weight_gradients;
  task.adds = adds;
  return task;
}

// Returns the task of a backward tile; `how` is the activation of its source rows.
template <class D>
Task backward_task(Task task, const Stage& stage, const Tile& tile, const Activation& how) {
  task.mode = Mode::backward;
  task.passes = stage.words_in;
  task.incoming = task.slots * stage.num_rows;
  task.own = task.slots > 1 ? stage.num_rows : 0;
  task.how = how;
  task.first_row = tile.first;
  task.sums = padded(tile.num_rows) / D::kPes;
  task.edges = tile.edges;
  task.edge_words = tile.num_words;
  return task;
}

// Returns whether a stage fits the design.
template <class D>
Status fits(const Stage& stage) {
  if (stage.words_out > D::kMaxWordsOut) return kTooWide;
  const int rows = words_of(padded(stage.num_rows), D::kBanks);
  const int words = D::kRowWords / D::kBanks;
  const bool fine = stage.hidden + rows * stage.words_out <= words &&
                    stage.kept + rows * stage.kept_parts <= words;
  return fine ? kFine : kTooManyRows;
}

// Returns the maximum sums that a tile needs of a gather PE; exceeds the capacity if a tile does
// not fit.
template <class D>
int sums_of_tiles(Port batch, int first, int num_tiles, int slots) {
  int max = 0;
  batch.read_request(first, num_tiles);
  LOOP(tiles)
  for (int i = 0; i < num_tiles; ++i) {
    PIPELINED(tiles, 1, 2 * kIn);
    const Tile tile = record_of<Tile>(batch.read());
    const bool begins = tile.first % D::kBanks == 0;
    max = max_of(max, begins ? slots * padded(tile.num_rows) / D::kPes : D::kGatherRows + 1);
  }
  return max;
}

// Progress of a group in its step: tile by tile forward, the loss, then backward for each stage the
// gradients of its weights followed by its tiles.
struct Progress {
  enum class At { forward, loss, weight_gradients, backward, end };
  At at = At::forward;
  int stage = 0;
  int tile = 0;

  void next(int num_stages, int num_tiles, bool trains) {
    const bool goes_on = at == At::forward || at == At::backward;
    if (goes_on && ++tile < num_tiles) return;
    tile = 0;
    if (at == At::forward && ++stage < num_stages) return;
    if (at == At::forward) {
      stage = num_stages - 1;
      at = trains ? At::loss : At::end;
    } else if (at == At::loss) {
      at = At::weight_gradients;
    } else if (at == At::weight_gradients) {
      // The gradient of the input is not needed.
      at = stage > 0 ? At::backward : At::end;
    } else {
      --stage;
      at = At::weight_gradients;
    }
  }
  Count phase() const {
    if (at == At::forward) return Count::forward;
    if (at == At::loss) return Count::loss;
    return at == At::backward ? Count::backward : Count::weight_gradients;
  }
};

}  // namespace gnnscale::fpga
