// Tests of streams, processes and memory of C simulation.
#include "csim/simulation.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "gnnscale_fpga/dataflow.hpp"

namespace gnnscale::fpga {
namespace {

// Runs `number` iterations with an initiation interval.
void produce(int number, int interval, int depth, Stream<int>& out) {
  LOOP(numbers)
  for (int i = 0; i < number; ++i) {
    PIPELINED(numbers, interval, depth);
    out.write(i);
  }
}

void consume(int number, int interval, Stream<int>& in, std::vector<int64_t>& at) {
  LOOP(numbers)
  for (int i = 0; i < number; ++i) {
    PIPELINED(numbers, interval, 1);
    CHECK(in.read() == i);
    at.push_back(csim::Simulation::current().now());
  }
}

void writes_are_visible_a_cycle_later() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, numbers, 2);
  std::vector<int64_t> at;
  Dataflow region;
  // Timing must not depend on the order in which processes are added.
  region.add("consume", -1, consume, 4, 1, numbers, at);
  region.add("produce", -1, produce, 4, 1, 1, numbers);
  region.run();
  CHECK((at == std::vector<int64_t>{1, 2, 3, 4}));
  CHECK(simulation.now() == 6);  // the last element, and the depth of the loop that took it
}

void a_pipeline_delays_and_holds_its_elements() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, numbers, 2);
  std::vector<int64_t> at;
  Dataflow region;
  region.add("produce", -1, produce, 8, 1, 5, numbers);
  region.add("consume", -1, consume, 8, 1, numbers, at);
  region.run();
  CHECK((at == std::vector<int64_t>{5, 6, 7, 8, 9, 10, 11, 12}));
}

void a_full_stream_stalls_the_writer() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, numbers, 2);
  std::vector<int64_t> at;
  Dataflow region;
  region.add("produce", -1, produce, 6, 1, 1, numbers);
  region.add("consume", -1, consume, 6, 3, numbers, at);
  region.run();
  CHECK((at == std::vector<int64_t>{1, 4, 7, 10, 13, 16}));
}

void wait_for_ever(Stream<int>& in, Stream<int>& out) { out.write(in.read()); }

void a_deadlock_names_its_streams() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, forth, 2);
  STREAMS(int, back, 2, 2);
  Dataflow region;
  region.add("left", -1, wait_for_ever, forth, back[1]);
  region.add("right", 3, wait_for_ever, back[1], forth);
  std::string message;
  try {
    region.run();
  } catch (const csim::SimulationError& error) {
    message = error.what();
  }
  CHECK(message ==
        "deadlock in cycle 0: left waits for data from forth; right 3 "
        "waits for data from back 1");
}

void poll(Stream<int>& in) {
  while (in.empty()) csim::Simulation::current().cycle();
}

void polling_processes_are_also_in_a_deadlock() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, forth, 2);
  STREAM(int, back, 2);
  Dataflow region;
  region.add("asks", -1, poll, forth);
  region.add("waits", -1, wait_for_ever, back, forth);
  std::string message;
  try {
    region.run();
  } catch (const csim::SimulationError& error) {
    message = error.what();
  }
  CHECK(message == "deadlock in cycle 1000001: waits waits for data from back");
}

void a_stream_without_reader_is_a_deadlock() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAM(int, numbers, 2);
  Dataflow region;
  region.add("produce", -1, produce, 3, 1, 1, numbers);
  std::string message;
  try {
    region.run();
  } catch (const csim::SimulationError& error) {
    message = error.what();
  }
  CHECK(message == "deadlock in cycle 2: produce waits for room in numbers");
}

// Runs a pipelined loop with `trips` iterations in total.
void count_in_a_loop(int entries, int trips, int interval, int depth) {
  for (int i = 0; i < entries; ++i) {
    LOOP(inner)
    for (int j = 0; j < trips / entries; ++j) {
      PIPELINED(inner, interval, depth);
    }
  }
}

int64_t cycles_of_loop(int entries, int trips, int interval, int depth) {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  Dataflow region;
  region.add("count", -1, count_in_a_loop, entries, trips, interval, depth);
  region.run();
  return simulation.now();
}

void a_loop_costs_its_depth_whenever_it_is_entered() {
  CHECK(cycles_of_loop(1, 24, 1, 10) == 24 + 10);
  CHECK(cycles_of_loop(1, 24, 3, 10) == 3 * 24 + 10);
  CHECK(cycles_of_loop(6, 24, 1, 10) == 24 + 6 * 10);
  CHECK(cycles_of_loop(1, 0, 1, 10) == 0);  // not entered
}

void read_twice(Stream<int>& in, int interval) {
  LOOP(pairs)
  for (int i = 0; i < 4; ++i) {
    PIPELINED(pairs, interval, 1);
    CHECK(in.read() == 2 * i);
    CHECK(in.read() == 2 * i + 1);
  }
}

// A FIFO delivers one element a cycle, whatever the requested interval.
void two_reads_of_a_stream_take_two_cycles() {
  for (const int interval : {1, 2}) {
    csim::Simulation simulation{csim::BankModel{}};
    const csim::Entered entered(simulation);
    STREAM(int, numbers, 8);
    Dataflow region;
    region.add("produce", -1, produce, 8, 1, 1, numbers);
    region.add("read", -1, read_twice, numbers, interval);
    region.run();
    CHECK(simulation.now() == 1 + 8 + 1);
  }
}

