// libFuzzer's entry: build/fuzz/fuzz/checkpoint_fuzzer tests/fuzz/corpus/checkpoint
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/checkpoint_parsers.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  switchyard::fuzz::ParseCheckpointPart({reinterpret_cast<const char*>(data), size});
  return 0;
}
