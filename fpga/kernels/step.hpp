// A step of training on one compute unit: forward, loss and backward of its
// mini-batch.
//
// Order of tiles. The mini-batch comes in groups of seeds whose output rows fit
// on the chip. Within a group, stage by stage, tile by tile of the stage's
// output rows: sixteen columns of all rows are aggregated at a time; while the
// next sixteen are aggregated, these are multiplied with their sixteen rows of
// the weights, and added to the output rows. So each input row is read once for
// a tile, hidden rows never leave the chip, and a layer takes as long as the
// slower of the two engines (HitGNN, equation 6; HyScale-GNN, equation 10). On
// the way back tiles are of source rows, whose gradients are gathered.
//
// Forward, backward and the gradients of weights are passes of one dataflow
// region, since there is one of each engine.
#pragma once

#include "kernels/deal.hpp"
#include "kernels/gather.hpp"
#include "kernels/loss.hpp"
#include "kernels/read.hpp"
#include "kernels/route.hpp"
#include "kernels/rows.hpp"
#include "kernels/scatter.hpp"

namespace gnnscale::fpga {

// The buffers of a compute unit, all in its bank of device memory.
struct Memory {
  const Word* batch;
  const Word* edges;
  const Word* features;
  const Word* weights;
  Word* gradients;
  Word* scratch;
  Word* result;
};

// The memory on the chip that outlives a pass.
template <class D>
struct Chip {
  Bank<D> rows[D::kBanks];
  SumsOfPe<D> sums[D::kPes];
};

// What of a run is the same for all stages.
struct Request {
  int32_t flags;
  uint64_t seed;
  uint64_t step;
  float scale;  // of the loss
};

// FIFOs in front of PEs let one of them be ahead of another.
constexpr int kFifo = 32;
constexpr int kSwitchFifo = 8;
constexpr int kBankFifo = 4;
constexpr int kBlocks = 3;  // one is filled, one is ready, one is multiplied

// Cycles of the pipelines.
constexpr int kScatterLatency = 4;  // a product
constexpr int kArrayLatency = 16;   // through the rows of the systolic array

// A pass of the two engines. Streams lead from the aggregate engine to the
// update engine, and on the way back the other way round.
template <class D, class Functions>
void run_engines(Task task, const Memory& memory, Chip<D>& chip) {
#pragma HLS dataflow
  using RowType = RowOf<Functions>;
  using MessageType = MessageOf<Functions>;
  constexpr int kStages = log2_of(D::kPes);
  STREAMS(Edge, edges, D::kPes, kFifo, 1);
  STREAMS(Need, needs, D::kPes, kFifo, 1);
  STREAM(RowType, rows, 2, 1);
  STREAMS(RowType, duplicated, D::kPes, 4, 1);
  STREAMS(RowType, selected, D::kPes, kFifo, 1);
  STREAM_STAGES(MessageType, messages, kStages + 1, D::kPes, kSwitchFifo, kScatterLatency);
  STREAMS(Word, gathered, D::kPes, 2, 1);
  STREAM(Word, own, 2, 1);
  BLOCKS(Left<D>, left, kBlocks);
  BLOCKS(Right<D>, right, kBlocks);
  BLOCKS(Sums<D>, sums, 2);
  STREAM(Word, vertices, 4, 1);
  STREAMS(Product, products, D::kBanks, kBankFifo, kArrayLatency);
  STREAM(RowType, gradients, 2, kArrayLatency);
  STREAM(Word, weight_gradients, 2, kArrayLatency);
  STREAM(Word, bias_gradient, 2, 1);
  STREAMS(Word, bias, D::kBanks, 2, 1);
  STREAMS(Word, stored, D::kBanks, kBankFifo, 1);
  STREAMS(Word, keeping, D::kBanks, kBankFifo, 1);
  STREAMS(Word, kept, D::kBanks, kBankFifo, 1);
  STREAMS(Word, to_left, D::kBanks, kBankFifo, 1);
  STREAMS(Word, to_right, D::kBanks, kBankFifo, 1);
  STREAMS(Word, returned, D::kBanks, kBankFifo, 1);
  STREAMS(Word, sources, D::kBanks, kBankFifo, 1);
  STREAM(Word, kept_sums, 2, 1);
  DATAFLOW(region);
  PROCESS(region, "read_edges", -1, read_edges<D>, task, memory.edges, edges, needs);
  PROCESS(region, "read_rows", -1, (read_rows<D, RowType>), task, memory.features, stored, rows,
          own);
  PROCESS(region, "duplicate", -1, (duplicate<D, RowType>), task, rows, gradients, duplicated);
  for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
    PROCESS(region, "select", pe, select<RowType>, task, needs[pe], duplicated[pe], selected[pe]);
    PROCESS(region, "scatter", pe, scatter<Functions>, task, edges[pe], selected[pe],
            messages[0][pe]);
  }
  for (int i = 0; i < kStages; ++i) {
#pragma HLS unroll
    PROCESS(region, "route", i, (route<D, MessageType>), task, 1 << i, messages[i],
            messages[i + 1]);
  }
  for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
    PROCESS(region, "gather", pe, (gather<D, Functions>), task, chip.sums[pe],
            messages[kStages][pe], sources[pe], sources[D::kPes + pe], gathered[pe], returned[pe],
            returned[D::kPes + pe]);
  }
  PROCESS(region, "fill_left", -1, (fill_left<D, Functions::kGradientReadsRows>), task, gathered,
          own, memory.scratch, keeping, kept, to_left, kept_sums, left);
  PROCESS(region, "fill_right", -1, fill_right<D>, task, memory.weights, to_right, bias,
          bias_gradient, right);
  PROCESS(region, "multiply", -1, multiply<D>, task, left, right, sums);
  PROCESS(region, "read_vertices", -1, read_vertices, task, memory.batch, vertices);
  PROCESS(region, "deal", -1, (deal<D, RowType>), task, vertices, kept_sums, sums, products,
          gradients, weight_gradients);
  PROCESS(region, "write_gradients", -1, write_gradients<D>, task, weight_gradients, bias_gradient,
          memory.gradients);
  for (int bank = 0; bank < D::kBanks; ++bank) {
#pragma HLS unroll
    PROCESS(region, "keep_rows", bank, (keep_rows<D, Functions>), task, bank, chip.rows[bank],
            bias[bank], products[bank], keeping[bank], stored[bank], to_right[bank], kept[bank],
            returned[bank], to_left[bank], sources[bank]);
  }
  RUN(region);
}

