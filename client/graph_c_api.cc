// The functions of switchyard_graph.h.
#include <cstdint>
#include <memory>
#include <utility>

#include "client/c_handles.h"
#include "client/client.h"
#include "client/switchyard_graph.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"

namespace {

using switchyard::BadField;
using switchyard::MakeError;
using switchyard::MoeSession;
using switchyard::Reason;
using switchyard::StepGraphs;

absl::Status ClosedGraph() {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                   "the graph is closed; open another");
}

using Session = std::shared_ptr<MoeSession>;

// Runs `work` on the graphs of the handle's session.
template <typename Work>
sy_code WithGraphs(sy_graph* graph, Work work) {
  if (graph == nullptr) return SY_INVALID_ARGUMENT;
  const std::shared_ptr<MoeSession> session = graph->client->SessionOf(graph);
  if (session == nullptr) return graph->client->Keep(ClosedGraph());
  return graph->client->Keep(
      session->UseGraphs([&](StepGraphs& graphs) { return work(graphs, session); }));
}

}  // namespace

extern "C" {

sy_code sy_graph_open(sy_session* session, sy_graph** out) {
  if (session == nullptr || out == nullptr) return SY_INVALID_ARGUMENT;
  *out = nullptr;
  sy_client* const client = session->client;
  std::shared_ptr<MoeSession> open = client->SessionOf(session);
  if (open == nullptr) return client->Keep(switchyard::ClosedSession());
  StepGraphs::Id id = 0;
  const absl::Status opened = open->UseGraphs([&](StepGraphs& graphs) {
    SY_ASSIGN_OR_RETURN(id, graphs.Open(switchyard::SteadyClock().Now()));
    return absl::OkStatus();
  });
  if (!opened.ok()) return client->Keep(opened);
  const switchyard::MutexLock lock(client->mutex);
  *out = client->graphs.Take();
  **out = {client, std::move(open), id};
  return SY_OK;
}

sy_code sy_graph_add(sy_graph* graph, const sy_step_request* request) {
  if (graph == nullptr) return SY_INVALID_ARGUMENT;
  auto step = switchyard::ReadStepRequest(request);
  if (!step.has_value()) return graph->client->Keep(BadField("request.size"));
  step->deadline = {};
  return WithGraphs(graph, [&](StepGraphs& graphs, const Session& /*of*/) {
    return graphs.Add(graph->id, *step);
  });
}

sy_code sy_graph_begin_launch(sy_graph* graph, void* stream) {
  return WithGraphs(graph, [&](StepGraphs& graphs, const Session& /*of*/) {
    return graphs.BeginLaunch(graph->id, stream);
  });
}

sy_code sy_graph_end_launch(sy_graph* graph, void* stream, sy_step** out) {
  if (out == nullptr) return SY_INVALID_ARGUMENT;
  *out = nullptr;
  return WithGraphs(graph, [&](StepGraphs& graphs, const Session& session) {
    SY_ASSIGN_OR_RETURN(const switchyard::StepTicket ticket, graphs.EndLaunch(graph->id, stream));
    *out = graph->client->KeepStep(session, ticket);
    return absl::OkStatus();
  });
}

sy_code sy_graph_state(sy_graph* graph, uint32_t* condition) {
  if (condition == nullptr) return SY_INVALID_ARGUMENT;
  return WithGraphs(graph, [&](StepGraphs& graphs, const Session& /*of*/) {
    SY_ASSIGN_OR_RETURN(const StepGraphs::State state, graphs.StateOf(graph->id));
    *condition = static_cast<std::uint32_t>(state);
    return absl::OkStatus();
  });
}

sy_code sy_graph_close(sy_graph* graph) {
  if (graph == nullptr) return SY_INVALID_ARGUMENT;
  sy_client* const client = graph->client;
  const Session session = client->SessionOf(graph);
  if (session == nullptr) return client->Keep(ClosedGraph());
  absl::Status closed =
      session->UseGraphs([&](StepGraphs& graphs) { return graphs.Close(graph->id); });
  // A closed session has closed its graphs.
  if (switchyard::ReasonOf(closed) == Reason::kSessionClosed) closed = absl::OkStatus();
  // A graph that is being launched stays open, so that the launch can be ended.
  if (closed.ok()) client->End(graph);
  return client->Keep(closed);
}

}  // extern "C"
