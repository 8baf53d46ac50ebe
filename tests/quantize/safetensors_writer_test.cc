#include "quantize/safetensors_writer.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "model/safetensors/checkpoint_tensors.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::ReadBytes;
using testing::TempDir;

constexpr auto kBad = absl::StatusCode::kInvalidArgument;

std::vector<std::byte> RandomBytes(std::uint64_t count, std::uint64_t seed) {
  SeededRng rng(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Below(256));
  return bytes;
}

// All widths, rank 0, no bytes at all, and names that JSON has to escape.
std::vector<PlannedTensor> MixedPlan() {
  return {{"layer.10.weight", TensorDtype::kBf16, {3, 5}},
          {"layer.2.codes", TensorDtype::kU8, {7}},
          {"scalar", TensorDtype::kF32, {}},
          {"empty", TensorDtype::kF32, {0, 4}},
          {"wide", TensorDtype::kI64, {2}},
          {"quote\"\\\n", TensorDtype::kI32, {4}},
          {"fp8", TensorDtype::kF8E4m3, {2, 3}},
          {"ue8m0", TensorDtype::kF8E8m0, {1, 1}}};
}

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  SafetensorsWriterTest() : folder_(*OutputFolder::Create(dir_.Join("out"), false)) {}

  // Writes every tensor of `plan` in pieces of `piece` bytes, the last tensor first.
  absl::Status WriteAll(const std::vector<PlannedTensor>& plan, std::uint64_t shard_bytes,
                        std::size_t piece) {
    auto writer = SafetensorsWriter::Create(folder_.get(), plan, shard_bytes);
    if (!writer.ok()) return writer.status();
    for (std::size_t i = plan.size(); i-- > 0;) {
      const std::vector<std::byte> bytes = RandomBytes(*BytesOf(plan[i]), i);
      for (std::size_t at = 0; at < bytes.size(); at += piece) {
        const auto count = std::min(piece, bytes.size() - at);
        const absl::Status wrote =
            (*writer)->Write(plan[i].name, std::span(bytes).subspan(at, count));
        if (!wrote.ok()) return wrote;
      }
    }
    files_ = (*writer)->files();
    const absl::Status finished = (*writer)->Finish();
    return finished.ok() ? folder_->Commit() : finished;
  }

  void ExpectAllThere(const std::vector<PlannedTensor>& plan) {
    SY_ASSERT_OK_AND_ASSIGN(const CheckpointTensors read,
                            CheckpointTensors::Open(dir_.Join("out")));
    EXPECT_EQ(read.names().size(), plan.size());
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const TensorInfo* tensor = read.Find(plan[i].name);
      ASSERT_NE(tensor, nullptr) << plan[i].name;
      EXPECT_EQ(tensor->dtype, plan[i].dtype) << plan[i].name;
      EXPECT_EQ(tensor->shape, plan[i].shape) << plan[i].name;
      std::vector<std::byte> bytes(tensor->bytes, std::byte{0x5a});
      SY_ASSERT_OK(read.Read(plan[i].name, bytes));
      EXPECT_EQ(bytes, RandomBytes(bytes.size(), i)) << plan[i].name;
      const std::uint64_t width = std::max<std::uint64_t>(1, TensorDtypeBits(tensor->dtype) / 8);
      EXPECT_EQ(tensor->file_offset % width, 0U) << plan[i].name << " is not aligned";
    }
  }

  const TempDir dir_;
  std::unique_ptr<OutputFolder> folder_;
  std::vector<std::string> files_;
};

TEST_F(SafetensorsWriterTest, OneFileReadsBackBitForBit) {
  SY_ASSERT_OK(WriteAll(MixedPlan(), 1'000'000, 1'000));

  EXPECT_THAT(files_, ElementsAre("model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(dir_.Join("out/model.safetensors.index.json")));
  ExpectAllThere(MixedPlan());
}

TEST_F(SafetensorsWriterTest, PiecesOfAnySizeGiveTheSame) {
  SY_ASSERT_OK(WriteAll(MixedPlan(), 1'000'000, 3));
  ExpectAllThere(MixedPlan());
}

TEST_F(SafetensorsWriterTest, ShardsHaveAnIndexAndKeepToTheirSize) {
  SY_ASSERT_OK(WriteAll(MixedPlan(), 31, 1'000));

  EXPECT_THAT(files_,
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors"));
  EXPECT_THAT(ReadBytes(dir_.Join("out/model.safetensors.index.json")),
              HasSubstr("\"total_size\": 80"));
  ExpectAllThere(MixedPlan());
}

TEST_F(SafetensorsWriterTest, ATensorLargerThanAShardHasOneOfItsOwn) {
  SY_ASSERT_OK(WriteAll(MixedPlan(), 1, 1'000));
  EXPECT_EQ(files_.size(), 7U);  // the empty tensor takes no room
  ExpectAllThere(MixedPlan());
}

TEST_F(SafetensorsWriterTest, HeadersAreAsTheReferenceWriterPadsThem) {
  SY_ASSERT_OK(WriteAll(MixedPlan(), 1'000'000, 1'000));
  const std::string bytes = ReadBytes(dir_.Join("out/model.safetensors"));
  const auto length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) +
                      (static_cast<std::size_t>(static_cast<unsigned char>(bytes[1])) << 8U);

  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(bytes.substr(8, 33), "{\"__metadata__\":{\"format\":\"pt\"},\"");
  EXPECT_EQ(bytes.size(), 8 + length + 80);
}

TEST_F(SafetensorsWriterTest, RefusesWhatIsNotPlanned) {
  SY_ASSERT_OK_AND_ASSIGN(const auto writer,
                          SafetensorsWriter::Create(folder_.get(), MixedPlan(), 1'000));
  const std::vector<std::byte> bytes = RandomBytes(17, 1);

  EXPECT_THAT(writer->Write("other", bytes), FailsWith(kBad, Reason::kBadRequest));
  EXPECT_THAT(writer->Write("layer.2.codes", bytes), FailsWith(kBad, Reason::kBadRequest));
  SY_EXPECT_OK(writer->Write("layer.2.codes", std::span(bytes).first(6)));
  EXPECT_THAT(writer->Write("layer.2.codes", std::span(bytes).first(2)),
              FailsWith(kBad, Reason::kBadRequest));
  const absl::Status finished = writer->Finish();
  EXPECT_THAT(finished, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
  EXPECT_NE(MetadataOf(finished)["tensor"], "");
}

TEST_F(SafetensorsWriterTest, RefusesPlansThatNoFileHolds) {
  const auto create = [&](const PlannedTensor& tensor, std::uint64_t shard_bytes = 100) {
    return SafetensorsWriter::Create(folder_.get(), {MixedPlan()[0], tensor}, shard_bytes).status();
  };
  EXPECT_THAT(create({"layer.10.weight", TensorDtype::kU8, {1}}),
              FailsWith(kBad, Reason::kBadConfig));
  EXPECT_THAT(create({"x", TensorDtype::kU8, {-1}}), FailsWith(kBad, Reason::kBadShape));
  EXPECT_THAT(create({"x", TensorDtype::kF4, {3}}), FailsWith(kBad, Reason::kBadShape));
  EXPECT_THAT(create({"x", TensorDtype::kF64, {1LL << 40, 1LL << 40}}),
              FailsWith(kBad, Reason::kBadShape));
  EXPECT_THAT(create({"x", TensorDtype::kU8, {1}}, 0), FailsWith(kBad, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
