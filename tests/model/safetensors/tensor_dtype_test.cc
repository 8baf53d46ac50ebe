#include "model/safetensors/tensor_dtype.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(TensorDtypeTest, KnowsTheBitsOfEveryDtypeOfTheFormat) {
  const std::map<std::string, std::uint64_t> bits{
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};

  std::map<std::string, std::uint64_t> found;
  for (const TensorDtype dtype : AllTensorDtypes()) {
    found[std::string(TensorDtypeName(dtype))] = TensorDtypeBits(dtype);
  }

  EXPECT_EQ(found, bits);
}

TEST(TensorDtypeTest, NamesRoundTripAndNothingElseIsADtype) {
  for (const TensorDtype dtype : AllTensorDtypes()) {
    EXPECT_EQ(TensorDtypeFromName(TensorDtypeName(dtype)), dtype);
  }
  for (const char* name : {"", "bf16", "BF16 ", "F8", "I4", "F128"}) {
    EXPECT_FALSE(TensorDtypeFromName(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace switchyard
