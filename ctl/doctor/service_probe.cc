#include "ctl/doctor/service_probe.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <set>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include <netdb.h>

#include "core/base/product_version.h"
#include "core/protocol_version.h"
#include "grpc/health/v1/health.pb.h"
#include "services/convert/enum_words.h"
#include "services/grpc/grpc_server.h"

namespace switchyard::ctl {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using HealthStub = grpc::TemplatedGenericStub<HealthCheckRequest, HealthCheckResponse>;

constexpr Duration kNameMax = std::chrono::seconds(2);
constexpr Duration kHealthMax = std::chrono::seconds(2);
constexpr std::size_t kAtOnce = 16;
constexpr std::size_t kHealthBytesMax = std::size_t{64} << 10;
// docs/OPERATIONS.md#probes
constexpr char kReadyName[] = "switchyard.coordinator";
constexpr char kHealthMethod[] = "/grpc.health.v1.Health/Check";
constexpr absl::string_view kVersionMetric = "moe_build_info";

NameFacts LookUp(const std::string& host) {
  NameFacts facts;
  facts.host = host;
  addrinfo wish{};
  wish.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &wish, &list);
  if (failed != 0) {
    facts.wrong = failed == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(failed);
    return facts;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (facts.addresses++ == 0 && ::getnameinfo(each->ai_addr, each->ai_addrlen, text.data(),
                                                text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
      facts.first = text.data();
    }
  }
  return facts;
}

// By a queue of its own and not by a callback, whose threads would outlive this call.
ServingState AskHealth(const ServiceCalls& calls, Duration most) {
  HealthStub stub(
      MakeGrpcChannel(calls.target, kHealthBytesMax, {}, {calls.security, Role::kCoordinator}));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(most));
  HealthCheckRequest request;
  request.set_service(kReadyName);
  HealthCheckResponse response;
  grpc::Status status;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, kHealthMethod, request, &queue);
  call->StartCall();
  call->Finish(&response, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  // Ends by the deadline of the call, whatever the peer does.
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (!status.ok()) return ServingState::kUnknown;
  return response.status() == HealthCheckResponse::SERVING ? ServingState::kServing
                                                           : ServingState::kNotServing;
}

CoordinatorFacts AskCoordinator(const ServiceCalls& calls, const Budget& budget) {
  CoordinatorFacts facts;
  const absl::StatusOr<v1::GetVersionResponse> version = calls.version();
  facts.status = version.status();
  if (!version.ok()) {
    facts.next = calls.next_step(version.status());
    return facts;
  }
  facts.version = version->version();
  facts.protocol = version->protocol_version();
  const Duration left = budget.Left(kHealthMax);
  if (left > Duration::zero()) facts.ready = AskHealth(calls, left);
  return facts;
}

std::string VersionOf(const v1::GetStatusResponse& answer) {
  for (const v1::Metric& metric : answer.metrics()) {
    if (metric.name() != kVersionMetric || metric.samples().empty()) continue;
    for (const v1::MetricLabel& label : metric.samples(0).labels()) {
      if (label.name() == "version") return label.value();
    }
  }
  return "";
}

// Asks the first workers, some at once.
void AskPorts(const ServiceCalls& calls, const std::vector<v1::Worker>& workers,
              const Budget& budget, ServiceFacts* facts) {
  v1::GetStatusRequest request;
  request.set_metrics(true);
  const std::size_t most = std::min(workers.size(), kWorkersAskedMax);
  for (std::size_t first = 0; first < most && !budget.over(); first += kAtOnce) {
    const std::size_t end = std::min(first + kAtOnce, most);
    const std::vector<v1::Worker> some(workers.begin() + static_cast<std::ptrdiff_t>(first),
                                       workers.begin() + static_cast<std::ptrdiff_t>(end));
    const std::vector<PortAnswer> samples = calls.ask(some, request);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      WorkerFacts& worker = facts->workers[first + i];
      worker.asked = true;
      worker.answer = samples[i].status;
      worker.version = VersionOf(samples[i].answer);
    }
  }
}

void LookUpWorkers(const Budget& budget, ServiceFacts* facts) {
  std::set<std::string> hosts;
  for (const WorkerFacts& each : facts->workers) hosts.insert(HostOf(each.endpoint));
  const std::vector<std::string> all(hosts.begin(), hosts.end());
  const std::size_t most = std::min(all.size(), kWorkersAskedMax);
  for (std::size_t first = 0; first < most && !budget.over(); first += kAtOnce) {
    const std::size_t end = std::min(first + kAtOnce, most);
    std::vector<NameFacts> some(end - first);
    std::vector<std::thread> threads;
    for (std::size_t i = first; i < end; ++i) {
      threads.emplace_back([&, i] { some[i - first] = ProbeName(all[i], budget.Left(kNameMax)); });
    }
    for (std::thread& thread : threads) thread.join();
    facts->worker_names.insert(facts->worker_names.end(), some.begin(), some.end());
  }
  facts->unresolved = all.size() - facts->worker_names.size();
}

void AskForWorkers(const ServiceCalls& calls, const Budget& budget, ServiceFacts* facts) {
  const absl::StatusOr<v1::ListWorkersResponse> list = calls.workers();
  facts->list = list.status();
  if (!list.ok()) return;
  const std::vector<v1::Worker> workers(list->workers().begin(), list->workers().end());
  for (const v1::Worker& each : workers) {
    WorkerFacts worker;
    worker.id = each.id();
    worker.endpoint = each.endpoint();
    worker.state = EnumWord(each.state());
    worker.problem = each.problem();
    worker.protocol = each.protocol_version();
    facts->workers.push_back(std::move(worker));
  }
  LookUpWorkers(budget, facts);
  AskPorts(calls, workers, budget, facts);
}

void AskForEvents(const ServiceCalls& calls, ServiceFacts* facts) {
  const absl::StatusOr<v1::ListEventsResponse> events = calls.events();
  facts->now_s = std::time(nullptr);
  if (!events.ok()) return;
  for (const v1::Event& each : events->events()) {
    facts->newest_event_s =
        std::max(facts->newest_event_s.value_or(0), std::int64_t{each.last().seconds()});
  }
}

}  // namespace

std::string HostOf(absl::string_view endpoint) {
  absl::string_view host = endpoint.substr(0, endpoint.rfind(':'));
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  return std::string(host);
}

NameFacts ProbeName(const std::string& host, Duration most) {
  NameFacts late;
  late.host = host;
  late.wrong = "no name server answered in time";
  if (most <= Duration::zero()) return late;
  auto facts = Within<NameFacts>(most, [host] { return LookUp(host); });
  return facts.has_value() ? *std::move(facts) : late;
}

ServiceFacts ProbeService(const ServiceCalls& calls, const Budget& budget) {
  ServiceFacts facts;
  facts.own_version = kProductVersion;
  facts.own_protocol = kProtocolVersion;
  facts.target = calls.target;
  facts.name = ProbeName(HostOf(facts.target), budget.Left(kNameMax));
  if (!facts.name.wrong.empty() || budget.over()) return facts;
  facts.coordinator = AskCoordinator(calls, budget);
  if (!facts.coordinator->status.ok() || budget.over()) return facts;
  AskForWorkers(calls, budget, &facts);
  if (!budget.over()) AskForEvents(calls, &facts);
  return facts;
}

}  // namespace switchyard::ctl
