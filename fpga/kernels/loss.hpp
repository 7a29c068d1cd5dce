// The loss of the seeds and its gradient, which replaces their logits (HitGNN's
// t_LC).
#pragma once

#include <cmath>

#include "kernels/tokens.hpp"

namespace gnnscale::fpga {

// Cross-entropy of a seed of class `label`, times `scale`. Its three loops are stages of a
// pipeline, each with a seed of its own: a seed takes as many cycles as its row has words, and the
// last one three times as many.
inline float cross_entropy(Word* row, int num_words, int num_classes, int label, float scale) {
  float largest = -HUGE_VALF;
  float own = 0;
highest:
  for (int j = 0; j < num_words; ++j) {
#pragma HLS pipeline II = 1
    for (int i = 0; i < kLanes; ++i) {
      const int column = j * kLanes + i;
      if (column < num_classes && row[j].lane[i] > largest) largest = row[j].lane[i];
      if (column == label) own = row[j].lane[i];
    }
  }
  float sum = 0;
exponentials:
  for (int j = 0; j < num_words; ++j) {
#pragma HLS pipeline II = 1
    for (int i = 0; i < kLanes; ++i) {
      const bool counts = j * kLanes + i < num_classes;
      row[j].lane[i] = counts ? std::exp(row[j].lane[i] - largest) : 0.0F;
      sum += row[j].lane[i];
    }
  }
gradients:
  for (int j = 0; j < num_words; ++j) {
#pragma HLS pipeline II = 1
    for (int i = 0; i < kLanes; ++i) {
      const float target = j * kLanes + i == label ? 1.0F : 0.0F;
      row[j].lane[i] = (row[j].lane[i] / sum - target) * scale;
    }
  }
  return (std::log(sum) + largest - own) * scale;
}

// Binary cross-entropy of a word of classes, each 0 or 1 in `labels`, times
// `scale`.
inline float binary_cross_entropy(Word& logits, const Word& labels, int num_classes, float scale) {
  float loss = 0;
classes:
  for (int i = 0; i < kLanes; ++i) {
#pragma HLS unroll
    if (i >= num_classes) {
      logits.lane[i] = 0;
      continue;
    }
    const float x = logits.lane[i];
    const float tail = std::exp(x < 0 ? x : -x);  // of the absolute value, negated
    loss += (x > 0 ? x : 0.0F) - x * labels.lane[i] + std::log1p(tail);
    const float positive = x < 0 ? tail / (1 + tail) : 1 / (1 + tail);
    logits.lane[i] = (positive - labels.lane[i]) * scale;
  }
  return loss * scale;
}

// The loss of a group of seeds.
template <class D>
float lose(const Word* batch, const Group& group, int words_out, int from, bool multilabel,
           float scale, Word (&rows)[D::kBanks][D::kRowWords / D::kBanks]) {
  float loss = 0;
  Word classes;
seeds:
  for (int v = 0; v < padded(group.num_seeds); ++v) {
    const int bank = v % D::kBanks;
    const int first = from + v / D::kBanks * words_out;
    Word row[D::kMaxWordsOut];
    for (int j = 0; j < words_out; ++j) row[j] = rows[bank][first + j];
    if (v >= group.num_seeds) {
      // Rows that only fill up the last one have no gradient.
      for (int j = 0; j < words_out; ++j) row[j] = filled(0.0F);
    } else if (multilabel) {
      for (int j = 0; j < words_out; ++j) {
#pragma HLS pipeline II = 1
        const Word labels = load(batch, group.labels + v * words_out + j, Count::other_words);
        loss += binary_cross_entropy(row[j], labels, group.num_classes - j * kLanes, scale);
        clock_cycle();
      }
    } else {
      if (v % kLanes == 0) classes = load(batch, group.labels + v / kLanes, Count::other_words);
      loss += cross_entropy(row, words_out, group.num_classes, bits_of(classes.lane[v % kLanes]),
                            scale);
      clock_cycle(v + 1 < group.num_seeds ? words_out : 3 * words_out);
    }
    for (int j = 0; j < words_out; ++j) rows[bank][first + j] = row[j];
  }
  return loss;
}

}  // namespace gnnscale::fpga
