// Deployments that no worker mends are refused as what they are, at once.
#include "coordinator/refusal.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::MakeSpec;

const auto kRefused = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig);
const auto kNotReady = FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady);

ModelFacts Facts(QuantScheme scheme) {
  ModelFacts facts = testing::MakeFacts();
  for (LayerStorage& layer : facts.storage) {
    layer.scheme = scheme;
    layer.quant_config.emplace();
  }
  return facts;
}

DeploymentSpec Asking(DtypeChoice dtype, std::int32_t min_workers = 1) {
  DeploymentSpec spec = MakeSpec(min_workers);
  spec.dispatcher_output_dtype = dtype;
  return spec;
}

DeploymentRecord Record(QuantScheme scheme, DtypeChoice dtype) {
  return {*CompleteSpec(Asking(dtype)), Facts(scheme)};
}

// A coordinator whose model has experts of `scheme`.
Cluster& Serve(Cluster& cluster, QuantScheme scheme) {
  cluster.models["/models/m"] = Facts(scheme);
  return cluster;
}

// A CPU worker that has proven everything.
void JoinAble(Cluster& cluster, const std::string& id) {
  FakeWorker& worker = cluster.Join(id);
  for (const QuantSchemeInfo& info : AllQuantSchemes()) {
    worker.capabilities.schemes.push_back(info.scheme);
  }
  worker.capabilities.wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kFp8,
                                     DispatchDtype::kInt8};
  cluster.BreakStream(id);
  cluster.Register(worker);
}

void ExpectNamesLayerSchemeAndDtype(const absl::Status& status) {
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::AllOf(HasSubstr("deployment demo"), HasSubstr("layer 1"), HasSubstr("awq_int4"),
                       HasSubstr("do not take fp8 rows"), HasSubstr("ask for bf16")));
  EXPECT_EQ(MetadataOf(status).at("layer"), "1");
  EXPECT_EQ(MetadataOf(status).at("scheme"), "awq_int4");
  EXPECT_EQ(MetadataOf(status).at("dtype"), "fp8");
}

TEST(RefusalTest, OneKindThatWouldDoIsEnough) {
  SY_EXPECT_OK(CheckServable(Record(QuantScheme::kAwqInt4, DtypeChoice::kBf16)));
  // GPUs take FP8 rows of such a layer, CPUs do not.
  SY_EXPECT_OK(CheckServable(Record(QuantScheme::kW8A8Int8, DtypeChoice::kFp8)));
}

TEST(RefusalTest, WhatNoKindDoesIsRefused) {
  const absl::Status refused = CheckServable(Record(QuantScheme::kAwqInt4, DtypeChoice::kFp8));
  EXPECT_THAT(refused, kRefused);
  EXPECT_TRUE(IsRefusal(refused));
  ExpectNamesLayerSchemeAndDtype(refused);

  DeploymentRecord wide = Record(QuantScheme::kNone, DtypeChoice::kBf16);
  wide.facts.shape.top_k = 33;  // more than any device has in low_latency
  EXPECT_THAT(CheckServable(wide), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
}

// Before a single worker is there, and although more of them are waited for.
TEST(RefusalTest, NobodyIsWaitedForWhenNoKindWouldDo) {
  Cluster cluster;
  Serve(cluster, QuantScheme::kAwqInt4);

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView tried,
                          cluster.Apply(Asking(DtypeChoice::kFp8, 3), /*dry_run=*/true));
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView applied,
                          cluster.Apply(Asking(DtypeChoice::kFp8, 3)));

  ExpectNamesLayerSchemeAndDtype(tried.problem);
  EXPECT_EQ(tried.activity, "checked; this configuration can never be served");
  EXPECT_THAT(applied.problem, kRefused);
  EXPECT_EQ(applied.activity, kRefusedActivity);
  const absl::Status opened = cluster.OpenDecode().status();
  EXPECT_THAT(opened, kRefused);
  ExpectNamesLayerSchemeAndDtype(opened);
}

