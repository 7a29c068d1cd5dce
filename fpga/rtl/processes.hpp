// The parts of fpga/rtl as processes of C simulation: each takes the place of the process that it
// was written after, with the same streams.
//
// Verilator turns a part into a class, whose clock advances in each cycle of the simulation.
// What a part gives to a stream has passed its pipeline already.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "Varray.h"
#include "Vgather.h"
#include "Vscatter.h"
#include "Vswitch.h"
#include "kernels/gather.hpp"
#include "kernels/multiply.hpp"
#include "kernels/route.hpp"
#include "kernels/scatter.hpp"

namespace gnnscale::fpga::rtl {

// A part, which each task resets; its memories keep what they have.
template <class Model>
class Part {
 public:
  Part() : model_(std::make_unique<Model>(&context_)) {}
  Model* operator->() { return model_.get(); }
  void reset() {
    model_->rst = 1;
    tick();
    model_->rst = 0;
  }
  void eval() { model_->eval(); }
  // To the next cycle of the simulation.
  void cycle() {
    tick();
    csim::Simulation::current().cycle();
  }

 private:
  void tick() {
    model_->clk = 1;
    model_->eval();
    model_->clk = 0;
    model_->eval();
  }

  VerilatedContext context_;
  std::unique_ptr<Model> model_;
};

// A part that no process has; a simulation may have several of a kind at a time.
template <class Model>
class Borrowed {
 public:
  Borrowed() {
    if (free().empty()) free().push_back(std::make_unique<Part<Model>>());
    part_ = std::move(free().back());
    free().pop_back();
  }
  ~Borrowed() { free().push_back(std::move(part_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Part<Model>& operator*() { return *part_; }

 private:
  static std::vector<std::unique_ptr<Part<Model>>>& free() {
    static thread_local std::vector<std::unique_ptr<Part<Model>>> parts;
    return parts;
  }
  std::unique_ptr<Part<Model>> part_;
};

// The bits of what moves through streams, as the parts have them.
template <class Bits>
void put(Bits& bits, const Word& word) {
  std::memcpy(&bits[0], &word, sizeof word);
}
template <class Bits>
void put(Bits& bits, const Message& message) {
  put(bits, message.value);
  bits[kLanes] = message.destination;
  bits[kLanes + 1] = message.end ? 1 : 0;
}
template <class Bits>
void put(Bits& bits, const Row& row) {
  put(bits, row.value);
  bits[kLanes] = static_cast<uint32_t>(row.source);
}
template <class Bits>
void put(Bits& bits, const Edge& edge) {
  bits[0] = static_cast<uint32_t>(edge.source);
  bits[1] = edge.destination;
  std::memcpy(&bits[2], &edge.weight, sizeof edge.weight);
  bits[3] = edge.end ? 1 : 0;
}
template <class Bits>
void get(const Bits& bits, Word& word) {
  std::memcpy(&word, &bits[0], sizeof word);
}
template <class Bits>
void get(const Bits& bits, Message& message) {
  get(bits, message.value);
  message.destination = bits[kLanes];
  message.end = bits[kLanes + 1] != 0;
}

// A stream in front of a part: what it would read, and whether it does.
template <class T, class Bits>
void offer(const Stream<T>& in, CData& valid, Bits& payload) {
  valid = in.empty() ? 0 : 1;
  if (valid != 0) put(payload, in.front());
}
template <class T>
void take(Stream<T>& in, CData valid, CData ready) {
  if (valid != 0 && ready != 0) in.read();
}
// A stream after it.
template <class T, class Bits>
void give(Stream<T>& out, CData valid, CData ready, const Bits& payload) {
  if (valid == 0 || ready == 0) return;
  T element;
  get(payload, element);
  out.write(element);
}
template <class T>
CData room(const Stream<T>& out) {
  return out.full() ? 0 : 1;
}

inline void scatter(Task task, Stream<Edge>& edges, Stream<Row>& rows, Stream<Message>& out) {
  if (task.passes == 0) return;
  Borrowed<Vscatter> borrowed;
  Part<Vscatter>& part = *borrowed;
  part->forward = task.mode == Mode::forward;
  part->passes = static_cast<SData>(task.passes);
  part->own = static_cast<IData>(task.own);
  part.reset();
  while (true) {
    offer(edges, part->edges_valid, part->edges_payload);
    offer(rows, part->rows_valid, part->rows_payload);
    part->messages_ready = room(out);
    part.eval();
    if (part->done) return;
    take(edges, part->edges_valid, part->edges_ready);
    take(rows, part->rows_valid, part->rows_ready);
    give(out, part->messages_valid, part->messages_ready, part->messages_payload);
    part.cycle();
  }
}

// The one switch of a network of two.
template <class D>
void route(Task task, Stream<Message> (&in)[D::kPes], Stream<Message> (&out)[D::kPes]) {
  static_assert(D::kPes == 2);
  if (task.passes == 0) return;
  Borrowed<Vswitch> borrowed;
  Part<Vswitch>& part = *borrowed;
  part->passes = static_cast<SData>(task.passes);
  part.reset();
  while (true) {
    offer(in[0], part->lower_in_valid, part->lower_in_payload);
    offer(in[1], part->upper_in_valid, part->upper_in_payload);
    part->lower_out_ready = room(out[0]);
    part->upper_out_ready = room(out[1]);
    part.eval();
    if (part->done) return;
    take(in[0], part->lower_in_valid, part->lower_in_ready);
    take(in[1], part->upper_in_valid, part->upper_in_ready);
    give(out[0], part->lower_out_valid, part->lower_out_ready, part->lower_out_payload);
    give(out[1], part->upper_out_valid, part->upper_out_ready, part->upper_out_payload);
    part.cycle();
  }
}

// Each PE has sums, which outlive a task; `sums` tells which PE it is.
template <class D>
void gather(Task task, HalfOfSums<D>& sums, Stream<Message>& in, Stream<Word>& out,
            Stream<Word>& even_out, Stream<Word>& odd_out) {
  static thread_local std::map<const void*, Part<Vgather>> parts;
  Part<Vgather>& part = parts[&sums];
  if (task.passes == 0 && task.unclear == 0) return;
  part->forward = task.mode == Mode::forward;
  part->passes = static_cast<SData>(task.passes);
  part->sums = static_cast<SData>(task.sums);
  part->own = static_cast<SData>(part->forward ? task.own / D::kPes : 0);
  part->unclear = static_cast<SData>(task.unclear);
  part.reset();
  while (true) {
    offer(in, part->messages_valid, part->messages_payload);
    part->gathered_ready = room(out);
    part->even_ready = room(even_out);
    part->odd_ready = room(odd_out);
    part.eval();
    if (part->done) return;
    take(in, part->messages_valid, part->messages_ready);
    give(out, part->gathered_valid, part->gathered_ready, part->gathered_payload);
    give(even_out, part->even_valid, part->even_ready, part->even_payload);
    give(odd_out, part->odd_valid, part->odd_ready, part->odd_payload);
    part.cycle();
  }
}

// The ports of the array's left streams, whose number the build gives.
#if GNNSCALE_M == 256
#define GNNSCALE_OF_LEFTS(each) each(0) each(1) each(2) each(3)
#else
#define GNNSCALE_OF_LEFTS(each) each(0) each(1)
#endif

template <class D>
void multiply(Task task, Stream<Word> (&lefts)[D::kLefts], Stream<Word> (&rights)[D::kSlices],
              Stream<Word> (&out)[D::kDrains]) {
  static_assert(D::kSlices == 1 && D::kDrains == 1);
  const Blocks<D> blocks(task);
  if (blocks.num_sums() == 0) return;
  Borrowed<Varray> borrowed;
  Part<Varray>& part = *borrowed;
  part->forward = task.mode == Mode::forward;
  part->transposes = blocks.transposes;
  part->turns = static_cast<CData>(blocks.turns);
  part->sets = static_cast<CData>(blocks.sets);
  part->words = static_cast<CData>(blocks.words);
  part->words_out = static_cast<CData>(task.words_out);
  part->columns = static_cast<SData>(blocks.columns);
  part->block_lanes = static_cast<CData>(blocks.lanes);
  part->rows = static_cast<IData>(blocks.rows);
  part->group_rows = static_cast<SData>(blocks.group_rows);
  part->groups = static_cast<IData>(blocks.groups);
  part->steps = static_cast<IData>(blocks.steps);
  part->parts = static_cast<IData>(blocks.parts);
  part->num_lefts = static_cast<IData>(blocks.num_lefts());
  part->num_rights = static_cast<IData>(blocks.transposes ? 0 : parts_of(task));
  part->num_sums = static_cast<IData>(blocks.num_sums());
  part.reset();
  while (true) {
#define GNNSCALE_OFFER(i) offer(lefts[i], part->left_##i##_valid, part->left_##i##_payload);
#define GNNSCALE_TAKE(i) take(lefts[i], part->left_##i##_valid, part->left_##i##_ready);
    GNNSCALE_OF_LEFTS(GNNSCALE_OFFER)
    offer(rights[0], part->right_valid, part->right_payload);
    part->drained_ready = room(out[0]);
    part.eval();
    if (part->done) return;
    GNNSCALE_OF_LEFTS(GNNSCALE_TAKE)
    take(rights[0], part->right_valid, part->right_ready);
    give(out[0], part->drained_valid, part->drained_ready, part->drained_payload);
    part.cycle();
  }
}

}  // namespace gnnscale::fpga::rtl
