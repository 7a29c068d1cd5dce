// The loss of the seeds and its gradient, which replaces their logits (HitGNN's t_LC).
//
// Word j of all seeds is processed before word j + 1, so that a seed's accumulations are ready when
// its next word arrives. A chunk of seeds makes three passes: for the largest logits, the
// exponentials and the gradients.
#pragma once

#include <cmath>

#include "kernels/messages.hpp"

namespace gnnscale::fpga {

constexpr int kLossSeeds = 512;  // seeds of a chunk

constexpr int kTree = log2_of(kLanes);  // levels of a tree over the lanes of a word
// Classes whose exponentials are computed together: half a word's, or a full word's if the array is
// so large that a step would otherwise wait for them.
template <class D>
constexpr int classes_at_once() {
  return D::kRows > kLanes ? kLanes : kLanes / 2;
}

// Returns the sum of a word, serially: a tree would need an adder for each addition.
inline float sum_of(const Word& word) {
  float sum = 0;
  LOOP(lanes)
  for (int i = 0; i < kLanes; ++i) {
    PIPELINED(lanes, kAdd, kAdd);
    sum = Sum{}(sum, word.lane[i]);
  }
  return sum;
}

// Computes the cross-entropy of a chunk, `seeds` seeds from `begin` on, times `scale`.
template <class D>
float cross_entropy(Port batch, const Group& group, int begin, int seeds, int words_out, int from,
                    float scale, Word (&rows)[D::kBanks][D::kRowWords / D::kBanks]) {
  constexpr int kHighest = kUramRead + (kTree + 1) * kCompare + kWrite;
  constexpr int kExponentials = kUramRead + kAdd + kExponential + (kTree + 1) * kAdd + kWrite;
  constexpr int kGradients = kUramRead + kDivide + kMultiply + kAdd + kWrite;
  constexpr int kAtOnce = classes_at_once<D>();
  const int all = padded(seeds);
  float largest[kLossSeeds], own_logits[kLossSeeds], sums[kLossSeeds];
  int classes[kLossSeeds];
  // 16 labels in a word.
  batch.read_request(group.labels + begin / kLanes, words_of(seeds, kLanes));
  Word labels = filled(0.0F);
  LOOP(highest)
  for (int i = 0, v = 0, j = 0; i < all * words_out; ++i) {
    PIPELINED(highest, 1, kHighest);
#pragma HLS dependence variable = largest type = inter false  // there are kRowMultiple seeds
    if (j == 0 && v % kLanes == 0 && v < seeds) labels = batch.read();
    if (j == 0) classes[v] = bits_of(labels.lane[v % kLanes]);
    const int seed = begin + v;
    const Word word = rows[seed % D::kBanks][from + seed / D::kBanks * words_out + j];
    float lanes[kLanes];
    float target = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      const int column = j * kLanes + lane;
      lanes[lane] = column < group.num_classes ? word.lane[lane] : -HUGE_VALF;
      if (column == classes[v]) target = word.lane[lane];
    }
    const float word_max = tree_of<kLanes>(lanes, Larger{});
    largest[v] = j == 0 || word_max > largest[v] ? word_max : largest[v];
    if (j == classes[v] / kLanes) own_logits[v] = target;
    if (++v == all) {
      v = 0;
      ++j;
    }
  }
  Word word = filled(0.0F), results = filled(0.0F);
  float half_sum = 0;  // of the other half of a word
  LOOP(exponentials)
  for (int i = 0, v = 0, j = 0, first = 0; i < all * words_out * kLanes / kAtOnce; ++i) {
    PIPELINED(exponentials, 1, kExponentials);
#pragma HLS dependence variable = sums type = inter false  // there are kRowMultiple seeds
#pragma HLS dependence variable = rows type = inter false  // each word once
    const int seed = begin + v;
    Word& row = rows[seed % D::kBanks][from + seed / D::kBanks * words_out + j];
    if (first == 0) word = row;
    float values[kAtOnce];
    for (int lane = 0; lane < kAtOnce; ++lane) {
#pragma HLS unroll
      const float value = std::exp(word.lane[first + lane] - largest[v]);
#pragma HLS bind_op variable = value op = fexp latency = kExponential
      values[lane] = j * kLanes + first + lane < group.num_classes ? value : 0.0F;
      results.lane[first + lane] = values[lane];
    }
    const float sum = tree_of<kAtOnce>(values, Sum{});
    const float word_sum = first == 0 ? sum : half_sum + sum;
    half_sum = sum;
    first += kAtOnce;
    if (first < kLanes) continue;
    first = 0;
    row = results;
    sums[v] = j == 0 ? word_sum : sums[v] + word_sum;
    if (++v == all) {
      v = 0;
      ++j;
    }
  }
  Word losses = filled(0.0F);  // kRowMultiple of them are interleaved
  LOOP(gradients)
  for (int i = 0, v = 0, j = 0, first = 0; i < all * words_out * kLanes / kAtOnce; ++i) {
    PIPELINED(gradients, 1, max_of(kGradients, kUramRead + kLogarithm + 3 * kAdd));
#pragma HLS dependence variable = rows type = inter false  // each word once
    const int seed = begin + v;
    Word& row = rows[seed % D::kBanks][from + seed / D::kBanks * words_out + j];
    if (first == 0) word = row;
    const float factor = scale / sums[v];
#pragma HLS bind_op variable = factor op = fdiv latency = kDivide
    for (int lane = 0; lane < kAtOnce; ++lane) {
#pragma HLS unroll
      const float target = j * kLanes + first + lane == classes[v] ? scale : 0.0F;
      // Padding rows have no gradient.
      const float gradient = word.lane[first + lane] * factor - target;
      results.lane[first + lane] = v < seeds ? gradient : 0.0F;
    }
    first += kAtOnce;
    if (first < kLanes) continue;
    first = 0;
    row = results;
    if (j == 0 && v < seeds) {
      const float logarithm = std::log(sums[v]);
#pragma HLS bind_op variable = logarithm op = flog latency = kLogarithm
      losses.lane[v % kLanes] += logarithm + largest[v] - own_logits[v];
    }
    if (++v == all) {
      v = 0;
      ++j;
    }
  }
  return sum_of(losses) * scale;
}

