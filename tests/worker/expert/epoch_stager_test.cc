#include "worker/expert/epoch_stager.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/worker/expert/epoch_testing.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::FakeDevice;
using testing::FakeExpert;
using testing::MakePlan;
using testing::MakePrepare;
using testing::MakeStaged;
using testing::StagerOf;
using testing::TestModel;

using Resident = std::vector<std::shared_ptr<const EpochRuntime>>;

absl::StatusOr<StagedEpoch> Stage(const StagerOptions& options, const Prepare& prepare,
                                  const Resident& resident = {}) {
  return EpochStager(options).Stage(
      {.prepare = &prepare, .resident = resident, .stop = {}, .on_progress = {}});
}

// Every slot holds the expert that the plan puts there, packed from the model's own weights.
void ExpectHoldsItsPart(const EpochRuntime& runtime) {
  ASSERT_EQ(runtime.layers.size(), runtime.plan.layers.size());
  for (const LayerPlacement& placement : runtime.plan.layers) {
    const LayerRuntime* layer = runtime.FindLayer(placement.layer);
    ASSERT_NE(layer, nullptr);
    EXPECT_EQ(&runtime.layers[static_cast<std::size_t>(layer->index)], layer);
    std::size_t here = 0;
    for (const PhysicalExpert& p : placement.experts) {
      if (p.worker != runtime.self) continue;
      ++here;
      const ExpertSlot& slot = layer->slots.at(static_cast<std::size_t>(p.slot.value));
      EXPECT_EQ(slot.expert, p.expert);
      SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights raw,
                              GenerateExpert(TestModel(), placement.layer, p.expert));
      const auto& packed = static_cast<const FakeExpert&>(*slot.weights);
      EXPECT_EQ(packed.gate, raw.gate);
      EXPECT_EQ(packed.up, raw.up);
      EXPECT_EQ(packed.down, raw.down);
    }
    EXPECT_EQ(layer->slots.size(), here);
    EXPECT_TRUE(layer->Takes(kBf16Format));
    EXPECT_FALSE(layer->Takes(kFp8Format));
  }
}

TEST(EpochStagerTest, LoadsTheExpertsThatThePlanGivesThisWorker) {
  for (std::int32_t worker = 0; worker < 4; ++worker) {
    FakeDevice device;
    const Prepare prepare = MakePrepare(MakePlan(3, 4));

    SY_ASSERT_OK_AND_ASSIGN(const StagedEpoch staged, Stage(StagerOf(worker, &device), prepare));

    EXPECT_EQ(staged.runtime->deployment(), "demo");
    EXPECT_EQ(staged.runtime->epoch(), Epoch{3});
    EXPECT_EQ(staged.runtime->hash, HashOf(prepare.plan));
    EXPECT_EQ(staged.runtime->self, WorkerOrdinal{worker});
    ASSERT_NE(staged.memory, nullptr);
    EXPECT_EQ(staged.memory->shape, TestModel().shape);
    ExpectHoldsItsPart(*staged.runtime);
    EXPECT_EQ(testing::WeightBytes(*staged.runtime), device.packs * 3 * 24 * 10 * 2);
    EXPECT_EQ(staged.runtime->FindLayer(LayerId{2}), nullptr);
    EXPECT_EQ(staged.runtime->FindLayer(LayerId{-1}), nullptr);
  }
}

TEST(EpochStagerTest, SharesWhatAResidentEpochHoldsAndLoadsOnlyWhatMoved) {
  FakeDevice device;
  const StagedEpoch first = MakeStaged(0, MakePlan(1, 2), &device);
  const int packs_before = device.packs;
  std::vector<StagingProgress> progress;
  const Prepare prepare = MakePrepare(MakePlan(2, 3));
  const Resident resident{first.runtime};

  SY_ASSERT_OK_AND_ASSIGN(
      const StagedEpoch second,
      EpochStager(StagerOf(0, &device))
          .Stage({.prepare = &prepare,
                  .resident = resident,
                  .stop = {},
                  .on_progress = [&](const StagingProgress& p) { progress.push_back(p); }}));

  // Of {e % 3 == 0} and {(e + 1) % 3 == 0}, the even epoch-1 rule held 0 in layer 0 and 5 in 1.
  ExpectHoldsItsPart(*second.runtime);
  EXPECT_EQ(device.packs - packs_before, 2);
  EXPECT_EQ(second.runtime->layers[0].slots[0].weights, first.runtime->layers[0].slots[0].weights);
  ASSERT_EQ(progress.size(), 2U);
  EXPECT_EQ(progress[1].experts_done, 4);
  EXPECT_EQ(progress[1].experts_shared, 2);
  EXPECT_EQ(progress[1].experts, 4);
}

TEST(EpochStagerTest, OpensNoCheckpointWhenNothingMoved) {
  FakeDevice device;
  const StagedEpoch first = MakeStaged(1, MakePlan(1, 2), &device);
  StagerOptions options = StagerOf(1, &device);
  options.open_weights = [](absl::string_view,
                            WeightCheck) -> absl::StatusOr<std::unique_ptr<WeightSource>> {
    return absl::InternalError("opened");
  };

  SY_ASSERT_OK_AND_ASSIGN(const StagedEpoch second,
                          Stage(options, MakePrepare(MakePlan(2, 2)), {first.runtime}));

  ExpectHoldsItsPart(*second.runtime);
  EXPECT_EQ(second.runtime->layers[0].slots[0].weights, first.runtime->layers[0].slots[0].weights);
}

