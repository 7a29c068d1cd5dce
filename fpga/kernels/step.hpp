// A training step on one compute unit: forward, loss and backward of its mini-batch.
//
// Order of tiles. The mini-batch is split into groups of seeds whose output rows fit on the chip. A
// group is processed stage by stage, and a stage tile by tile of its output rows: while sixteen
// columns of all rows are aggregated, the previous sixteen are multiplied with their sixteen rows
// of the weights, and accumulated into the output rows. Thus each input row is read once a tile,
// hidden rows never leave the chip, and a layer takes as long as the slower of the two engines
// (HitGNN, equation 6; HyScale-GNN, equation 10). Backward, tiles are of source rows, whose
// gradients are gathered.
#pragma once

#include "kernels/engines.hpp"
#include "kernels/loss.hpp"
#include "kernels/tasks.hpp"

namespace gnnscale::fpga {

// The output rows of a group's last stage.
template <class D>
void write_logits(Port result, const Group& group, const Stage& stage, Rows<D>& rows) {
  const int words = group.num_seeds * stage.words_out;
  result.write_request(group.logits, words);
  LOOP(logits)
  for (int i = 0, v = 0, j = 0; i < words; ++i) {
    PIPELINED(logits, 1, kUramRead + kOut);
    result.write(rows[v % D::kBanks][stage.hidden + v / D::kBanks * stage.words_out + j]);
    if (++j == stage.words_out) {
      j = 0;
      ++v;
    }
  }
  result.write_response();
}

template <class D, class Functions>
Outcome train_group(Port batch, Port edges, Port features, Port weights, Port gradients,
                    Port scratch, Port result, int number, const Request& request, Rows<D>& rows,
                    GatherSums<D>& first_sums, GatherSums<D>& second_sums) {
  Outcome outcome = {kMagic, kFine, 0, 0, D::kPes, D::kMultipliers, {}};
  batch.read_request(number, 1);
  const Group group = record_of<Group>(batch.read());
  if (group.num_stages > D::kMaxStages) {
    outcome.status = kTooManyStages;
    return outcome;
  }
  const bool trains = (request.flags & kTrain) != 0;
  Stage stages[D::kMaxStages];
  batch.read_request(group.stages, group.num_stages);
  LOOP(reading)
  for (int i = 0; i < group.num_stages; ++i) {
    PIPELINED(reading, 1, kIn + kWrite);
    stages[i] = record_of<Stage>(batch.read());
  }
  int max_sums = 0;
checks:
  for (int i = 0; i < group.num_stages; ++i) {
    const Stage stage = stages[i];
    outcome.status = fits<D>(stage);
    const int slots = (stage.flags & kConcatenates) != 0 ? 2 : 1;
    const int forth = sums_of_tiles<D>(batch, stage.forward, stage.num_forward, slots);
    const int back =
        trains && i > 0 ? sums_of_tiles<D>(batch, stage.backward, stage.num_backward, 1) : 0;
    max_sums = max_of(max_sums, max_of(forth, back));
    if (max_sums > D::kGatherRows / D::kPes) outcome.status = kTooManyRows;
    outcome.stage = i;
    if (outcome.status != kFine) return outcome;
  }
  const int last = group.num_stages - 1;
  Progress progress;
passes:
  while (progress.at != Progress::At::end) {
    const Elapsed elapsed(progress.phase());
    const int i = progress.stage;
    const Stage stage = stages[i];
    const Stage below = stages[i > 0 ? i - 1 : 0];
    const bool forward = progress.at == Progress::At::forward;
    if (progress.at == Progress::At::loss) {
      outcome.loss = lose<D>(batch, group, stage.words_out, stage.hidden,
                             (request.flags & kMultilabel) != 0, request.scale, rows);
    } else {
      Task task = task_of(group, stage, i > 0, below);
      if (progress.at == Progress::At::weight_gradients) {
        task = weights_task(task, number > 0);
      } else {
        batch.read_request((forward ? stage.forward : stage.backward) + progress.tile, 1);
        const Tile tile = record_of<Tile>(batch.read());
        const Activation how = activation_of(forward ? stage : below, request);
        const bool first = forward && i == 0 && progress.tile == 0;
        task = forward ? forward_task<D>(task, stage, tile, how, first ? max_sums : 0)
                       : backward_task<D>(task, stage, tile, how);
      }
      run_engines<D, Functions>(task, batch, edges, features, weights, gradients, scratch, rows,
                                first_sums, second_sums);
    }
    progress.next(group.num_stages, forward ? stage.num_forward : stage.num_backward, trains);
    const bool complete = forward && progress.at != Progress::At::forward;
    if (complete && (request.flags & kGiveLogits) != 0) {
      write_logits<D>(result, group, stages[last], rows);
    }
  }
  return outcome;
}

template <class D, class Functions>
void train_step(Port batch, Port edges, Port features, Port weights, Port gradients, Port scratch,
                Port result, int num_groups, const Request& request, Rows<D>& rows,
                GatherSums<D>& first_sums, GatherSums<D>& second_sums) {
  Outcome total = {kMagic, kFine, 0, 0, D::kPes, D::kMultipliers, {}};
groups:
  for (int i = 0; i < num_groups && total.status == kFine; ++i) {
    const float loss = total.loss;
    total = train_group<D, Functions>(batch, edges, features, weights, gradients, scratch, result,
                                      i, request, rows, first_sums, second_sums);
    total.loss += loss;
  }
  result.write_request(0, 1);
  result.write(word_of(total));
  result.write_response();
}

}  // namespace gnnscale::fpga
