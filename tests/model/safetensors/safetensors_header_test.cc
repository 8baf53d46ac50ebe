#include "model/safetensors/safetensors_header.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "model/io/checkpoint_error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

absl::StatusOr<SafetensorsHeader> Parse(absl::string_view json, std::uint64_t data_bytes,
                                        const SafetensorsLimits& limits = {}) {
  return ParseSafetensorsHeader({.json = json, .data_bytes = data_bytes, .file = "f"}, limits);
}

std::string KindOf(const absl::Status& status) {
  const auto metadata = MetadataOf(status);
  const auto it = metadata.find("kind");
  return it == metadata.end() ? "" : it->second;
}

// A header with one tensor of these fields.
std::string Tensor(absl::string_view fields) { return absl::StrCat(R"({"t":{)", fields, "}}"); }

TEST(SafetensorsHeaderTest, ReadsTensorsWithTheirPlaceInTheFile) {
  const std::string json = R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
                           R"("__metadata__":{"z":"1","a":"2"},)"
                           R"("a":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"}})";

  SY_ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, Parse(json, 28));

  const std::uint64_t data = 8 + json.size();
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0], (TensorInfo{"a", TensorDtype::kBf16, {2}, data, 4}));
  EXPECT_EQ(header.tensors[1], (TensorInfo{"b", TensorDtype::kF32, {2, 3}, data + 4, 24}));
  EXPECT_EQ(header.metadata,
            (std::vector<std::pair<std::string, std::string>>{{"a", "2"}, {"z", "1"}}));
}

// Each line: what the reference reader takes, tried with it.
TEST(SafetensorsHeaderTest, TakesWhatTheReferenceReaderTakes) {
  struct Case {
    const char* json;
    std::uint64_t data_bytes;
    std::size_t tensors;
  };
  const Case cases[] = {
      {"{}", 0, 0},
      {" \t\r\n{} \n", 0, 0},
      {R"({"__metadata__":{}})", 0, 0},
      {R"({"__metadata__":null})", 0, 0},
      // Rank 0 is one element; a dimension of 0 is none.
      {R"({"t":{"dtype":"I8","shape":[],"data_offsets":[0,1]}})", 1, 1},
      {R"({"t":{"dtype":"I8","shape":[0,5],"data_offsets":[0,0]}})", 0, 1},
      {R"({"t":{"dtype":"I8","shape":[0,9223372036854775807,3],"data_offsets":[0,0]}})", 0, 1},
      // Zero-size tensors before, between and behind others, in any order of the header.
      {R"({"a":{"dtype":"I8","shape":[0],"data_offsets":[1,1]},)"
       R"("b":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
       R"("c":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
       1, 3},
      // Tensors need no alignment.
      {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},)"
       R"("u":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
       5, 2},
      // Sub-byte dtypes that end at the end of a byte.
      {R"({"t":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", 3, 1},
      {R"({"t":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3, 1},
      {R"({"t":{"dtype":"F6_E3M2","shape":[0],"data_offsets":[0,0]}})", 0, 1},
      // Unknown fields of a tensor, of any type and depth, even named like known ones inside.
      {R"({"t":{"dtype":"I8","x":[1,{"shape":[{}]},-2.5,null,true,"s"],"shape":[1],)"
       R"("y":{"dtype":"F4","data_offsets":[9]},"data_offsets":[0,1],"z":null}})",
       1, 1},
      // Names that need escapes, and the empty one.
      {R"({"t\u0000\"\n":{"dtype":"I8","shape":[],"data_offsets":[0,1]}})", 1, 1},
      {R"({"":{"dtype":"I8","shape":[],"data_offsets":[0,1]}})", 1, 1},
      {"{\"gew\xc3\xb6hnlich \xf0\x9f\x98\x80\":{\"dtype\":\"I8\",\"shape\":[],"
       "\"data_offsets\":[0,1]}}",
       1, 1},
  };
  for (const Case& one : cases) {
    const auto header = Parse(one.json, one.data_bytes);
    SY_EXPECT_OK(header) << one.json;
    if (!header.ok()) continue;
    EXPECT_EQ(header->tensors.size(), one.tensors) << one.json;
  }
}

