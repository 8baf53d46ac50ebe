#include "ctl/worker_client.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/errors.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/peer_error.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard::ctl {
namespace {

// Asked at the same time; a pool of any size is asked in turns.
constexpr std::size_t kAskedAtOnce = 16;
// A worker answers within milliseconds; one that is out of reach must not hold up the others.
constexpr Duration kAnswerMax = std::chrono::seconds(2);

WorkerSample Ask(const v1::Worker& worker, const v1::GetStatusRequest& request,
                 const PeerSecurity& security) {
  const auto stub = v1::ExpertService::NewStub(
      MakeGrpcChannel(worker.endpoint(), kControlMessageBytesMax, {}, security));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kAnswerMax));
  WorkerSample sample;
  sample.status = AsPeerError(StatusFromGrpc(stub->GetStatus(&context, request, &sample.answer)),
                              {"worker", worker.endpoint(), Reason::kWorkerLost});
  sample.at = std::chrono::steady_clock::now();
  return sample;
}

}  // namespace

std::vector<WorkerSample> AskWorkers(const Run& run, const std::vector<v1::Worker>& workers,
                                     const v1::GetStatusRequest& request) {
  const PeerSecurity security{run.coordinator.security(), Role::kWorker};
  std::vector<WorkerSample> samples(workers.size());
  for (std::size_t first = 0; first < workers.size(); first += kAskedAtOnce) {
    const std::size_t end = std::min(first + kAskedAtOnce, workers.size());
    std::vector<std::thread> threads;
    for (std::size_t i = first; i < end; ++i) {
      threads.emplace_back([&, i] { samples[i] = Ask(workers[i], request, security); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return samples;
}

absl::StatusOr<std::vector<v1::Worker>> WantedWorkers(const Run& run) {
  SY_ASSIGN_OR_RETURN(const auto list, run.coordinator.Workers());
  std::vector<v1::Worker> wanted;
  std::vector<std::string> known;
  for (const v1::Worker& worker : list.workers()) {
    known.push_back(worker.id());
    if (run.line.name.empty() || worker.id() == run.line.name) wanted.push_back(worker);
  }
  if (wanted.empty() && !run.line.name.empty()) return NoSuch("worker", run.line.name, known);
  return wanted;
}

}  // namespace switchyard::ctl
