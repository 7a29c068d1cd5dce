// Streams, processes and memory of C simulation.
#include "csim/simulation.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "gnnscale_fpga/dataflow.hpp"

namespace gnnscale::fpga {
namespace {

void produce(int number, int cycles, Stream<int>& out) {
  for (int i = 0; i < number; ++i) {
    out.write(i);
    clock_cycle(cycles);
  }
}

void consume(int number, int cycles, Stream<int>& in, std::vector<int64_t>& at) {
  for (int i = 0; i < number; ++i) {
    CHECK(in.read() == i);
    at.push_back(csim::Simulation::current().now());
    clock_cycle(cycles);
  }
}

void what_is_written_is_there_a_cycle_later() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, numbers, 2, 1);
  std::vector<int64_t> at;
  Dataflow region;
  // The order in which processes are added says nothing about time.
  region.add("consume", -1, consume, 4, 1, numbers, at);
  region.add("produce", -1, produce, 4, 1, numbers);
  region.run();
  CHECK((at == std::vector<int64_t>{1, 2, 3, 4}));
  CHECK(simulation.now() == 5);
}

void a_pipeline_delays_and_holds_what_is_in_it() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, numbers, 2, 5);
  std::vector<int64_t> at;
  Dataflow region;
  region.add("produce", -1, produce, 8, 1, numbers);
  region.add("consume", -1, consume, 8, 1, numbers, at);
  region.run();
  CHECK((at == std::vector<int64_t>{5, 6, 7, 8, 9, 10, 11, 12}));
}

void a_full_stream_holds_the_writer_up() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, numbers, 2, 1);
  std::vector<int64_t> at;
  Dataflow region;
  region.add("produce", -1, produce, 6, 1, numbers);
  region.add("consume", -1, consume, 6, 3, numbers, at);
  region.run();
  CHECK((at == std::vector<int64_t>{1, 4, 7, 10, 13, 16}));
}

void wait_for_ever(Stream<int>& in, Stream<int>& out) { out.write(in.read()); }

void a_deadlock_names_its_streams() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, there, 2, 1);
  STREAMS(int, back, 2, 2, 1);
  Dataflow region;
  region.add("left", -1, wait_for_ever, there, back[1]);
  region.add("right", 3, wait_for_ever, back[1], there);
  std::string said;
  try {
    region.run();
  } catch (const csim::SimulationError& error) {
    said = error.what();
  }
  CHECK(said ==
        "deadlock in cycle 0: left waits for data from there; right 3 "
        "waits for data from back 1");
}

void poll(Stream<int>& in) {
  while (in.empty()) clock_cycle();
}

void processes_that_ask_again_and_again_are_in_a_deadlock_too() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, there, 2, 1);
  STREAM(int, back, 2, 1);
  Dataflow region;
  region.add("asks", -1, poll, there);
  region.add("waits", -1, wait_for_ever, back, there);
  std::string said;
  try {
    region.run();
  } catch (const csim::SimulationError& error) {
    said = error.what();
  }
  CHECK(said == "deadlock in cycle 1000001: waits waits for data from back");
}

void a_stream_without_reader_is_a_deadlock() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, numbers, 2, 1);
  Dataflow region;
  region.add("produce", -1, produce, 3, 1, numbers);
  std::string said;
  try {
    region.run();
  } catch (const csim::SimulationError& error) {
    said = error.what();
  }
  CHECK(said == "deadlock in cycle 2: produce waits for room in numbers");
}

void read_words(const Word* port, int first, int number) {
  for (int i = 0; i < number; ++i) {
    load(port, first + i, Count::feature_words);
    clock_cycle();
  }
}

void a_burst_takes_a_cycle_a_word() {
  std::vector<Word> words(130);
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  Dataflow region;
  region.add("read", -1, read_words, words.data(), 0, 130);
  region.run();
  // 64 cycles until the first word, 130 words, and a cycle before the second
  // and third burst.
  CHECK(simulation.now() == 64 + 130 + 2);
  CHECK(simulation.counted(Count::bursts) == 3);
  CHECK(simulation.counted(Count::burst_gaps) == 2);
  CHECK(simulation.counted(Count::latency) == 64);
}

void two_ports_share_a_bank() {
  std::vector<Word> a(32), b(32);
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  Dataflow region;
  region.add("read a", -1, read_words, a.data(), 0, 32);
  region.add("read b", -1, read_words, b.data(), 0, 32);
  region.run();
  CHECK(simulation.now() == 64 + 64);
}

void a_slow_bank_takes_longer() {
  std::vector<Word> words(32);
  csim::BankModel model;
  model.cycles_per_word = 1.5;
  csim::Simulation simulation{model};
  const csim::Entered entered(simulation);
  Dataflow region;
  region.add("read", -1, read_words, words.data(), 0, 32);
  region.run();
  CHECK(simulation.now() == 64 + 47 + 1);  // word 31 at 64 + 31 * 1.5, and its own cycle
}

void memory_ends_where_the_buffer_ends() {
  std::vector<Word> words(4), others(4);
  csim::Simulation simulation{csim::BankModel{}};
  simulation.allow({{words.data(), 4 * 64, "features"}});
  const csim::Entered entered(simulation);
  std::string said;
  try {
    Dataflow region;
    region.add("read", -1, read_words, words.data(), 0, 5);
    region.run();
  } catch (const csim::SimulationError& error) {
    said = error.what();
  }
  CHECK(said == "the kernel read word 4 of features, which has 4");
  CHECK_THROWS(load(words.data(), -1, Count::feature_words), csim::SimulationError);
  CHECK_THROWS(store(others.data(), 0, Word{}, Count::feature_words), csim::SimulationError);
}

}  // namespace
}  // namespace gnnscale::fpga

int main() {
  using namespace gnnscale::fpga;
  what_is_written_is_there_a_cycle_later();
  a_pipeline_delays_and_holds_what_is_in_it();
  a_full_stream_holds_the_writer_up();
  a_deadlock_names_its_streams();
  processes_that_ask_again_and_again_are_in_a_deadlock_too();
  a_stream_without_reader_is_a_deadlock();
  a_burst_takes_a_cycle_a_word();
  two_ports_share_a_bank();
  a_slow_bank_takes_longer();
  memory_ends_where_the_buffer_ends();
  return check_result();
}
