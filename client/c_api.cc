// The functions of switchyard.h.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "client/c_handles.h"
#include "client/c_structures.h"
#include "client/c_worker.h"
#include "client/client.h"
#include "client/status_json.h"
#include "client/switchyard.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/product_version.h"
#include "core/resolve/mode_resolver.h"

namespace {

using switchyard::BadField;
using switchyard::ClosedSession;
using switchyard::CopyOut;
using switchyard::MakeError;
using switchyard::ReadStructure;
using switchyard::Reason;

constexpr std::uint32_t kDefaultTimeoutMs = 10'000;
constexpr std::uint32_t kBusyPollMaxUs = 1'000'000;
// An engine reads the status between steps.
constexpr switchyard::Duration kStatusTimeout = std::chrono::milliseconds(100);

// Sizes of the structures of older ABIs, which end before the fields that the next one has added.
constexpr std::uint32_t kClientOptionsSize1 = offsetof(sy_client_options, ring_dir);
constexpr std::uint32_t kClientOptionsSize2 = offsetof(sy_client_options, data_ports);
constexpr std::uint32_t kClientOptionsSize3 = offsetof(sy_client_options, tls_dir);
constexpr std::uint32_t kClientOptionsSize4 = offsetof(sy_client_options, worker);
constexpr std::uint32_t kSessionOptionsSize1 = offsetof(sy_session_options, binding);
constexpr std::uint32_t kSessionOptionsSize2 = offsetof(sy_session_options, fp8_sums);
constexpr std::uint32_t kSessionOptionsSize3 = offsetof(sy_session_options, hosts);
static_assert(kClientOptionsSize1 == 48 && kClientOptionsSize2 == 64 && kClientOptionsSize3 == 72 &&
              kClientOptionsSize4 == 80 && kSessionOptionsSize1 == 48 &&
              kSessionOptionsSize2 == 72 && kSessionOptionsSize3 == 80);

std::string TextOf(const char* text) { return text == nullptr ? std::string() : std::string(text); }

absl::Status UsedStep() {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                   "the step is already complete; submit it again");
}

std::vector<std::string> HostsOf(const char* text) {
  if (text == nullptr) return {};
  return absl::StrSplit(text, ',');
}

absl::Status RequestOf(const sy_session_options& options, switchyard::OpenSessionRequest* request) {
  // Enumerators arrive as plain integers, which a caller may have left uninitialized.
  if (options.phase > SY_PHASE_MIXED) return BadField("phase");
  if (options.mode > SY_MODE_LOW_LATENCY) return BadField("mode");
  if (options.y_dtype > SY_DTYPE_BF16) return BadField("y_dtype");
  if (options.max_tokens < 0) return BadField("max_tokens");
  if (options.binding > SY_BIND_COLLECTIVE) return BadField("binding");
  constexpr auto kSourcesMax = static_cast<std::uint32_t>(switchyard::kGroupSourcesMax);
  if (options.source > kSourcesMax) return BadField("source");
  if (options.sources > kSourcesMax) return BadField("sources");
  request->deployment = TextOf(options.deployment);
  request->model = TextOf(options.model);
  request->phase = static_cast<switchyard::Phase>(options.phase);
  if (options.mode == SY_MODE_NORMAL) request->mode = switchyard::DispatchMode::kNormal;
  if (options.mode == SY_MODE_LOW_LATENCY) request->mode = switchyard::DispatchMode::kLowLatency;
  request->y_dtype = options.y_dtype == SY_DTYPE_BF16 ? switchyard::OutputDtype::kBf16
                                                      : switchyard::OutputDtype::kF32;
  if (options.fp8_sums != 0) request->combine_dtype = switchyard::DispatchDtype::kFp8;
  request->strict = options.strict != 0;
  request->max_tokens = options.max_tokens;
  request->step_deadline = std::chrono::milliseconds(options.step_deadline_ms);
  request->binding = static_cast<switchyard::BindingChoice>(options.binding);
  request->group = {.name = TextOf(options.group),
                    .source = static_cast<std::int32_t>(options.source),
                    .sources = static_cast<std::int32_t>(std::max(options.sources, 1U)),
                    .hosts = HostsOf(options.hosts),
                    .in_step = options.in_step != 0};
  return absl::OkStatus();
}

