// Every kind of checkpoint error, each caused by a file that an operator might have.
#include "model/io/checkpoint_error.h"

#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "model/checkpoint.h"
#include "model/expert_weights.h"
#include "model/experts/layer_experts.h"
#include "tests/model/checkpoint_folder.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::FileOf;
using testing::SafetensorsBytes;
using testing::SmallExperts;
using testing::TempDir;
using testing::WriteShardedCheckpoint;
using testing::WriteSmallCheckpoint;
using testing::WrittenTensor;

constexpr char kGate[] = "model.layers.1.mlp.experts.2.gate_proj.weight";
constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

// The error of opening a checkpoint with this model.safetensors.
absl::Status OpenWith(const TempDir& dir, absl::string_view bytes) {
  dir.Write("config.json", testing::SmallConfig());
  dir.Write(kSingle, bytes);
  return Checkpoint::Open(dir.path()).status();
}

absl::Status OpenWithHeader(const TempDir& dir, absl::string_view header, absl::string_view data) {
  return OpenWith(dir, FileOf(header, data));
}

// The error of opening a sharded checkpoint with this index.
absl::Status OpenWithIndex(const TempDir& dir, absl::string_view index) {
  WriteShardedCheckpoint(dir, SmallExperts(1), 7);
  dir.Write(kIndex, index);
  return Checkpoint::Open(dir.path()).status();
}

// The error of loading expert 2 of layer 1 after `spoil` has changed the tensors.
absl::Status LoadAfter(const TempDir& dir, const std::function<void(WrittenTensor&)>& spoil) {
  std::vector<WrittenTensor> tensors = SmallExperts(2);
  spoil(testing::TensorNamed(tensors, kGate));
  WriteSmallCheckpoint(dir, tensors);
  const auto checkpoint = Checkpoint::Open(dir.path());
  if (!checkpoint.ok()) return checkpoint.status();
  return LoadExpert(**checkpoint, LayerId{1}, ExpertId{2}).status();
}

std::string Header(absl::string_view fields) { return absl::StrCat(R"({"t":{)", fields, "}}"); }

