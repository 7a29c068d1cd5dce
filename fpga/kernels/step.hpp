// A step of training on one compute unit: forward, loss and backward of its
// mini-batch.
//
// Order of tiles. The mini-batch comes in groups of seeds whose hidden rows fit
// on the chip. Within a group, layer by layer, sixteen columns of all rows are
// aggregated at a time; while the next sixteen are aggregated, these are
// multiplied with their sixteen rows of the weights, and added to the output
// rows. So each input row is read once, hidden rows never leave the chip, and a
// layer takes as long as the slower of the two engines (HitGNN, equation 6;
// HyScale-GNN, equation 10).
#pragma once

#include "kernels/gather.hpp"
#include "kernels/gradients.hpp"
#include "kernels/loss.hpp"
#include "kernels/multiply.hpp"
#include "kernels/read.hpp"
#include "kernels/route.hpp"
#include "kernels/scatter.hpp"

namespace gnnscale::fpga {

// The buffers of a compute unit, all in its bank of device memory.
struct Memory {
  const Word* batch;
  const Word* features;
  const Word* weights;
  Word* gradients;
  Word* scratch;
  Word* result;
};

// The memory on the chip: rows of words, row v of a layer in bank v modulo n. A
// bank is cut into blocks with ports of their own, so that a layer's rows are
// read while those of the next one are written.
template <class D>
struct Chip {
  Word rows[D::kPes][D::kRowWords / D::kPes];
};

inline int slots_of(const Stage& stage) { return (stage.flags & kConcatenates) != 0 ? 2 : 1; }
inline Kept kept_of(const Stage& stage) { return {stage.kept, stage.kept_columns, stage.outside}; }

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

// Cycles of the pipelines.
constexpr int kScatterLatency = 4;  // a product
constexpr int kArrayLatency = 16;   // through the rows of the systolic array

inline Activation activation_of(const Stage& stage, const Request& request) {
  const bool drops = (stage.flags & kDrops) != 0;
  const int drop = stage.dropout & 0xffff;
  const float scale = drops ? 65536.0F / static_cast<float>(65536 - drop) : 1.0F;
  return {(stage.flags & kActivates) != 0, drops, static_cast<uint32_t>(drop), scale,
          dropout_key(request.seed, request.step, static_cast<uint64_t>(stage.dropout >> 16))};
}

template <class D, class Functions>
void forward(const Memory& memory, const Stage& stage, const Sources& sources,
             const Request& request, Chip<D>& chip) {
#pragma HLS dataflow
  const Elapsed elapsed(Count::forward);
  constexpr int kStages = log2_of(D::kPes);
  const int passes = stage.words_in;
  const int slots = slots_of(stage);
  const int own = slots > 1 ? padded(stage.num_rows) : 0;
  const int sums = slots * padded(stage.num_rows) / D::kPes;
  const int bias = stage.weights + slots * passes * kLanes * stage.words_out;
  const Activation how = activation_of(stage, request);
  STREAMS(Edge, edges, D::kPes, kFifo, 1);
  STREAMS(Need, needs, D::kPes, kFifo, 1);
  STREAM(Row, rows, 2, 1);
  STREAMS(Row, duplicated, D::kPes, 4, 1);
  STREAMS(Row, selected, D::kPes, kFifo, 1);
  Stream<Message> messages[kStages + 1][D::kPes];
  STREAMS(Word, gathered, D::kPes, 2, 1);
  STREAM(RowTile<D>, tiles, 2, 1);
  STREAM(WeightTile<D>, weights, 2, 1);
  STREAM(Word, begins, 2, 1);
  STREAM(Word, vertices, 4, 1);
  for (int i = 0; i <= kStages; ++i) {
    SHAPE(messages[i], i == 0 ? "messages" : "routed", kSwitchFifo, i == 0 ? kScatterLatency : 1);
  }
  DATAFLOW(region);
  PROCESS(region, "read_edges", -1, read_edges<D>, memory.batch, stage.forward_edges,
          stage.forward_words, stage.num_sources, passes, edges, needs);
  PROCESS(region, "read_rows", -1, read_rows<D>, memory.features, sources.hidden, sources.first,
          stage.num_sources, passes, chip.rows, rows);
  PROCESS(region, "duplicate", -1, (duplicate<D, Row>), passes * stage.num_sources, rows,
          duplicated);
  for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
    PROCESS(region, "select", pe, select<Row>, passes, needs[pe], duplicated[pe], selected[pe]);
    PROCESS(region, "scatter", pe, scatter<ForwardMessage<Functions>>, passes, own, edges[pe],
            selected[pe], messages[0][pe]);
  }
  for (int i = 0; i < kStages; ++i) {
#pragma HLS unroll
    PROCESS(region, "route", i, (route<D, Message>), 1 << i, passes, messages[i], messages[i + 1]);
  }
  for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
    PROCESS(region, "gather", pe, (gather<D, Functions>), passes, own / D::kPes, sums,
            messages[kStages][pe], gathered[pe]);
  }
  PROCESS(region, "collect", -1, collect<D>, passes, slots, stage.num_rows, kept_of(stage),
          gathered, memory.scratch, chip.rows, tiles);
  PROCESS(region, "read_bias", -1, read_bias<D>, memory.weights, bias, stage.words_out, begins);
  PROCESS(region, "read_weights", -1, read_weights<D>, memory.weights, stage.weights, slots, passes,
          stage.words_out, weights);
  PROCESS(region, "read_vertices", -1, read_vertices<D>, memory.batch, stage.vertices,
          how.drops ? stage.num_rows : 0, vertices);
  PROCESS(region, "multiply", -1, (multiply<D, Functions>), passes, slots, stage.num_rows,
          stage.words_out, stage.hidden, how, tiles, weights, begins, vertices, chip.rows);
  RUN(region);
}