std::optional<switchyard::ModeChoice> ChoiceOf(std::uint32_t choice) {
  switch (choice) {
    case SY_CHOICE_NORMAL:
      return switchyard::ModeChoice::kNormal;
    case SY_CHOICE_LOW_LATENCY:
      return switchyard::ModeChoice::kLowLatency;
    case SY_CHOICE_AUTO:
      return switchyard::ModeChoice::kAuto;
    default:
      return std::nullopt;
  }
}

}  // namespace

extern "C" {

const char* sy_version(void) { return switchyard::kProductVersion; }

sy_mode sy_mode_of_step(uint32_t choice, uint32_t flags) {
  constexpr std::uint32_t kKnown = SY_STEP_EXTEND | SY_STEP_DRAFT_EXTEND | SY_STEP_GRAPH_CAPTURE;
  const std::optional<switchyard::ModeChoice> wanted = ChoiceOf(choice);
  // A later header may have more flags, whose meaning this library does not know.
  if (!wanted || (flags & ~kKnown) != 0) return SY_MODE_PLAN;
  const switchyard::DispatchMode mode =
      ModeOfStep(*wanted, {.extend = (flags & SY_STEP_EXTEND) != 0,
                           .draft_extend = (flags & SY_STEP_DRAFT_EXTEND) != 0,
                           .graph_capture = (flags & SY_STEP_GRAPH_CAPTURE) != 0});
  return mode == switchyard::DispatchMode::kNormal ? SY_MODE_NORMAL : SY_MODE_LOW_LATENCY;
}

sy_code sy_client_open(const sy_client_options* options, sy_client** out) {
  if (out == nullptr) return SY_INVALID_ARGUMENT;
  *out = nullptr;
  sy_client_options given;
  if (!ReadStructure(
          options,
          {kClientOptionsSize1, kClientOptionsSize2, kClientOptionsSize3, kClientOptionsSize4},
          &given)) {
    return SY_INVALID_ARGUMENT;
  }
  auto made = std::make_unique<sy_client>();
  // From here on the caller owns the client, whatever follows.
  *out = made.release();
  if (given.transport > SY_TRANSPORT_TCP) return (*out)->Keep(BadField("transport"));
  if (given.busy_poll_us > kBusyPollMaxUs) return (*out)->Keep(BadField("busy_poll_us"));
  switchyard::ClientOptions& wanted = (*out)->options;
  wanted.coordinator = TextOf(given.coordinator);
  wanted.gateway = TextOf(given.gateway);
  wanted.transport = static_cast<switchyard::TransportChoice>(given.transport);
  wanted.ring_dir = TextOf(given.ring_dir);
  wanted.device = TextOf(given.device);
  wanted.data_ports = TextOf(given.data_ports);
  wanted.tls_dir = TextOf(given.tls_dir);
  if (given.worker != nullptr) wanted.worker = given.worker->rank_host;
  if (given.net_devices != nullptr) wanted.net_devices = given.net_devices;
  wanted.busy_poll = std::chrono::microseconds(given.busy_poll_us);
  wanted.timeout =
      std::chrono::milliseconds(given.timeout_ms == 0 ? kDefaultTimeoutMs : given.timeout_ms);
  auto client = switchyard::Client::Connect(wanted);
  if (!client.ok()) return (*out)->Keep(client.status());
  (*out)->client = *std::move(client);
  return SY_OK;
}

void sy_client_close(sy_client* client) { delete client; }

sy_code sy_session_open(sy_client* client, const sy_session_options* options, sy_session** out) {
  if (client == nullptr || out == nullptr) return SY_INVALID_ARGUMENT;
  *out = nullptr;
  sy_session_options given;
  if (!ReadStructure(options, {kSessionOptionsSize1, kSessionOptionsSize2, kSessionOptionsSize3},
                     &given)) {
    return client->Keep(BadField("options.size"));
  }
  if (client->client == nullptr) return client->Keep(BadField("client"));
  switchyard::OpenSessionRequest request;
  if (const absl::Status valid = RequestOf(given, &request); !valid.ok()) {
    return client->Keep(valid);
  }
  auto session = client->client->Open(request);
  if (!session.ok()) return client->Keep(session.status());
  const switchyard::MutexLock lock(client->mutex);
  *out = client->sessions.Take();
  **out = {client, *std::move(session)};
  return SY_OK;
}

sy_code sy_session_close(sy_session* session) {
  if (session == nullptr) return SY_INVALID_ARGUMENT;
  const auto open = session->client->End(session);
  return session->client->Keep(open == nullptr ? ClosedSession() : open->Close());
}

sy_code sy_submit(sy_session* session, const sy_step_request* request, sy_step** out) {
  if (session == nullptr || out == nullptr) return SY_INVALID_ARGUMENT;
  *out = nullptr;
  sy_client* const client = session->client;
  const auto wanted = switchyard::ReadStepRequest(request);
  if (!wanted.has_value()) return client->Keep(BadField("request.size"));
  auto open = client->SessionOf(session);
  if (open == nullptr) return client->Keep(ClosedSession());
  const auto ticket = open->Submit(*wanted);
  if (!ticket.ok()) return client->Keep(ticket.status());
  *out = client->KeepStep(std::move(open), *ticket);
  return SY_OK;
}

sy_code sy_poll(sy_step* step, int* done) {
  if (step == nullptr || done == nullptr) return SY_INVALID_ARGUMENT;
  *done = 0;
  const auto session = step->client->SessionOf(step);
  if (session == nullptr) return step->client->Keep(UsedStep());
  const auto is_done = session->IsDone(step->ticket);
  if (is_done.ok() && *is_done) *done = 1;
  return step->client->Keep(is_done.status());
}

sy_code sy_wait(sy_step* step) {
  if (step == nullptr) return SY_INVALID_ARGUMENT;
  sy_client* const client = step->client;
  const switchyard::StepTicket ticket = step->ticket;
  // The handle ends before the wait, so of two threads that wait for it only one does.
  const auto session = client->End(step);
  return client->Keep(session == nullptr ? UsedStep() : session->Wait(ticket));
}

sy_code sy_run(sy_session* session, const sy_step_request* request, uint32_t retry_ms) {
  if (session == nullptr) return SY_INVALID_ARGUMENT;
  sy_client* const client = session->client;
  const auto wanted = switchyard::ReadStepRequest(request);
  if (!wanted.has_value()) return client->Keep(BadField("request.size"));
  const auto open = client->SessionOf(session);
  if (open == nullptr) return client->Keep(ClosedSession());
  return client->Keep(open->Run(*wanted, std::chrono::milliseconds(retry_ms)));
}

size_t sy_session_status(sy_session* session, char* buffer, size_t size) {
  if (session == nullptr) return 0;
  const auto open = session->client->SessionOf(session);
  if (open == nullptr) {
    session->client->Keep(ClosedSession());
    return 0;
  }
  const auto report = open->Report(kStatusTimeout);
  if (!report.ok()) {
    session->client->Keep(report.status());
    return 0;
  }
  return CopyOut(switchyard::ReportJson(*report), buffer, size);
}

size_t sy_last_error(const sy_client* client, char* buffer, size_t size) {
  if (client == nullptr) return 0;
  const switchyard::MutexLock lock(client->mutex);
  return CopyOut(switchyard::ErrorJson(client->last_error), buffer, size);
}

}  // extern "C"
