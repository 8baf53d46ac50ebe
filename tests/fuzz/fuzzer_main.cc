// libFuzzer's entry for the target that SY_FUZZ_TARGET names. By hand:
//   build/fuzz/fuzz/quant_config_fuzzer tests/fuzz/corpus/quant_config
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  switchyard::fuzz::SY_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
