// The whole engine with the parts of fpga/rtl in place of its processes: of a design with two
// scatter-gather PEs, of functions that add weighted rows. The compiler takes it before
// `csim/library.cpp` (-include).
#pragma once

#include "gnnscale_fpga/functions.hpp"
#include "rtl/processes.hpp"

namespace gnnscale::fpga {

using DesignOfParts = Design<GNNSCALE_N, GNNSCALE_M>;

template <>
void scatter<WeightedSum>(Task task, Stream<Edge>& edges, Stream<Row>& rows, Stream<Message>& out) {
  rtl::scatter(task, edges, rows, out);
}

template <>
void route<DesignOfParts, Message>(Task task, int /*bit*/,
                                   Stream<Message> (&in)[DesignOfParts::kPes],
                                   Stream<Message> (&out)[DesignOfParts::kPes]) {
  rtl::route<DesignOfParts>(task, in, out);
}

template <>
void gather<DesignOfParts, WeightedSum>(Task task, HalfOfSums<DesignOfParts>& first_sums,
                                        HalfOfSums<DesignOfParts>& /*second_sums*/,
                                        Stream<Message>& in, Stream<Word>& /*even_sources*/,
                                        Stream<Word>& /*odd_sources*/, Stream<Word>& out,
                                        Stream<Word>& even_out, Stream<Word>& odd_out) {
  rtl::gather<DesignOfParts>(task, first_sums, in, out, even_out, odd_out);
}

template <>
void multiply<DesignOfParts>(Task task, Stream<Word> (&lefts)[DesignOfParts::kLefts],
                             Stream<Word> (&rights)[DesignOfParts::kSlices],
                             Stream<Word> (&out)[DesignOfParts::kDrains]) {
  rtl::multiply<DesignOfParts>(task, lefts, rights, out);
}

}  // namespace gnnscale::fpga