TEST(EpochStagerTest, TakesANewFileUnderAnOldNameForNewWeights) {
  FakeDevice device;
  const StagedEpoch first = MakeStaged(0, MakePlan(1, 1), &device);
  SyntheticModel other = TestModel();
  other.seed = 600;
  Prepare prepare = MakePrepare(MakePlan(2, 1));
  prepare.checkpoint = ToString(other);
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(other));
  prepare.tensors = manifest.tensors;
  const int packs_before = device.packs;

  SY_ASSERT_OK_AND_ASSIGN(const StagedEpoch second,
                          Stage(StagerOf(0, &device), prepare, {first.runtime}));

  EXPECT_EQ(device.packs - packs_before, 12);
  EXPECT_NE(second.runtime->layers[0].slots[0].weights, first.runtime->layers[0].slots[0].weights);
}

TEST(EpochStagerTest, RefusesWeightsThatAreNotThoseOfTheManifest) {
  FakeDevice device;
  Prepare prepare = MakePrepare(MakePlan(1, 2));
  for (TensorHash& row : prepare.tensors) {
    if (row.layer == LayerId{1} && row.expert == ExpertId{3} &&
        row.projection == Projection::kDown) {
      row.sha256.bytes[5] ^= 1;
    }
  }

  const absl::Status status = Stage(StagerOf(0, &device), prepare).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("down_proj"));
}

TEST(EpochStagerTest, RefusesAnExpertWithoutAHash) {
  FakeDevice device;
  Prepare prepare = MakePrepare(MakePlan(1, 2));
  std::erase_if(prepare.tensors, [](const TensorHash& row) {
    return row.layer == LayerId{0} && row.expert == ExpertId{2} &&
           row.projection == Projection::kUp;
  });

  const absl::Status status = Stage(StagerOf(0, &device), prepare).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("up_proj"));
  EXPECT_EQ(device.packs, 0);
}

TEST(EpochStagerTest, RefusesMoreWeightsThanTheWorkerMayHold) {
  FakeDevice device;
  StagerOptions options = StagerOf(0, &device);
  options.weight_bytes_max = 6 * 3 * 24 * 10 * 2;
  const StagedEpoch first = MakeStaged(0, MakePlan(1, 2), &device);  // 6 experts
  const int packs_before = device.packs;

  const absl::Status status = Stage(options, MakePrepare(MakePlan(2, 1)), {first.runtime}).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_EQ(device.packs, packs_before);
  SY_EXPECT_OK(Stage(options, MakePrepare(MakePlan(2, 2)), {first.runtime}));
}

TEST(EpochStagerTest, PassesOnThatTheDeviceIsFull) {
  FakeDevice device;
  device.fail_packs_after = 2;

  EXPECT_THAT(Stage(StagerOf(0, &device), MakePrepare(MakePlan(1, 2))),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
}

TEST(EpochStagerTest, StopsBetweenExpertsWhenAsked) {
  FakeDevice device;
  std::stop_source stop;
  const Prepare prepare = MakePrepare(MakePlan(1, 1));

  const absl::Status status = EpochStager(StagerOf(0, &device))
                                  .Stage({.prepare = &prepare,
                                          .resident = {},
                                          .stop = stop.get_token(),
                                          .on_progress =
                                              [&](const StagingProgress& progress) {
                                                if (progress.experts_done == 3) {
                                                  stop.request_stop();
                                                }
                                              }})
                                  .status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kCancelled, Reason::kEpochChanged));
  EXPECT_EQ(device.packs, 3);
}

TEST(EpochStagerTest, LoadsSeveralExpertsAtOnce) {
  FakeDevice device;
  StagerOptions options = StagerOf(0, &device);
  options.load_threads = 4;
  const Prepare prepare = MakePrepare(MakePlan(1, 1));
  std::vector<std::int32_t> done;

  SY_ASSERT_OK_AND_ASSIGN(const StagedEpoch staged,
                          EpochStager(options).Stage({.prepare = &prepare,
                                                      .resident = {},
                                                      .stop = {},
                                                      .on_progress = [&](const StagingProgress& p) {
                                                        done.push_back(p.experts_done);
                                                      }}));

  ExpectHoldsItsPart(*staged.runtime);
  ASSERT_EQ(done.size(), static_cast<std::size_t>(device.packs));
  for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], i + 1);
}

TEST(EpochStagerTest, LeavesNothingBehindWhenOneOfSeveralFails) {
  FakeDevice device;
  device.fail_packs_after = 3;
  StagerOptions options = StagerOf(0, &device);
  options.load_threads = 4;

  EXPECT_THAT(Stage(options, MakePrepare(MakePlan(1, 1))),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_LE(device.packs, 3 + 4) << "loading goes on after a failure";
}

TEST(EpochStagerTest, RefusesPlansThatItCannotServe) {
  FakeDevice device;
  Plan earlier_life = MakePlan(1, 2);
  earlier_life.workers[0].incarnation.low ^= 1;
  EXPECT_THAT(Stage(StagerOf(0, &device), MakePrepare(earlier_life)),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kIncarnation));
  EXPECT_THAT(Stage(StagerOf(7, &device), MakePrepare(MakePlan(1, 2))),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kIncarnation));

  Plan fp8 = MakePlan(1, 2);
  fp8.configs[1].wire_dtype = DispatchDtype::kFp8;
  EXPECT_THAT(Stage(StagerOf(0, &device), MakePrepare(fp8)),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));

  Plan uncovered = MakePlan(1, 2);
  uncovered.layers[0].experts.pop_back();
  EXPECT_THAT(Stage(StagerOf(0, &device), MakePrepare(uncovered)),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));

  Plan wider = MakePlan(1, 2);
  wider.shape.hidden = 32;
  EXPECT_THAT(Stage(StagerOf(0, &device), MakePrepare(wider)),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
}

}  // namespace
}  // namespace switchyard
