// libFuzzer's entry: build/fuzz/fuzz/quant_fuzzer tests/fuzz/corpus/quant
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/quant_parsers.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  switchyard::fuzz::ParseQuantPart({reinterpret_cast<const char*>(data), size});
  return 0;
}