TEST(RefusalTest, TheWorkersAtHandMayRefuseToo) {
  Cluster cluster;
  Serve(cluster, QuantScheme::kW8A8Int8);
  JoinAble(cluster, "w0");

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView tried,
                          cluster.Apply(Asking(DtypeChoice::kFp8), /*dry_run=*/true));
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView applied, cluster.Apply(Asking(DtypeChoice::kFp8)));

  EXPECT_THAT(tried.problem, kRefused);
  EXPECT_THAT(applied.problem, kRefused);
  EXPECT_EQ(applied.activity, kRefusedActivity);
  EXPECT_THAT(cluster.OpenDecode(), kRefused);
  SY_ASSERT_OK(cluster.Apply(Asking(DtypeChoice::kInt8)));
  EXPECT_EQ(cluster.Serving(), 1U);
  SY_EXPECT_OK(cluster.Deployment().problem);
  SY_EXPECT_OK(cluster.OpenDecode());
}

// The first worker has no such scheme; what the second, which has, makes of it is the answer.
TEST(RefusalTest, AnUnsuitedWorkerDoesNotHideIt) {
  Cluster cluster;
  Serve(cluster, QuantScheme::kW8A8Int8);
  cluster.Join("w0");
  JoinAble(cluster, "w1");

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView applied, cluster.Apply(Asking(DtypeChoice::kFp8)));

  EXPECT_THAT(applied.problem, kRefused);
}

TEST(RefusalTest, WorkersThatAreMissingOrDoNotSuitAreWaitedFor) {
  Cluster cluster;
  Serve(cluster, QuantScheme::kW8A8Int8);
  cluster.Join("w0");

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView applied, cluster.Apply(Asking(DtypeChoice::kInt8)));

  EXPECT_THAT(applied.problem, kNotReady);
  EXPECT_EQ(applied.activity, "waiting for workers that can hold the model");
  EXPECT_THAT(cluster.OpenDecode(), kNotReady);
  JoinAble(cluster, "w1");
  EXPECT_EQ(cluster.Serving(), 1U);
}

// Each worker that comes makes the coordinator plan anew, and find the same.
TEST(RefusalTest, IsOneEventOfEachApply) {
  Cluster cluster;
  const auto refusals = [&cluster] {
    int count = 0;
    for (const JournalEntry& entry : cluster.Journal()) {
      if (entry.reason == "Refused") count += entry.count;
    }
    return count;
  };
  Serve(cluster, QuantScheme::kW8A8Int8);
  JoinAble(cluster, "w0");
  SY_ASSERT_OK(cluster.Apply(Asking(DtypeChoice::kFp8)));
  EXPECT_EQ(refusals(), 1);

  JoinAble(cluster, "w1");
  JoinAble(cluster, "w2");
  cluster.Advance(std::chrono::minutes(1));

  EXPECT_EQ(refusals(), 1);
  SY_ASSERT_OK(cluster.Apply(Asking(DtypeChoice::kFp8, 2)));
  EXPECT_EQ(refusals(), 2) << "another apply";
}

// What serves goes on serving; the view says that what was applied since never will.
TEST(RefusalTest, APlanThatServesOutlivesARefusedChange) {
  Cluster cluster;
  Serve(cluster, QuantScheme::kAwqInt4);
  JoinAble(cluster, "w0");
  SY_ASSERT_OK(cluster.Apply(Asking(DtypeChoice::kBf16)));
  ASSERT_EQ(cluster.Serving(), 1U);

  SY_ASSERT_OK(cluster.Apply(Asking(DtypeChoice::kFp8)));

  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kServing);
  EXPECT_THAT(cluster.Deployment().problem, kRefused);
  SY_EXPECT_OK(cluster.OpenDecode());
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  EXPECT_THAT(cluster.Deployment().problem, kRefused);
}

}  // namespace
}  // namespace switchyard