TEST(SafetensorsHeaderTest, KeepsEveryDtype) {
  for (const TensorDtype dtype : AllTensorDtypes()) {
    const std::uint64_t bytes = TensorDtypeBits(dtype);  // of eight elements
    const std::string json =
        Tensor(absl::StrCat(R"("dtype":")", TensorDtypeName(dtype),
                            R"(","shape":[2,4],"data_offsets":[0,)", bytes, "]"));
    SY_ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, Parse(json, bytes));
    EXPECT_EQ(header.tensors[0].dtype, dtype);
    EXPECT_EQ(header.tensors[0].bytes, bytes);
  }
}

struct BadHeader {
  const char* json;
  std::uint64_t data_bytes;
  const char* kind;
};

constexpr char kDeserialization[] = "INVALID_HEADER_DESERIALIZATION";

const BadHeader kBadHeaders[] = {
    {"{\"\xff\":1}", 0, "INVALID_HEADER"},
    {"{\"\xed\xa0\x80\":1}", 0, "INVALID_HEADER"},
    {"", 0, "INVALID_HEADER_START"},
    {"   ", 0, "INVALID_HEADER_START"},
    {"[]", 0, "INVALID_HEADER_START"},
    {"null", 0, "INVALID_HEADER_START"},
    {"\xef\xbb\xbf{}", 0, "INVALID_HEADER_START"},
    {"\xc2\xa0{}", 0, "INVALID_HEADER_START"},
    {"\v{}", 0, "INVALID_HEADER_START"},
    // Not JSON.
    {"{", 0, kDeserialization},
    {"{}}", 0, kDeserialization},
    {"{}{}", 0, kDeserialization},
    {"{} // x", 0, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},})", 1, kDeserialization},
    {R"({'t':1})", 0, kDeserialization},
    {R"({"a\x":1})", 0, kDeserialization},
    {R"({"t\ud800":{"dtype":"I8","shape":[],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"x":1e999,"dtype":"I8","shape":[],"data_offsets":[0,1]}})", 1, kDeserialization},
    // JSON, but not this JSON.
    {R"({"t":1})", 0, kDeserialization},
    {R"({"t":null})", 0, kDeserialization},
    {R"({"t":"x"})", 0, kDeserialization},
    {R"({"t":{}})", 0, kDeserialization},
    {R"({"t":["I8",[2],[0,2]]})", 2, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":null,"shape":[1],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":["I8"],"shape":[1],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":1,"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":{},"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[[1]],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":["1"],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[true],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[-1],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1.0],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1e0],"data_offsets":[0,1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[18446744073709551616],"data_offsets":[0,1]}})", 1,
     kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1,2]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,-1]}})", 1, kDeserialization},
    {R"({"t":{"dtype":"I8","shape":[1],"data_offsets":{"0":1}}})", 1, kDeserialization},
    {R"({"__metadata__":[]})", 0, kDeserialization},
    {R"({"__metadata__":{"a":1}})", 0, kDeserialization},
    {R"({"__metadata__":{"a":{}}})", 0, kDeserialization},
    {R"({"__metadata__":{"a":null}})", 0, kDeserialization},
    // Keys twice: the reference reader takes the last name, the format's text forbids it.
    {R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
     R"("t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
     1, "DUPLICATE_KEY"},
    {R"({"__metadata__":{},"__metadata__":{}})", 0, "DUPLICATE_KEY"},
    {R"({"__metadata__":{"a":"1","a":"1"}})", 0, "DUPLICATE_KEY"},
    {R"({"t":{"dtype":"I8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1, "DUPLICATE_KEY"},
    {R"({"t":{"dtype":"I8","shape":[],"shape":[],"data_offsets":[0,1]}})", 1, "DUPLICATE_KEY"},
    {R"({"t":{"dtype":"I8","shape":[],"data_offsets":[0,1],"data_offsets":[0,1]}})", 1,
     "DUPLICATE_KEY"},
    {R"({"t":{"dtype":"I4","shape":[2],"data_offsets":[0,1]}})", 1, "UNKNOWN_DTYPE"},
    // Offsets and sizes.
    {R"({"t":{"dtype":"I8","shape":[2],"data_offsets":[2,0]}})", 2, "INVALID_OFFSET"},
    {R"({"t":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})", 3, "INVALID_OFFSET"},
    {R"({"t":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
     R"("u":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
     3, "INVALID_OFFSET"},
    {R"({"t":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
     R"("u":{"dtype":"I8","shape":[2],"data_offsets":[3,5]}})",
     5, "INVALID_OFFSET"},
    {R"({"t":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
     R"("u":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})",
     2, "INVALID_OFFSET"},
    {R"({"t":{"dtype":"I8","shape":[1],)"
     R"("data_offsets":[18446744073709551615,18446744073709551615]}})",
     1, "INVALID_OFFSET"},
    {R"({"t":{"dtype":"I8","shape":[3],"data_offsets":[0,2]}})", 2, "TENSOR_INVALID_INFO"},
    {R"({"t":{"dtype":"I8","shape":[],"data_offsets":[0,0]}})", 0, "TENSOR_INVALID_INFO"},
    {R"({"t":{"dtype":"F4","shape":[4],"data_offsets":[0,4]}})", 4, "TENSOR_INVALID_INFO"},
    {R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "MISALIGNED_SLICE"},
    {R"({"t":{"dtype":"F6_E3M2","shape":[2],"data_offsets":[0,2]}})", 2, "MISALIGNED_SLICE"},
    {R"({"t":{"dtype":"I8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "VALIDATION_OVERFLOW"},
    {R"({"t":{"dtype":"I8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
     "VALIDATION_OVERFLOW"},
    {R"({"t":{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0]}})", 0,
     "VALIDATION_OVERFLOW"},
    {R"({"t":{"dtype":"I8","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0,
     "VALIDATION_OVERFLOW"},
    {R"({"t":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 1, "METADATA_INCOMPLETE_BUFFER"},
    {R"({"t":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 3, "METADATA_INCOMPLETE_BUFFER"},
    {"{}", 1, "METADATA_INCOMPLETE_BUFFER"}};

TEST(SafetensorsHeaderTest, RefusesEachBadHeaderWithItsKind) {
  for (const BadHeader& bad : kBadHeaders) {
    const absl::Status status = Parse(bad.json, bad.data_bytes).status();

    EXPECT_THAT(status, testing::FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint))
        << bad.json;
    EXPECT_EQ(KindOf(status), bad.kind) << bad.json << "\n" << status;
    EXPECT_EQ(MetadataOf(status).at("file"), "f");
  }
}