inline Activation activation_of(const Stage& stage, const Request& request) {
  const bool drops = (stage.flags & kDrops) != 0;
  const int drop = stage.dropout & 0xffff;
  const float scale = drops ? 65536.0F / static_cast<float>(65536 - drop) : 1.0F;
  return {(stage.flags & kActivates) != 0, drops, static_cast<uint32_t>(drop), scale,
          dropout_key(request.seed, request.step, static_cast<uint64_t>(stage.dropout >> 16))};
}

// What is the same for all passes and tiles of a stage. `below` is the stage
// before, if there is one.
inline Task task_of(const Group& group, const Stage& stage, const Stage* below) {
  Task task = {};
  task.slots = (stage.flags & kConcatenates) != 0 ? 2 : 1;
  task.words_in = stage.words_in;
  task.words_out = stage.words_out;
  task.num_rows = task.stage_rows = stage.num_rows;
  task.weights = stage.weights;
  task.hidden = below != nullptr;
  task.features = group.features;
  task.num_sources = stage.num_sources;
  task.below = below != nullptr ? below->hidden : 0;
  task.rows = stage.hidden;
  task.kept = {stage.kept, stage.kept_parts, stage.outside};
  return task;
}

inline Tile tile_of(const Memory& memory, int first, int number) {
  return record_of<Tile>(load(memory.batch, first + number, Count::other_words));
}

template <class D, class Functions>
void forward(Task task, const Memory& memory, const Stage& stage, const Request& request,
             int unclear, Chip<D>& chip) {
  const Elapsed elapsed(Count::forward);
  task.mode = Mode::forward;
  task.passes = stage.words_in;
  task.incoming = stage.num_sources;
  task.how = activation_of(stage, request);
tiles:
  for (int i = 0; i < stage.num_forward; ++i) {
    const Tile tile = tile_of(memory, stage.forward, i);
    task.first_row = tile.first;
    task.num_rows = tile.num_rows;
    task.own = task.slots > 1 ? padded(tile.num_rows) : 0;
    task.sums = task.slots * padded(tile.num_rows) / D::kPes;
    task.unclear = i == 0 ? unclear : 0;
    task.edges = tile.edges;
    task.edge_words = tile.num_words;
    task.vertices = stage.vertices + tile.first / 8;
    run_engines<D, Functions>(task, memory, chip);
  }
}

template <class D, class Functions>
void weight_gradients(Task task, const Memory& memory, bool adds, Chip<D>& chip) {
  const Elapsed elapsed(Count::weight_gradients);
  task.mode = Mode::weight_gradients;
  task.adds = adds;
  run_engines<D, Functions>(task, memory, chip);
}

