// The handles of the C interface, what their functions read, and errors that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "client/c_structures.h"
#include "client/client.h"
#include "client/handle_pool.h"
#include "client/switchyard.h"
#include "client/switchyard_graph.h"
#include "core/base/error.h"
#include "core/base/mutex.h"

struct sy_session {
  sy_client* client = nullptr;
  // Steps hold it too: a step may outlive the close of its session. Guarded by the client's mutex;
  // nullptr: closed.
  std::shared_ptr<switchyard::MoeSession> session;
};

struct sy_step {
  sy_client* client = nullptr;
  // Guarded by the client's mutex; nullptr: the step is complete.
  std::shared_ptr<switchyard::MoeSession> session;
  switchyard::StepTicket ticket;
};

struct sy_graph {
  sy_client* client = nullptr;
  // Guarded by the client's mutex; nullptr: the graph is closed.
  std::shared_ptr<switchyard::MoeSession> session;
  switchyard::StepGraphs::Id id = 0;
};

struct sy_client {
  switchyard::ClientOptions options;
  std::unique_ptr<switchyard::Client> client;  // goes after the sessions, which use it
  mutable switchyard::Mutex mutex;
  absl::Status last_error SY_GUARDED_BY(mutex);
  switchyard::HandlePool<sy_session> sessions SY_GUARDED_BY(mutex);
  switchyard::HandlePool<sy_step> steps SY_GUARDED_BY(mutex);
  switchyard::HandlePool<sy_graph> graphs SY_GUARDED_BY(mutex);

  sy_code Keep(const absl::Status& status) {
    if (!status.ok()) {
      const switchyard::MutexLock lock(mutex);
      // Kept also after later successes, until the next failure, as the header promises.
      last_error = status;
    }
    return static_cast<sy_code>(status.code());
  }
  // The session of a handle; nullptr when the handle has ended.
  template <typename Handle>
  std::shared_ptr<switchyard::MoeSession> SessionOf(const Handle* handle) const {
    const switchyard::MutexLock lock(mutex);
    return handle->session;
  }
  // The same, and ends the handle: the next call with it gets nullptr.
  template <typename Handle>
  std::shared_ptr<switchyard::MoeSession> End(Handle* handle) {
    const switchyard::MutexLock lock(mutex);
    std::shared_ptr<switchyard::MoeSession> session = std::move(handle->session);
    handle->session = nullptr;
    // Once only: a second call with the same handle finds no session.
    if (session != nullptr) PoolOf(handle).End(handle);
    return session;
  }
  switchyard::HandlePool<sy_session>& PoolOf(const sy_session* /*handle*/) SY_REQUIRES(mutex) {
    return sessions;
  }
  switchyard::HandlePool<sy_step>& PoolOf(const sy_step* /*handle*/) SY_REQUIRES(mutex) {
    return steps;
  }
  switchyard::HandlePool<sy_graph>& PoolOf(const sy_graph* /*handle*/) SY_REQUIRES(mutex) {
    return graphs;
  }
  sy_step* KeepStep(std::shared_ptr<switchyard::MoeSession> of, switchyard::StepTicket ticket) {
    const switchyard::MutexLock lock(mutex);
    sy_step* const step = steps.Take();
    *step = {this, std::move(of), ticket};
    return step;
  }
};

namespace switchyard {

inline absl::Status BadField(absl::string_view field) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat(field, " is not valid; see switchyard.h"),
                   {{"field", std::string(field)}});
}

inline absl::Status ClosedSession() {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                   "the session is closed; open another");
}

// nullopt: it is no such structure of this ABI or an older one.
inline std::optional<StepRequest> ReadStepRequest(const sy_step_request* request) {
  constexpr std::uint32_t kSize1 = offsetof(sy_step_request, stream);
  constexpr std::uint32_t kSize2 = offsetof(sy_step_request, y_on_stream);
  static_assert(kSize1 == 88 && kSize2 == 96);
  sy_step_request given;
  if (!ReadStructure(request, {kSize1, kSize2}, &given)) return std::nullopt;
  StepRequest step;
  step.layer = LayerId{given.layer};
  step.tokens = given.tokens;
  step.x = given.x;
  step.x_stride = given.x_stride;
  step.ids = given.ids;
  step.ids_stride = given.ids_stride;
  step.weights = given.weights;
  step.weights_stride = given.weights_stride;
  step.top_k = given.top_k;
  step.y = given.y;
  step.y_stride = given.y_stride;
  step.deadline = std::chrono::milliseconds(given.deadline_ms);
  step.stream = given.stream;
  step.y_on_stream = given.y_on_stream != 0;
  return step;
}

}  // namespace switchyard