TEST(SafetensorsHeaderTest, RefusesANulByteWhereverItStands) {
  const std::string json = Tensor(R"("dtype":"I8","shape":[],"data_offsets":[0,1])");
  for (std::size_t at = 0; at <= json.size(); ++at) {
    const std::string spoiled = json.substr(0, at) + std::string(1, '\0') + json.substr(at);
    EXPECT_EQ(KindOf(Parse(spoiled, 1).status()),
              at == 0 ? "INVALID_HEADER_START" : kDeserialization);
  }
  EXPECT_EQ(KindOf(Parse(json + std::string("\0{}", 3), 1).status()), kDeserialization);
}

TEST(SafetensorsHeaderTest, NamesTheTensorAndTheByte) {
  const absl::Status tensor =
      Parse(R"({"good":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
            R"("bad\u0001":{"dtype":"I8","shape":[2],"data_offsets":[1,2]}})",
            2)
          .status();
  EXPECT_EQ(MetadataOf(tensor).at("tensor"), "bad\\x01");

  // What follows a tensor is not blamed on it.
  const std::string json = R"({"good":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}; })";
  const absl::Status behind = Parse(json, 1).status();
  EXPECT_FALSE(MetadataOf(behind).contains("tensor"));
  EXPECT_EQ(MetadataOf(behind).at("offset"), absl::StrCat(8 + json.find(';')));
}