// Computes binary cross-entropies of some classes, each 0 or 1 in `labels`, and their gradients
// times `scale`.
constexpr int kBinaryAtOnce = 2;  // an exponential, a logarithm and a quotient for each
struct BinaryLosses {
  float loss[kBinaryAtOnce];
  float gradient[kBinaryAtOnce];
};
inline BinaryLosses binary_cross_entropies(const Word& logits, const Word& labels, int first,
                                           int num_classes, float scale) {
  BinaryLosses out;
classes:
  for (int i = 0; i < kBinaryAtOnce; ++i) {
#pragma HLS unroll
    const float x = logits.lane[first + i], label = labels.lane[first + i];
    const float tail = std::exp(x < 0 ? x : -x);  // of the negated absolute value
#pragma HLS bind_op variable = tail op = fexp latency = kExponential
    const float positive = (x < 0 ? tail : 1.0F) / (1 + tail);
#pragma HLS bind_op variable = positive op = fdiv latency = kDivide
    const float logarithm = std::log(1 + tail);
#pragma HLS bind_op variable = logarithm op = flog latency = kLogarithm
    const bool counts = first + i < num_classes;
    out.loss[i] = counts ? (x > 0 ? x : 0.0F) - x * label + logarithm : 0.0F;
    out.gradient[i] = counts ? (positive - label) * scale : 0.0F;
  }
  return out;
}

// Computes the binary cross-entropy of all seeds; labels have one word for each word of logits.
template <class D>
float binary_cross_entropy(Port batch, const Group& group, int words_out, int from, float scale,
                           Word (&rows)[D::kBanks][D::kRowWords / D::kBanks]) {
  constexpr int kDepth = kUramRead + kExponential + kAdd + max_of(kDivide, kLogarithm) +
                         (log2_of(kBinaryAtOnce) + 3) * kAdd + kWrite;
  batch.read_request(group.labels, group.num_seeds * words_out);
  Word losses = filled(0.0F);
  Word logits = filled(0.0F), labels = filled(0.0F), gradients = filled(0.0F);
  LOOP(classes)
  for (int i = 0, v = 0, j = 0, first = 0; v < padded(group.num_seeds); ++i) {
    PIPELINED(classes, 1, kDepth);
#pragma HLS dependence variable = rows type = inter false  // each word once
    Word& row = rows[v % D::kBanks][from + v / D::kBanks * words_out + j];
    if (first == 0) {
      logits = row;
      gradients = filled(0.0F);
    }
    if (v < group.num_seeds) {
      if (first == 0) labels = batch.read();
      const BinaryLosses result =
          binary_cross_entropies(logits, labels, first, group.num_classes - j * kLanes, scale);
      for (int lane = 0; lane < kBinaryAtOnce; ++lane) {
#pragma HLS unroll
        gradients.lane[first + lane] = result.gradient[lane];
      }
      losses.lane[i % kLanes] += tree_of<kBinaryAtOnce>(result.loss, Sum{});
    }
    first += kBinaryAtOnce;
    if (first < kLanes) continue;
    row = gradients;
    first = 0;
    if (++j == words_out) {
      j = 0;
      ++v;
    }
  }
  return sum_of(losses) * scale;
}

// Computes the loss of a group of seeds.
template <class D>
float lose(Port batch, const Group& group, int words_out, int from, bool multilabel, float scale,
           Word (&rows)[D::kBanks][D::kRowWords / D::kBanks]) {
  if (multilabel) {
    return binary_cross_entropy<D>(batch, group, words_out, from, scale, rows);
  }
  float loss = 0;
chunks:
  for (int begin = 0; begin < group.num_seeds; begin += kLossSeeds) {
    const int seeds = min_of(kLossSeeds, group.num_seeds - begin);
    loss += cross_entropy<D>(batch, group, begin, seeds, words_out, from, scale, rows);
  }
  return loss;
}

}  // namespace gnnscale::fpga