template <class D>
void weight_gradients(const Memory& memory, const Stage& stage, const Sources& sources, bool adds,
                      Chip<D>& chip) {
#pragma HLS dataflow
  const Elapsed elapsed(Count::weight_gradients);
  const int slots = slots_of(stage);
  STREAM(ColumnTile<D>, columns, 2, 1);
  STREAM(SumTile<D>, sums, 1, kArrayLatency);
  DATAFLOW(region);
  PROCESS(region, "read_aggregated", -1, read_aggregated<D>, stage.words_in, slots, stage.num_rows,
          kept_of(stage), sources, memory.features, memory.scratch, chip.rows, columns);
  PROCESS(region, "multiply_transposed", -1, multiply_transposed<D>, slots * stage.words_in,
          stage.num_rows, stage.words_out, stage.hidden, chip.rows, columns, sums);
  PROCESS(region, "write_gradients", -1, write_gradients<D>, adds, stage.weights, slots,
          stage.words_in, stage.words_out, sums, memory.gradients);
  RUN(region);
}

template <class D, class Functions>
void backward(const Memory& memory, const Stage& stage, const Stage& below, const Request& request,
              Chip<D>& chip) {
#pragma HLS dataflow
  using Making = BackwardMessage<Functions>;
  using RowType = typename Making::RowType;
  using MessageType = typename Making::MessageType;
  const Elapsed elapsed(Count::backward);
  constexpr int kStages = log2_of(D::kPes);
  const int passes = stage.words_in;
  const int slots = slots_of(stage);
  const int own = slots > 1 ? stage.num_rows : 0;
  const int num_rows = slots * stage.num_rows;
  const int sums = padded(stage.num_sources) / D::kPes;
  const Activation how = activation_of(below, request);
  STREAM(WeightTile<D>, weights, 2, 1);
  STREAM(RowTile<D>, tiles, 2, kArrayLatency);
  STREAM(RowType, rows, 2, 1);
  STREAMS(RowType, duplicated, D::kPes, 4, 1);
  STREAMS(RowType, selected, D::kPes, kFifo, 1);
  STREAMS(Edge, edges, D::kPes, kFifo, 1);
  STREAMS(Need, needs, D::kPes, kFifo, 1);
  Stream<MessageType> messages[kStages + 1][D::kPes];
  for (int i = 0; i <= kStages; ++i) {
    SHAPE(messages[i], i == 0 ? "messages" : "routed", kSwitchFifo, i == 0 ? kScatterLatency : 1);
  }
  DATAFLOW(region);
  PROCESS(region, "read_weights", -1, read_weights<D>, memory.weights, stage.weights, slots, passes,
          stage.words_out, weights);
  PROCESS(region, "multiply_gradients", -1, multiply_gradients<D>, passes, slots, stage.num_rows,
          stage.words_out, stage.hidden, chip.rows, weights, tiles);
  PROCESS(region, "unpack", -1, (unpack<D, RowType>), passes, slots, stage.num_rows,
          Functions::kGradientReadsRows, kept_of(stage), memory.scratch, chip.rows, tiles, rows);
  PROCESS(region, "read_edges", -1, read_edges<D>, memory.batch, stage.backward_edges,
          stage.backward_words, num_rows, passes, edges, needs);
  PROCESS(region, "duplicate", -1, (duplicate<D, RowType>), passes * num_rows, rows, duplicated);
  for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
    PROCESS(region, "select", pe, select<RowType>, passes, needs[pe], duplicated[pe], selected[pe]);
    PROCESS(region, "scatter", pe, scatter<Making>, passes, own, edges[pe], selected[pe],
            messages[0][pe]);
  }
  for (int i = 0; i < kStages; ++i) {
#pragma HLS unroll
    PROCESS(region, "route", i, (route<D, MessageType>), 1 << i, passes, messages[i],
            messages[i + 1]);
  }
  for (int pe = 0; pe < D::kPes; ++pe) {
#pragma HLS unroll
    PROCESS(region, "gather", pe, (gather_gradients<D, Functions, MessageType>), passes, sums,
            below.hidden, how.activates, how.drops, how.scale, messages[kStages][pe],
            chip.rows[pe]);
  }
  RUN(region);
}

