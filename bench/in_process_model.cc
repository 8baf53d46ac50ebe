#include "bench/in_process_model.h"

#include <span>
#include <utility>

#include "bench/measure.h"
#include "model/checkpoint.h"
#include "model/expert_weights.h"
#include "model/model_spec.h"
#include "model/synthetic_model.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/expert_view.h"
#include "worker/registry/device_registry.h"
#include "worker/routing/request_codec.h"
#include "worker/transport/frame.h"

namespace switchyard::bench {
namespace {

// Where weights come from, without the hashes that a deployment checks.
class Weights {
 public:
  explicit Weights(const ModelSpec& spec) : synthetic_(std::get_if<SyntheticModel>(&spec)) {
    if (synthetic_ == nullptr) {
      checkpoint_ = OrExit(Checkpoint::Open(std::get<CheckpointFolder>(spec).path));
    }
  }
  [[nodiscard]] ExpertWeights Load(LayerId layer, ExpertId expert) const {
    return OrExit(synthetic_ != nullptr ? GenerateExpert(*synthetic_, layer, expert)
                                        : LoadExpert(*checkpoint_, layer, expert));
  }

 private:
  const SyntheticModel* synthetic_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

}  // namespace

InProcessModel::InProcessModel(const std::string& checkpoint, int compute_threads,
                               std::int32_t tokens_max, const std::string& device) {
  const ModelSpec spec = OrExit(ParseModelSpec(checkpoint));
  const ModelConfig config = OrExit(ReadModelConfig(spec));
  const Weights weights(spec);
  shape_ = ShapeOf(config);
  if (device.empty()) {
    device_ = OrExit(CpuBackend::Create(
        {.compute_threads = compute_threads, .inline_limits = {.every_run = true}}));
  } else {
    device_ = OrExit(MakeDevice(device));
  }
  stream_ = OrExit(device_->MakeStream({.work_class = WorkClass::kPrefill}));
  batch_ = std::make_unique<ExpertBatch>(stream_.get(), device_->host_access());
  memory_ = std::make_shared<const BatchMemory>(OrExit(BatchMemory::Create(
      device_.get(), shape_, {.pairs_max = static_cast<std::int64_t>(tokens_max) * shape_.top_k})));
  runtime_ = std::make_shared<EpochRuntime>();
  runtime_->plan.shape = shape_;
  LayerPlacement all;
  for (std::int32_t e = 0; e < shape_.experts; ++e) {
    all.experts.push_back({ExpertId{e}, WorkerOrdinal{0}, SlotId{e}});
  }
  placement_ = PlacementMap(all, shape_.experts, 1);
  for (const LayerId layer : MoeLayersOf(config)) {
    LayerRuntime& runtime = runtime_->layers.emplace_back();
    runtime.layer = layer;
    std::vector<TableEntry> entries;
    weight_bytes_ = 0;
    for (std::int32_t e = 0; e < shape_.experts; ++e) {
      const ExpertWeights raw = weights.Load(layer, ExpertId{e});
      std::shared_ptr<const PackedExpert> packed = OrExit(device_->Pack(shape_, ViewOf(raw)));
      weight_bytes_ += packed->bytes();
      entries.push_back({.expert = ExpertId{e}, .weights = std::move(packed)});
    }
    runtime.table = OrExit(device_->MakeTable(std::move(entries)));
  }
}

void InProcessModel::Run(const StepRequest& request) {
  const auto rows = static_cast<std::uint32_t>(request.tokens);
  const std::size_t pairs = static_cast<std::size_t>(rows) * static_cast<std::size_t>(shape_.top_k);
  OrExit(BuildDispatchPlan(
      {.ids = {request.ids, pairs}, .tokens = request.tokens, .top_k = shape_.top_k}, placement_,
      DispatchMode::kNormal, &plan_));
  const RequestGeometry geometry{.mode = DispatchMode::kNormal,
                                 .rows = rows,
                                 .hidden = shape_.hidden,
                                 .top_k = shape_.top_k,
                                 .local_slots = shape_.experts};
  metadata_.resize(LayoutOfRequest(geometry).metadata_bytes / sizeof(std::uint32_t));
  WriteRequestMetadata(DispatchMode::kNormal,
                       {.rows = plan_.workers[0].rows,
                        .slot_counts = {},
                        .worker = WorkerOrdinal{0},
                        .top_k = shape_.top_k,
                        .slot_of_pair = plan_.slot_of_pair,
                        .worker_of_pair = plan_.worker_of_pair,
                        .weights = {request.weights, pairs}},
                       std::as_writable_bytes(std::span(metadata_)));
  RequestView view;
  OrExit(ParseRequestMetadata(metadata_, geometry, &view));
  slots_.resize(pairs);
  weights_.resize(pairs);
  ExpandRouting(view, slots_, weights_);
  batch_->Begin({.layer = &runtime_->layers[static_cast<std::size_t>(request.layer.value)]},
                runtime_, memory_);
  batch_->Add({.rows = reinterpret_cast<const std::byte*>(request.x),
               .count = rows,
               .slots = slots_.data(),
               .weights = weights_.data(),
               .out = static_cast<Bf16*>(request.y)});
  OrExit(batch_->Start());
  while (!batch_->Wait(std::chrono::seconds(1))) {
  }
  OrExit(batch_->Finish());
}

}  // namespace switchyard::bench
