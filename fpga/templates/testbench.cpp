// Runs a training step with the vectors of C simulation: for csim_design and cosim_design of Vitis
// HLS, and, by `make testbench`, for the simulation in csim.
//
// usage: testbench [FOLDER]; the default folder is `vectors`. Returns 0 if all bits agree.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#ifdef GNNSCALE_DESIGN
#include "gnnscale_design.hpp"
#endif
#include "gnnscale_fpga/dataflow.hpp"
#include "gnnscale_fpga/word.hpp"

using gnnscale::fpga::Word;

#ifdef __VITIS_HLS__
using Argument = gnnscale::fpga::Port;
#else
using Argument = Word*;
#endif

extern "C" {
#ifdef __VITIS_HLS__
void gnnscale_step(Argument batch, Argument edges, Argument features, Argument weights,
                   Argument gradients, Argument scratch, Argument result, int32_t num_groups,
                   int32_t flags, int32_t seed_low, int32_t seed_high, int32_t step_low,
                   int32_t step_high, int32_t scale);
#else
void gnnscale_step(const Word* batch, const Word* edges, const Word* features, const Word* weights,
                   Word* gradients, Word* scratch, Word* result, int32_t num_groups, int32_t flags,
                   int32_t seed_low, int32_t seed_high, int32_t step_low, int32_t step_high,
                   int32_t scale);
const char* gnnscale_csim_error();
#endif
}

namespace {

std::vector<char> content(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    std::fprintf(stderr, "%s: cannot be read\n", file.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

struct Vectors {
  std::map<std::string, std::vector<Word>> buffers;
  std::vector<int32_t> scalars;
};

// Output buffers start as all ones, so that words the kernel fails to write are detected.
Vectors read(const std::string& folder) {
  Vectors vectors;
  std::ifstream arguments(folder + "/arguments.txt");
  std::string name;
  long value = 0;
  while (arguments >> name >> value) {
    if (name == "scalar") {
      vectors.scalars.push_back(static_cast<int32_t>(value));
      continue;
    }
    std::vector<Word>& buffer = vectors.buffers[name];
    buffer.resize(static_cast<size_t>(value));
    const bool is_input = name != "gradients" && name != "scratch" && name != "result";
    std::memset(static_cast<void*>(buffer.data()), 0xff, buffer.size() * sizeof(Word));
    if (is_input) {
      const std::vector<char> bytes = content(folder + "/" + name + ".bin");
      std::memset(static_cast<void*>(buffer.data()), 0, buffer.size() * sizeof(Word));
      std::memcpy(static_cast<void*>(buffer.data()), bytes.data(), bytes.size());
    }
  }
  return vectors;
}

int differences(const std::vector<Word>& buffer, const std::vector<char>& expected,
                const char* name) {
  const char* bytes = reinterpret_cast<const char*>(buffer.data());
  int count = 0;
  for (size_t at = 0; at + 4 <= expected.size(); at += 4) {
    if (std::memcmp(bytes + at, expected.data() + at, 4) == 0) continue;
    if (++count <= 10) std::printf("%s: word %zu of 32 bits differs\n", name, at / 4);
  }
  return count;
}

}  // namespace

int main(int count, char** texts) {
  const std::string folder = count > 1 ? texts[1] : "vectors";
  Vectors vectors = read(folder);
  if (vectors.scalars.size() != 7 || vectors.buffers.size() != 7) {
    std::fprintf(stderr, "%s/arguments.txt: not the arguments of this kernel\n", folder.c_str());
    return 2;
  }
  auto port = [&](const char* name) { return Argument(vectors.buffers[name].data()); };
  const std::vector<int32_t>& s = vectors.scalars;
  gnnscale_step(port("batch"), port("edges"), port("features"), port("weights"), port("gradients"),
                port("scratch"), port("result"), s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
#ifndef __VITIS_HLS__
  if (*gnnscale_csim_error() != '\0') {
    std::fprintf(stderr, "%s\n", gnnscale_csim_error());
    return 1;
  }
#endif
  const int wrong =
      differences(vectors.buffers["gradients"], content(folder + "/expected_gradients.bin"),
                  "gradients") +
      differences(vectors.buffers["result"], content(folder + "/expected_result.bin"), "result");
  std::printf(wrong == 0 ? "all bits agree\n" : "%d words differ\n", wrong);
  return wrong == 0 ? 0 : 1;
}