// Whether a stage fits the design.
template <class D>
Status fits(const Stage& stage, bool first, bool trains) {
  if (stage.words_out > D::kMaxWordsOut) return kTooWide;
  const int rows = padded(stage.num_rows);
  const int gathered = slots_of(stage) * rows;
  const bool fine = gathered <= D::kGatherRows &&
                    (first || !trains || padded(stage.num_sources) <= D::kGatherRows) &&
                    stage.hidden * D::kPes + rows * stage.words_out <= D::kRowWords &&
                    stage.kept * D::kPes + rows * stage.kept_columns <= D::kRowWords;
  return fine ? kFine : kTooManyRows;
}

inline Sources sources_of(const Group& group, const Stage* stages, int number) {
  return {number > 0, number > 0 ? stages[number - 1].hidden : group.features,
          stages[number].num_sources};
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
  for (int i = 0; i < group.num_stages; ++i) {
    stages[i] = record_of<Stage>(load(memory.batch, group.stages + i, Count::other_words));
    outcome.status = fits<D>(stages[i], i == 0, trains);
    outcome.stage = i;
    if (outcome.status != kFine) return outcome;
    clock_cycle();
  }
layers:
  for (int i = 0; i < group.num_stages; ++i) {
    forward<D, Functions>(memory, stages[i], sources_of(group, stages, i), request, chip);
  }
  const int last = group.num_stages - 1;
  const int words_out = stages[last].words_out;
  if ((request.flags & kGiveLogits) != 0) {
    for (int i = 0; i < group.num_seeds * words_out; ++i) {
      const int v = i / words_out;
      store(memory.result, group.logits + i,
            chip.rows[v % D::kPes][stages[last].hidden + v / D::kPes * words_out + i % words_out],
            Count::other_words);
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
    weight_gradients<D>(memory, stages[i], sources_of(group, stages, i), number > 0, chip);
    // Nobody asks for the gradient of the input.
    if (i > 0) backward<D, Functions>(memory, stages[i], stages[i - 1], request, chip);
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
