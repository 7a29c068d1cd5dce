// The loss of the seeds and its gradient, which replaces their logits (HitGNN's
// t_LC).
//
// A word of all seeds is taken after the other, so that what adds up over the
// words of a seed is ready when its next word comes. A chunk of seeds passes
// three times: for its largest logits, its exponentials and its gradients.
#pragma once

#include <cmath>

#include "kernels/tokens.hpp"

namespace gnnscale::fpga {

constexpr int kLossSeeds = 512;  // of a chunk
constexpr int kLossRead = 3;     // URAM

constexpr int kTree = log2_of(kLanes);  // levels of a tree over the lanes of a word

// Cross-entropy of `seeds` seeds from `begin` on, a chunk, times `scale`.
template <class D>
float cross_entropy(Port batch, const Group& group, int begin, int seeds, int words_out, int from,
                    float scale, Word (&rows)[D::kBanks][D::kRowWords / D::kBanks]) {
  constexpr int kHighest = kLossRead + (kTree + 1) * kCompare + kWrite;
  constexpr int kExponentials = kLossRead + kAdd + kExponential + (kTree + 1) * kAdd + kWrite;
  constexpr int kGradients = kLossRead + kDivide + kMultiply + kAdd + kWrite;
  const int all = padded(seeds);
  float largest[kLossSeeds], own[kLossSeeds], sums[kLossSeeds];
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
    const float found = tree_of<kLanes>(lanes, Larger{});
    largest[v] = j == 0 || found > largest[v] ? found : largest[v];
    if (j == classes[v] / kLanes) own[v] = target;
    if (++v == all) {
      v = 0;
      ++j;
    }
  }
  LOOP(exponentials)
  for (int i = 0, v = 0, j = 0; i < all * words_out; ++i) {
    PIPELINED(exponentials, 1, kExponentials);
#pragma HLS dependence variable = sums type = inter false  // there are kRowMultiple seeds
#pragma HLS dependence variable = rows type = inter false  // each word once
    const int seed = begin + v;
    Word& row = rows[seed % D::kBanks][from + seed / D::kBanks * words_out + j];
    Word word = row;
    for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      const bool counts = j * kLanes + lane < group.num_classes;
      const float value = std::exp(word.lane[lane] - largest[v]);
#pragma HLS bind_op variable = value op = fexp latency = kExponential
      word.lane[lane] = counts ? value : 0.0F;
    }
    row = word;
    const float sum = tree_of<kLanes>(word.lane, Sum{});
    sums[v] = j == 0 ? sum : sums[v] + sum;
    if (++v == all) {
      v = 0;
      ++j;
    }
  }
  Word losses = filled(0.0F);  // of which kRowMultiple take turns
  LOOP(gradients)
  for (int i = 0, v = 0, j = 0; i < all * words_out; ++i) {
    PIPELINED(gradients, 1, max_of(kGradients, kLossRead + kLogarithm + 3 * kAdd));
#pragma HLS dependence variable = rows type = inter false  // each word once
    const int seed = begin + v;
    Word& row = rows[seed % D::kBanks][from + seed / D::kBanks * words_out + j];
    Word word = row;
    const float factor = scale / sums[v];
#pragma HLS bind_op variable = factor op = fdiv latency = kDivide
    for (int lane = 0; lane < kLanes; ++lane) {
#pragma HLS unroll
      const float target = j * kLanes + lane == classes[v] ? scale : 0.0F;
      // Rows that only fill up the last one have no gradient.
      word.lane[lane] = v < seeds ? word.lane[lane] * factor - target : 0.0F;
    }
    row = word;
    if (j == 0 && v < seeds) {
      const float logarithm = std::log(sums[v]);
#pragma HLS bind_op variable = logarithm op = flog latency = kLogarithm
      losses.lane[v % kLanes] += logarithm + largest[v] - own[v];
    }
    if (++v == all) {
      v = 0;
      ++j;
    }
  }
  return tree_of<kLanes>(losses.lane, Sum{}) * scale;
}

// Binary cross-entropy of a word of classes, each 0 or 1 in `labels`, times
// `scale`: the loss of each in `losses`.
inline Word binary_cross_entropy(const Word& logits, const Word& labels, int num_classes,
                                 float scale, float (&losses)[kLanes]) {
  Word gradients;
classes:
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    const float x = logits.lane[i];
    const float tail = std::exp(x < 0 ? x : -x);  // of the absolute value, negated
#pragma HLS bind_op variable = tail op = fexp latency = kExponential
    const float positive = x < 0 ? tail / (1 + tail) : 1 / (1 + tail);
    const bool counts = i < num_classes;
    losses[i] = counts ? (x > 0 ? x : 0.0F) - x * labels.lane[i] + std::log1p(tail) : 0.0F;
    gradients.lane[i] = counts ? (positive - labels.lane[i]) * scale : 0.0F;
  }
  return gradients;
}

// That of all seeds; a word of labels for each word of logits.
template <class D>
float binary_cross_entropies(Port batch, const Group& group, int words_out, int from, float scale,
                             Word (&rows)[D::kBanks][D::kRowWords / D::kBanks]) {
  constexpr int kDepth =
      kLossRead + kExponential + kAdd + max_of(kDivide, kLogarithm) + (kTree + 2) * kAdd + kWrite;
  batch.read_request(group.labels, group.num_seeds * words_out);
  Word losses = filled(0.0F);
  LOOP(words)
  for (int i = 0, v = 0, j = 0; v < padded(group.num_seeds); ++i) {
    PIPELINED(words, 1, kDepth);
#pragma HLS dependence variable = rows type = inter false  // each word once
    Word& row = rows[v % D::kBanks][from + v / D::kBanks * words_out + j];
    Word gradient = filled(0.0F);
    if (v < group.num_seeds) {
      float found[kLanes];
      const Word labels = batch.read();
      gradient = binary_cross_entropy(row, labels, group.num_classes - j * kLanes, scale, found);
      losses.lane[i % kLanes] += tree_of<kLanes>(found, Sum{});
    }
    row = gradient;
    if (++j == words_out) {
      j = 0;
      ++v;
    }
  }
  return tree_of<kLanes>(losses.lane, Sum{}) * scale;
}

// The loss of a group of seeds.
template <class D>
float lose(Port batch, const Group& group, int words_out, int from, bool multilabel, float scale,
           Word (&rows)[D::kBanks][D::kRowWords / D::kBanks]) {
  if (multilabel) {
    return binary_cross_entropies<D>(batch, group, words_out, from, scale, rows);
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
