// The other side of every comparison: the same layers on the same kernels in this process, with no
// session, frame or thread between the call and the experts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/placement_map.h"
#include "model/model_config.h"
#include "worker/device/device_backend.h"
#include "worker/expert/expert_batch.h"
#include "worker/expert/layer_runtime.h"
#include "worker/routing/dispatch_plan.h"
#include "worker/source/p2p/step.h"

namespace switchyard::bench {

class InProcessModel {
 public:
  // `checkpoint` as model/model_spec.h has it; loads and packs every expert. Ends the process when
  // it cannot. `device` as in switchyard-worker --device; empty: the CPU, which computes within the
  // call, on `compute_threads`.
  InProcessModel(const std::string& checkpoint, int compute_threads, std::int32_t tokens_max,
                 const std::string& device = "");

  // y (BF16) of one step in mode `normal`: plan, experts, sum.
  void Run(const StepRequest& request);
  [[nodiscard]] const MoeShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t layers() const { return runtime_->layers.size(); }
  // Of one layer.
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }

 private:
  MoeShape shape_;
  std::unique_ptr<DeviceBackend> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<ExpertBatch> batch_;
  std::shared_ptr<const BatchMemory> memory_;
  std::shared_ptr<EpochRuntime> runtime_;
  std::int64_t weight_bytes_ = 0;
  PlacementMap placement_;
  DispatchPlan plan_;
  std::vector<std::uint32_t> metadata_;
  std::vector<std::int32_t> slots_;
  std::vector<float> weights_;
};

}  // namespace switchyard::bench