TEST(SafetensorsHeaderTest, HoldsEachLimitExactly) {
  const SafetensorsLimits limits{
      .dims_max = 3, .depth_max = 4, .tensors_max = 2, .metadata_entries_max = 2};
  const auto tensor = [](const std::string& name, int at) {
    return absl::StrCat("\"", name, R"(":{"dtype":"I8","shape":[1],"data_offsets":[)", at, ",",
                        at + 1, "]}");
  };

  SY_EXPECT_OK(Parse(Tensor(R"("dtype":"I8","shape":[1,1,1],"data_offsets":[0,1])"), 1, limits));
  EXPECT_EQ(
      KindOf(Parse(Tensor(R"("dtype":"I8","shape":[1,1,1,1],"data_offsets":[0,1])"), 1, limits)
                 .status()),
      "TOO_MANY_DIMS");

  SY_EXPECT_OK(
      Parse(Tensor(R"("dtype":"I8","shape":[],"data_offsets":[0,1],"x":[[]])"), 1, limits));
  EXPECT_EQ(
      KindOf(Parse(Tensor(R"("dtype":"I8","shape":[],"data_offsets":[0,1],"x":[[[]]])"), 1, limits)
                 .status()),
      "HEADER_TOO_DEEP");

  SY_EXPECT_OK(Parse(absl::StrCat("{", tensor("a", 0), ",", tensor("b", 1), "}"), 2, limits));
  EXPECT_EQ(
      KindOf(Parse(absl::StrCat("{", tensor("a", 0), ",", tensor("b", 1), ",", tensor("c", 2), "}"),
                   3, limits)
                 .status()),
      "TOO_MANY_TENSORS");

  SY_EXPECT_OK(Parse(R"({"__metadata__":{"a":"","b":""}})", 0, limits));
  EXPECT_EQ(KindOf(Parse(R"({"__metadata__":{"a":"","b":"","c":""}})", 0, limits).status()),
            "TOO_MANY_METADATA_ENTRIES");
}

TEST(SafetensorsHeaderTest, SurvivesRandomDamage) {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("b":{"dtype":"F4","shape":[4],"data_offsets":[12,14],"x":[{"y":[1,2]}]}})";
  SY_ASSERT_OK(Parse(json, 14));
  constexpr std::uint64_t kSeed = 20'261'120;
  SeededRng rng(kSeed);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = json;
    const std::uint64_t edits = 1 + rng.Below(4);
    for (std::uint64_t edit = 0; edit < edits; ++edit) {
      const std::size_t at = rng.Below(damaged.size());
      switch (rng.Below(4)) {
        case 0:
          damaged[at] = static_cast<char>(rng.Next());
          break;
        case 1:
          damaged.erase(at, 1 + rng.Below(8));
          break;
        case 2:
          damaged.insert(at, damaged.substr(rng.Below(damaged.size()), 1 + rng.Below(8)));
          break;
        default:
          damaged[at] = "{}[],:\"0123456789"[rng.Below(17)];
          break;
      }
      if (damaged.empty()) damaged = " ";
    }
    const auto header = Parse(damaged, 14);
    if (!header.ok()) {
      ASSERT_EQ(ReasonOf(header.status()), Reason::kCheckpoint)
          << "seed " << kSeed << " round " << round << "\n"
          << damaged;
      continue;
    }
    // Whatever is accepted tiles the data.
    ++accepted;
    std::uint64_t end = 8 + damaged.size();
    for (const TensorInfo& tensor : header->tensors) {
      ASSERT_EQ(tensor.file_offset, end) << damaged;
      end += tensor.bytes;
    }
    ASSERT_EQ(end, 8 + damaged.size() + 14) << damaged;
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace switchyard
