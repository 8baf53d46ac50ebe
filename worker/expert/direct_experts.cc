#include "worker/expert/direct_experts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

bool Is(const EpochRuntime& runtime, absl::string_view deployment, Epoch epoch) {
  return runtime.epoch() == epoch && deployment == runtime.deployment();
}

}  // namespace

absl::Status DirectExperts::Run(const DirectChunk& chunk) {
  SY_ASSIGN_OR_RETURN(const auto runtime, BindFor(chunk));
  const std::lock_guard lock(run_mutex_);
  return Execute(chunk, *runtime);
}

// With run_mutex_ held.
absl::Status DirectExperts::Execute(const DirectChunk& chunk, const EpochRuntime& runtime) {
  const LayerRuntime* layer = runtime.FindLayer(chunk.layer);
  if (layer == nullptr) {
    return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownLayer,
                     absl::StrFormat("epoch %d of %s has no MoE layer %d", chunk.epoch.value,
                                     chunk.deployment, chunk.layer.value),
                     {{"worker", options_.worker_id}, {"layer", absl::StrCat(chunk.layer.value)}});
  }
  metadata_.resize((chunk.metadata.size() + 3) / 4);
  if (!metadata_.empty()) {
    std::memcpy(metadata_.data(), chunk.metadata.data(), chunk.metadata.size());
  }
  RequestView view;
  SY_RETURN_IF_ERROR(ParseRequestMetadata(metadata_,
                                          {.mode = chunk.mode,
                                           .rows = static_cast<std::uint32_t>(chunk.rows.size()),
                                           .hidden = runtime.shape().hidden,
                                           .top_k = runtime.shape().top_k,
                                           .local_slots = layer->local_slots()},
                                          &view));
  SY_ASSIGN_OR_RETURN(ChunkExecutor * executor, ExecutorFor(runtime.shape()));
  ExecutorChunk run{
      .request = &view, .row_of = chunk.rows, .out = chunk.out, .rounded = chunk.rounded};
  executor->Execute(*layer, std::span(&run, 1));
  const std::lock_guard lock(mutex_);
  if (const auto at = sessions_.find(chunk.session); at != sessions_.end()) {
    at->second.counts.Add(*layer, view, 0, 0);
    at->second.counts.AddNanRows(run.nan_rows);
  }
  return absl::OkStatus();
}

// The session's binding of the chunk's epoch, made if need be; older ones are let go.
absl::StatusOr<std::shared_ptr<const EpochRuntime>> DirectExperts::BindFor(
    const DirectChunk& chunk) {
  const std::lock_guard lock(mutex_);
  auto session = sessions_.find(chunk.session);
  if (session != sessions_.end()) {
    for (const auto& bound : session->second.bound) {
      if (Is(*bound, chunk.deployment, chunk.epoch) && bound->hash == chunk.hash) return bound;
    }
  }
  const auto at = std::find_if(committed_.begin(), committed_.end(), [&](const Committed& held) {
    return Is(*held.runtime, chunk.deployment, chunk.epoch) && held.runtime->hash == chunk.hash &&
           !held.retiring;
  });
  if (at == committed_.end()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                     absl::StrFormat("worker %s: epoch %d of %s is not committed here under that "
                                     "hash; take the current plan",
                                     options_.worker_id, chunk.epoch.value, chunk.deployment),
                     {{"worker", options_.worker_id}, {"epoch", absl::StrCat(chunk.epoch.value)}});
  }
  if (session == sessions_.end()) {
    session = sessions_.emplace(chunk.session, Session(*at->runtime)).first;
  }
  if (!session->second.counts.Fits(*at->runtime)) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrFormat("epoch %d of %s has other layers or sizes than the session "
                                     "began with; open a new session",
                                     chunk.epoch.value, chunk.deployment));
  }
  std::erase_if(session->second.bound,
                [&](const auto& bound) { return bound->epoch() < chunk.epoch; });
  session->second.bound.push_back(at->runtime);
  return at->runtime;
}

// With run_mutex_ held.
absl::StatusOr<ChunkExecutor*> DirectExperts::ExecutorFor(const MoeShape& shape) {
  for (const auto& executor : executors_) {
    if (executor->shape() == shape) return executor.get();
  }
  SY_ASSIGN_OR_RETURN(auto executor,
                      ChunkExecutor::Create(options_.device, shape, options_.executor));
  executors_.push_back(std::move(executor));
  return executors_.back().get();
}

void DirectExperts::Release(SessionId session, Epoch epoch) {
  const std::lock_guard lock(mutex_);
  const auto at = sessions_.find(session);
  if (at == sessions_.end()) return;
  std::erase_if(at->second.bound, [epoch](const auto& bound) { return bound->epoch() == epoch; });
}

void DirectExperts::Close(SessionId session) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(session);
}

std::vector<AttachmentCounters> DirectExperts::CountersOf(SessionId session) const {
  const std::lock_guard lock(mutex_);
  const auto at = sessions_.find(session);
  if (at == sessions_.end()) return {};
  AttachmentCounters counters = at->second.counts.Snapshot();
  counters.session = session;
  counters.worker_id = options_.worker_id;
  counters.path = "inproc";
  return {std::move(counters)};
}

void DirectExperts::Activate(std::shared_ptr<const EpochRuntime> runtime) {
  const std::lock_guard lock(mutex_);
  committed_.push_back({.runtime = std::move(runtime)});
}

void DirectExperts::Retire(absl::string_view deployment, Epoch epoch) {
  const std::lock_guard lock(mutex_);
  for (Committed& held : committed_) {
    if (Is(*held.runtime, deployment, epoch)) held.retiring = true;
  }
}

bool DirectExperts::IsBound(absl::string_view deployment, Epoch epoch) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return std::any_of(entry.second.bound.begin(), entry.second.bound.end(),
                       [&](const auto& bound) { return Is(*bound, deployment, epoch); });
  });
}

void DirectExperts::Drop(absl::string_view deployment, Epoch epoch) {
  const std::lock_guard lock(mutex_);
  std::erase_if(committed_,
                [&](const Committed& held) { return Is(*held.runtime, deployment, epoch); });
  for (auto& [id, session] : sessions_) {
    std::erase_if(session.bound, [&](const auto& bound) { return Is(*bound, deployment, epoch); });
  }
}

}  // namespace switchyard