void add_again(int sums) {
  SumWindow<16> window;
  LOOP(additions)
  for (int i = 0; i < 40; ++i) {
    PIPELINED(additions, 1, 12);
    window.use(i % sums, true);
  }
}

void a_sum_that_is_read_too_early_is_an_error() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  Dataflow fine, early;
  fine.add("add", -1, add_again, kSumWindow);
  fine.run();
  early.add("add", -1, add_again, kSumWindow - 1);
  CHECK_THROWS(early.run(), csim::SimulationError);
}

void fail_in_a_loop() {
  LOOP(numbers)
  for (int i = 0; i < 3; ++i) {
    PIPELINED(numbers, 1, 5);
    if (i == 1) throw csim::SimulationError("an error");
  }
}

void an_error_leaves_its_loop() {
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  Dataflow region;
  region.add("fail", -1, fail_in_a_loop);
  CHECK_THROWS(region.run(), csim::SimulationError);
}

Port port_of(const std::vector<Word>& words) { return {words.data(), Count::feature_words}; }

void read_words(Port port, int first, int number) {
  port.read_request(first, number);
  LOOP(words)
  for (int i = 0; i < number; ++i) {
    PIPELINED(words, 1, 1);
    port.read();
  }
}

void a_burst_takes_a_cycle_a_word() {
  std::vector<Word> words(130);
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  Dataflow region;
  region.add("read", -1, read_words, port_of(words), 0, 130);
  region.run();
  // 64 cycles until the first word, 130 words, one cycle before each of the second and third
  // bursts, and the depth of the loop.
  CHECK(simulation.now() == 64 + 130 + 2 + 1);
  CHECK(simulation.counted(Count::bursts) == 3);
  CHECK(simulation.counted(Count::burst_gaps) == 2);
  CHECK(simulation.counted(Count::latency) == 64);
}

void read_pieces(Port port, bool is_early) {
  port.read_request(0, 100);
  if (is_early) port.read_request(200, 100);
  LOOP(words)
  for (int i = 0; i < 200; ++i) {
    PIPELINED(words, 1, 1);
    if (i == 100 && !is_early) port.read_request(200, 100);
    port.read();
  }
}

void early_requests_do_not_wait() {
  const std::vector<Word> words(300);
  int64_t cycles[2];
  for (const bool is_early : {false, true}) {
    csim::Simulation simulation{csim::BankModel{}};
    const csim::Entered entered(simulation);
    Dataflow region;
    region.add("read", -1, read_pieces, port_of(words), is_early);
    region.run();
    cycles[is_early ? 1 : 0] = simulation.now();
  }
  CHECK(cycles[0] - cycles[1] == 64);
}

void two_ports_share_a_bank() {
  std::vector<Word> a(32), b(32);
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  Dataflow region;
  region.add("read a", -1, read_words, port_of(a), 0, 32);
  region.add("read b", -1, read_words, port_of(b), 0, 32);
  region.run();
  CHECK(simulation.now() == 64 + 64 + 1);
}

void a_slow_bank_takes_longer() {
  std::vector<Word> words(32);
  csim::BankModel model;
  model.cycles_per_word = 1.5;
  csim::Simulation simulation{model};
  const csim::Entered entered(simulation);
  Dataflow region;
  region.add("read", -1, read_words, port_of(words), 0, 32);
  region.run();
  CHECK(simulation.now() == 64 + 47 + 2);  // word 31 at 64 + 31 * 1.5, its own cycle, the depth
}

void memory_ends_where_the_buffer_ends() {
  std::vector<Word> words(4), unregistered(4);
  csim::Simulation simulation{csim::BankModel{}};
  simulation.allow({{words.data(), 4 * 64, "features"}});
  const csim::Entered entered(simulation);
  std::string message;
  try {
    Dataflow region;
    region.add("read", -1, read_words, port_of(words), 0, 5);
    region.run();
  } catch (const csim::SimulationError& error) {
    message = error.what();
  }
  CHECK(message == "the kernel read word 4 of features, which has 4");
  Port port = port_of(words);
  CHECK_THROWS(port.read_request(-1, 1), csim::SimulationError);
  CHECK_THROWS(port_of(unregistered).write_request(0, 1), csim::SimulationError);
  // A word that was not requested.
  CHECK_THROWS(port.read(), csim::SimulationError);
}

}  // namespace
}  // namespace gnnscale::fpga

int main() {
  using namespace gnnscale::fpga;
  writes_are_visible_a_cycle_later();
  a_pipeline_delays_and_holds_its_elements();
  a_full_stream_stalls_the_writer();
  a_deadlock_names_its_streams();
  polling_processes_are_also_in_a_deadlock();
  a_stream_without_reader_is_a_deadlock();
  a_loop_costs_its_depth_whenever_it_is_entered();
  two_reads_of_a_stream_take_two_cycles();
  an_error_leaves_its_loop();
  a_sum_that_is_read_too_early_is_an_error();
  a_burst_takes_a_cycle_a_word();
  early_requests_do_not_wait();
  two_ports_share_a_bank();
  a_slow_bank_takes_longer();
  memory_ends_where_the_buffer_ends();
  return check_result();
}