absl::Status ReadAfterShrinking(const TempDir& dir) {
  WriteSmallCheckpoint(dir, SmallExperts(3));
  const auto checkpoint = Checkpoint::Open(dir.path());
  if (!checkpoint.ok()) return checkpoint.status();
  std::filesystem::resize_file(dir.Join(kSingle), 2'000);
  std::vector<std::byte> out((*checkpoint)->Find(kGate)->bytes);
  return (*checkpoint)->Read(kGate, out);
}

struct ErrorCase {
  const char* kind;
  StatusCode code;
  const char* file;    // name of the file that the error must name; "" for the folder
  const char* tensor;  // "" for none
  std::function<absl::Status(const TempDir&)> make;
};

std::vector<ErrorCase> HeaderCases() {
  const auto header = [](const char* kind, const char* tensor, std::string json, std::string data) {
    return ErrorCase{kind, StatusCode::kDataLoss, kSingle, tensor,
                     [=](const TempDir& dir) { return OpenWithHeader(dir, json, data); }};
  };
  const auto bytes = [](const char* kind, std::string file) {
    return ErrorCase{kind, StatusCode::kDataLoss, kSingle, "",
                     [=](const TempDir& dir) { return OpenWith(dir, file); }};
  };
  return {
      header("INVALID_HEADER", "", "{\"\xff\":1}", ""),
      header("INVALID_HEADER_START", "", "[]", ""),
      header("INVALID_HEADER_DESERIALIZATION", "", "{", ""),
      bytes("HEADER_TOO_LARGE", std::string(8, '\xff')),
      // One byte above the limit, in a file that would be long enough.
      {"HEADER_TOO_LARGE", StatusCode::kDataLoss, kSingle, "",
       [](const TempDir& dir) {
         const std::uint64_t length = 100'000'001;
         const std::string prefix =
             testing::BytesOf(std::span<const std::uint64_t>(&length, 1)) + "{}";
         dir.Write("config.json", testing::SmallConfig());
         std::filesystem::resize_file(dir.Write(kSingle, prefix), 200'000'000);
         return Checkpoint::Open(dir.path()).status();
       }},
      bytes("HEADER_TOO_SMALL", "1234567"),
      bytes("HEADER_TOO_SMALL", ""),
      bytes("INVALID_HEADER_LENGTH", FileOf("{}", "").substr(0, 9)),
      header("TENSOR_INVALID_INFO", "t", Header(R"("dtype":"I8","shape":[3],"data_offsets":[0,2])"),
             "ab"),
      header("INVALID_OFFSET", "t", Header(R"("dtype":"I8","shape":[2],"data_offsets":[1,3])"),
             "abc"),
      header("METADATA_INCOMPLETE_BUFFER", "",
             Header(R"("dtype":"I8","shape":[2],"data_offsets":[0,2])"), "abc"),
      header("VALIDATION_OVERFLOW", "t",
             Header(R"("dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
             "12345678"),
      header("MISALIGNED_SLICE", "t", Header(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"),
             "ab"),
      header("DUPLICATE_KEY", "", R"({"__metadata__":{"a":"1","a":"2"}})", ""),
      header("UNKNOWN_DTYPE", "t", Header(R"("dtype":"F3","shape":[8],"data_offsets":[0,3])"),
             "abc"),
      header("HEADER_TOO_DEEP", "t",
             Header(absl::StrCat(R"("x":)", std::string(200, '['), std::string(200, ']'))), ""),
      header("TOO_MANY_DIMS", "t",
             Header(absl::StrCat(R"("dtype":"I8","data_offsets":[0,1],"shape":[1)",
                                 [] {
                                   std::string ones;
                                   for (int i = 0; i < 64; ++i) ones += ",1";
                                   return ones;
                                 }(),
                                 "]")),
             "a"),
  };
}

std::vector<ErrorCase> LimitCases() {
  const auto limited = [](const char* kind, SafetensorsLimits limits) {
    return ErrorCase{kind, StatusCode::kDataLoss, kSingle, "", [=](const TempDir& dir) {
                       WriteSmallCheckpoint(dir, SmallExperts(4));
                       dir.Write(kSingle,
                                 FileOf(R"({"__metadata__":{"a":"","b":""},)"
                                        R"("t":{"dtype":"I8","shape":[],"data_offsets":[0,1]},)"
                                        R"("u":{"dtype":"I8","shape":[],"data_offsets":[1,2]}})",
                                        "ab"));
                       return Checkpoint::Open(dir.path(), limits).status();
                     }};
  };
  return {limited("HEADER_TOO_LARGE", {.header_bytes_max = 100}),
          limited("TOO_MANY_TENSORS", {.tensors_max = 1}),
          limited("TOO_MANY_METADATA_ENTRIES", {.metadata_entries_max = 1})};
}

std::vector<ErrorCase> FileCases() {
  return {
      {"IO_ERROR", StatusCode::kNotFound, "", "",
       [](const TempDir& dir) { return Checkpoint::Open(dir.Join("nowhere")).status(); }},
      {"IO_ERROR", StatusCode::kNotFound, "", "",
       [](const TempDir& dir) { return Checkpoint::Open(dir.path()).status(); }},
      {"IO_ERROR", StatusCode::kNotFound, "config.json", "",
       [](const TempDir& dir) {
         dir.Write(kSingle, FileOf("{}", ""));
         return Checkpoint::Open(dir.path()).status();
       }},
      {"IO_ERROR", StatusCode::kNotFound, "b.safetensors", "",
       [](const TempDir& dir) {
         WriteShardedCheckpoint(dir, SmallExperts(5), 7);
         std::filesystem::remove(dir.Join("b.safetensors"));
         return Checkpoint::Open(dir.path()).status();
       }},
      {"IO_ERROR", StatusCode::kDataLoss, kSingle, kGate, &ReadAfterShrinking},
      {"NOT_A_REGULAR_FILE", StatusCode::kDataLoss, kSingle, "",
       [](const TempDir& dir) {
         WriteSmallCheckpoint(dir, SmallExperts(6));
         std::filesystem::rename(dir.Join(kSingle), dir.Join("elsewhere"));
         std::filesystem::create_symlink("elsewhere", dir.Join(kSingle));
         return Checkpoint::Open(dir.path()).status();
       }},
      {"NOT_A_REGULAR_FILE", StatusCode::kDataLoss, "b.safetensors", "",
       [](const TempDir& dir) {
         WriteShardedCheckpoint(dir, SmallExperts(7), 7);
         std::filesystem::remove(dir.Join("b.safetensors"));
         // A pipe without a writer: opening it must not block.
         EXPECT_EQ(mkfifo(dir.Join("b.safetensors").c_str(), 0600), 0);
         return Checkpoint::Open(dir.path()).status();
       }},
      {"NOT_A_REGULAR_FILE", StatusCode::kDataLoss, "config.json", "",
       [](const TempDir& dir) {
         WriteSmallCheckpoint(dir, SmallExperts(8));
         std::filesystem::remove(dir.Join("config.json"));
         std::filesystem::create_directory(dir.Join("config.json"));
         return Checkpoint::Open(dir.path()).status();
       }},
      {"UNSUPPORTED_FORMAT", StatusCode::kUnimplemented, "pytorch_model.bin", "",
       [](const TempDir& dir) {
         dir.Write("config.json", testing::SmallConfig());
         dir.Write("pytorch_model.bin", "x");
         return Checkpoint::Open(dir.path()).status();
       }},
      {"UNSUPPORTED_FORMAT", StatusCode::kUnimplemented, "m.Q4_K.gguf", "",
       [](const TempDir& dir) {
         dir.Write("m.Q4_K.gguf", "GGUF");
         return Checkpoint::Open(dir.path()).status();
       }},
      {"HEADER_TOO_LARGE", StatusCode::kDataLoss, "config.json", "",
       [](const TempDir& dir) {
         WriteSmallCheckpoint(dir, SmallExperts(9));
         std::filesystem::resize_file(dir.Join("config.json"), (16U << 20U) + 1);
         return Checkpoint::Open(dir.path()).status();
       }},
  };
}

std::vector<ErrorCase> IndexCases() {
  const auto index = [](const char* kind, std::string json, const char* tensor = "") {
    return ErrorCase{kind, StatusCode::kDataLoss, kIndex, tensor,
                     [=](const TempDir& dir) { return OpenWithIndex(dir, json); }};
  };
  return {
      index("JSON_ERROR", "{"),
      index("JSON_ERROR", "{\"a\": \"\xff\"}"),
      index("INDEX_INVALID", "{}"),
      index("INDEX_INVALID", "[]"),
      index("UNSAFE_FILE_NAME", R"({"weight_map": {"t": "../b.safetensors"}})"),
      index("DUPLICATE_KEY", R"({"weight_map": {"t": "a.safetensors", "t": "a.safetensors"}})",
            "t"),
      index("INDEX_MISMATCH", R"({"weight_map": {"t": "a.safetensors"}})", "t"),
      // The shards hold tensors that the index does not list.
      index(
          "INDEX_MISMATCH",
          R"({"weight_map": {"model.layers.0.mlp.experts.0.gate_proj.weight": "a.safetensors"}})"),
      {"AMBIGUOUS_WEIGHTS", StatusCode::kFailedPrecondition, "", "",
       [](const TempDir& dir) {
         WriteShardedCheckpoint(dir, SmallExperts(10), 7);
         std::filesystem::remove(dir.Join(kIndex));
         return Checkpoint::Open(dir.path()).status();
       }},
  };
}

// Loads expert 2's gate of layer 1 as `layout`, from the small checkpoint and `more` tensors.
absl::Status LoadAs(const TempDir& dir, QuantLayout layout, std::vector<WrittenTensor> more) {
  std::vector<WrittenTensor> tensors =
      layout == QuantLayout::kBf16 ? SmallExperts(13) : std::vector<WrittenTensor>{};
  tensors.insert(tensors.end(), more.begin(), more.end());
  WriteSmallCheckpoint(dir, tensors);
  const auto opened = CheckpointTensors::Open(dir.path());
  if (!opened.ok()) return opened.status();
  LayerQuant quant;
  quant.projections.fill({.layout = layout});
  const LayerExperts experts(*opened,
                             {.container = "model.layers.1.mlp.experts",
                              .projections = {"gate_proj", "up_proj", "down_proj"},
                              .experts = 3},
                             quant, {.hidden = 4, .intermediate = 6, .experts = 3});
  return experts.Load(2, Projection::kGate).status();
}

std::vector<ErrorCase> QuantCases() {
  static constexpr char kModule[] = "model.layers.1.mlp.experts.2.gate_proj";
  static constexpr char kScale[] = "model.layers.1.mlp.experts.2.gate_proj.weight_scale";
  static constexpr char kOffset[] = "model.layers.1.mlp.experts.2.gate_proj.weight_offset";
  return {
      {"UNEXPECTED_TENSOR", StatusCode::kUnimplemented, kSingle, kScale,
       [](const TempDir& dir) {
         return LoadAs(dir, QuantLayout::kBf16, {{kScale, "U8", {1}, "x"}});
       }},
      {"WRONG_VALUE", StatusCode::kDataLoss, kSingle, kOffset,
       [](const TempDir& dir) {
         return LoadAs(dir, QuantLayout::kModelSlimW8A8,
                       {{absl::StrCat(kModule, ".weight"), "I8", {6, 4}, std::string(24, 'x')},
                        {kScale, "F32", {6, 1}, std::string(24, 'x')},
                        {kOffset, "F32", {6, 1}, std::string(24, 'x')}});
       }},
  };
}

std::vector<ErrorCase> TensorCases() {
  return {
      {"TENSOR_NOT_FOUND", StatusCode::kNotFound, "", kGate,
       [](const TempDir& dir) {
         return LoadAfter(dir, [](WrittenTensor& tensor) { tensor.name = "other"; });
       }},
      {"TENSOR_NOT_FOUND", StatusCode::kNotFound, "", "nameless",
       [](const TempDir& dir) {
         WriteSmallCheckpoint(dir, SmallExperts(11));
         const auto checkpoint = Checkpoint::Open(dir.path());
         if (!checkpoint.ok()) return checkpoint.status();
         return (*checkpoint)->Read("nameless", {});
       }},
      {"WRONG_SHAPE", StatusCode::kDataLoss, kSingle, kGate,
       [](const TempDir& dir) {
         return LoadAfter(dir, [](WrittenTensor& tensor) { tensor.shape = {4, 6}; });
       }},
      {"WRONG_DTYPE", StatusCode::kUnimplemented, kSingle, kGate,
       [](const TempDir& dir) {
         return LoadAfter(dir, [](WrittenTensor& tensor) { tensor.dtype = "F16"; });
       }},
      {"INVALID_TENSOR_VIEW", StatusCode::kInvalidArgument, kSingle, kGate,
       [](const TempDir& dir) {
         WriteSmallCheckpoint(dir, SmallExperts(12));
         const auto checkpoint = Checkpoint::Open(dir.path());
         if (!checkpoint.ok()) return checkpoint.status();
         std::vector<std::byte> out(47);
         return (*checkpoint)->Read(kGate, out);
       }},
  };
}

std::vector<ErrorCase> AllCases() {
  std::vector<ErrorCase> all;
  for (auto part :
       {HeaderCases(), LimitCases(), FileCases(), IndexCases(), TensorCases(), QuantCases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(CheckpointErrorTest, EachCaseGivesItsKindCodeFileAndTensor) {
  int number = 0;
  for (const ErrorCase& one : AllCases()) {
    const TempDir dir;
    const absl::Status status = one.make(dir);
    const auto metadata = MetadataOf(status);

    SCOPED_TRACE(absl::StrCat("case ", number++, ", ", one.kind, ": ", status.ToString()));
    ASSERT_THAT(status, testing::FailsWith(one.code, Reason::kCheckpoint));
    EXPECT_EQ(metadata.at("kind"), one.kind);
    const std::string file = metadata.at("file");
    EXPECT_TRUE(file.find(one.file) != std::string::npos) << file;
    EXPECT_NE(std::string(status.message()).find(file), std::string::npos);
    EXPECT_EQ(metadata.contains("tensor") ? metadata.at("tensor") : "", one.tensor);
  }
}

TEST(CheckpointErrorTest, TheCasesReachEveryKind) {
  std::set<std::string> all;
  for (const CheckpointErrorKind kind : AllCheckpointErrorKinds()) {
    EXPECT_TRUE(all.insert(std::string(CheckpointErrorKindName(kind))).second);
  }

  std::set<std::string> reached;
  for (const ErrorCase& one : AllCases()) reached.insert(one.kind);

  EXPECT_EQ(reached, all);
}

TEST(CheckpointErrorTest, SystemErrorsKeepTheirMeaning) {
  const std::pair<int, StatusCode> cases[] = {
      {ENOENT, StatusCode::kNotFound},          {EACCES, StatusCode::kPermissionDenied},
      {EPERM, StatusCode::kPermissionDenied},   {EMFILE, StatusCode::kResourceExhausted},
      {ENFILE, StatusCode::kResourceExhausted}, {EIO, StatusCode::kDataLoss}};
  for (const auto& [error_number, code] : cases) {
    const absl::Status status =
        MakeCheckpointIoError({.file = "f", .tensor = "", .offset = 7}, "read", error_number);
    EXPECT_THAT(status, testing::FailsWith(code, Reason::kCheckpoint));
    EXPECT_EQ(MetadataOf(status).at("offset"), "7");
  }
}

TEST(CheckpointErrorTest, NamesAreFitToPrintWhateverTheyHold) {
  EXPECT_EQ(PrintableName("model.layers.3"), "model.layers.3");
  EXPECT_EQ(PrintableName("a\nb\x1b[31m"), "a\\nb\\x1b[31m");
  const std::string cut = PrintableName(std::string(1'000'000, 'x') + "/end");
  EXPECT_LT(cut.size(), 500U);
  EXPECT_EQ(cut.substr(cut.size() - 5), "x/end");
}

}  // namespace
}  // namespace switchyard