template <class D, class Functions>
void backward(Task task, const Memory& memory, const Stage& stage, const Stage& below,
              const Request& request, Chip<D>& chip) {
  const Elapsed elapsed(Count::backward);
  task.mode = Mode::backward;
  task.passes = stage.words_in;
  task.incoming = task.slots * stage.num_rows;
  task.own = task.slots > 1 ? stage.num_rows : 0;
  task.how = activation_of(below, request);
tiles:
  for (int i = 0; i < stage.num_backward; ++i) {
    const Tile tile = tile_of(memory, stage.backward, i);
    task.first_row = tile.first;
    task.sums = padded(tile.num_rows) / D::kPes;
    task.edges = tile.edges;
    task.edge_words = tile.num_words;
    run_engines<D, Functions>(task, memory, chip);
  }
}

// Whether a stage fits the design.
template <class D>
Status fits(const Stage& stage) {
  if (stage.words_out > D::kMaxWordsOut) return kTooWide;
  const int rows = words_of(padded(stage.num_rows), D::kBanks);
  const int words = D::kRowWords / D::kBanks;
  const bool fine = stage.hidden + rows * stage.words_out <= words &&
                    stage.kept + rows * stage.kept_parts <= words;
  return fine ? kFine : kTooManyRows;
}

// The maximum of the sums that a tile takes of a gather PE; more than there are
// where a tile does not fit.
template <class D>
int sums_of_tiles(const Memory& memory, int first, int num_tiles, int slots) {
  int max = 0;
  for (int i = 0; i < num_tiles; ++i) {
    const Tile tile = tile_of(memory, first, i);
    if (tile.first % D::kBanks != 0) return D::kGatherRows + 1;
    max = max_of(max, slots * padded(tile.num_rows) / D::kPes);
    clock_cycle();
  }
  return max;
}

template <class D, class Functions>
Outcome train_group(const Memory& memory, int number, const Request& request, Chip<D>& chip) {
  Outcome outcome = {kMagic, kFine, 0, 0, D::kPes, D::kMultipliers, {}};
  const Group group = record_of<Group>(load(memory.batch, number, Count::other_words));
  if (group.num_stages > D::kMaxStages) {
    outcome.status = kTooManyStages;
    return outcome;
  }
  const bool trains = (request.flags & kTrain) != 0;
  Stage stages[D::kMaxStages];
  int max_sums = 0;
  for (int i = 0; i < group.num_stages; ++i) {
    const Stage stage = record_of<Stage>(load(memory.batch, group.stages + i, Count::other_words));
    stages[i] = stage;
    outcome.status = fits<D>(stage);
    const int slots = (stage.flags & kConcatenates) != 0 ? 2 : 1;
    const int forth = sums_of_tiles<D>(memory, stage.forward, stage.num_forward, slots);
    const int back =
        trains && i > 0 ? sums_of_tiles<D>(memory, stage.backward, stage.num_backward, 1) : 0;
    max_sums = max_of(max_sums, max_of(forth, back));
    if (max_sums > D::kGatherRows / D::kPes) outcome.status = kTooManyRows;
    outcome.stage = i;
    if (outcome.status != kFine) return outcome;
    clock_cycle();
  }
layers:
  for (int i = 0; i < group.num_stages; ++i) {
    const Task task = task_of(group, stages[i], i > 0 ? &stages[i - 1] : nullptr);
    forward<D, Functions>(task, memory, stages[i], request, i == 0 ? max_sums : 0, chip);
  }
  const int last = group.num_stages - 1;
  const int words_out = stages[last].words_out;
  if ((request.flags & kGiveLogits) != 0) {
    for (int i = 0; i < group.num_seeds * words_out; ++i) {
      const int v = i / words_out;
      const int word = stages[last].hidden + v / D::kBanks * words_out + i % words_out;
      store(memory.result, group.logits + i, chip.rows[v % D::kBanks][word], Count::other_words);
      clock_cycle();
    }
  }
  if (!trains) return outcome;
  {
    const Elapsed elapsed(Count::loss);
    outcome.loss = lose<D>(memory.batch, group, words_out, stages[last].hidden,
                           (request.flags & kMultilabel) != 0, request.scale, chip.rows);
  }
layers_back:
  for (int i = last; i >= 0; --i) {
    const Task task = task_of(group, stages[i], i > 0 ? &stages[i - 1] : nullptr);
    weight_gradients<D, Functions>(task, memory, number > 0, chip);
    // Nobody asks for the gradient of the input.
    if (i > 0) backward<D, Functions>(task, memory, stages[i], stages[i - 1], request, chip);
  }
  return outcome;
}

template <class D, class Functions>
void train_step(const Memory& memory, int num_groups, const Request& request, Chip<D>& chip) {
  Outcome total = {kMagic, kFine, 0, 0, D::kPes, D::kMultipliers, {}};
groups:
  for (int i = 0; i < num_groups && total.status == kFine; ++i) {
    const float loss = total.loss;
    total = train_group<D, Functions>(memory, i, request, chip);
    total.loss += loss;
  }
  store(memory.result, 0, word_of(total), Count::other_words);
}

}  // namespace gnnscale::fpga
