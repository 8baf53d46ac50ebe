#include "bench/served_model.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "bench/measure.h"
#include "model/synthetic_model.h"

namespace switchyard::bench {
namespace {

constexpr Duration kReady = std::chrono::seconds(120);  // hashing and packing of big models

}  // namespace

void ServedSession::Run(const StepRequest& request) const {
  OrExit(session->Wait(OrExit(session->Submit(request))));
}

StepTimes ServedSession::Times() const {
  return OrExit(session->Report(std::chrono::seconds(5))).status.times;
}

double UsAStep(const StepTimes& before, const StepTimes& after, std::uint64_t StepTimes::*part) {
  const auto steps = static_cast<double>(after.steps - before.steps);
  return static_cast<double>(after.*part - before.*part) / 1e3 / steps;
}

ServedModel::ServedModel(const std::string& bin_dir, const std::string& checkpoint,
                         std::int32_t workers, const std::string& device, int busy_poll_us)
    : busy_poll_(std::chrono::microseconds(busy_poll_us)) {
  LocalDeploymentOptions options;
  options.bin_dir = bin_dir;
  options.checkpoint = absl::StartsWith(checkpoint, kSyntheticPrefix)
                           ? checkpoint
                           : std::filesystem::absolute(checkpoint).string();
  options.workers = workers;
  options.start_timeout = kReady;
  options.worker_flags = {"--net-devices", "lo", "--busy-poll", absl::StrCat(busy_poll_us, "us")};
  options.devices = device;
  deployment_ = OrExit(LocalDeployment::Start(std::move(options)));
}

ServedModel::~ServedModel() { deployment_->KillAll(); }

ServedSession ServedModel::Open(const SessionRequest& wanted) const {
  ClientOptions options;
  options.net_devices = "lo";
  options.busy_poll = busy_poll_;
  if (wanted.transport == "gateway") {
    options.gateway = deployment_->worker_address(0);
  } else {
    options.coordinator = deployment_->coordinator();
    TransportChoiceFromName(wanted.transport, &options.transport);
  }
  std::unique_ptr<Client> client = OrExit(Client::Connect(options));
  ServedSession served = OpenOn(*client, wanted);
  served.client = std::move(client);
  return served;
}

ServedSession ServedModel::OpenOn(Client& client, const SessionRequest& wanted) {
  OpenSessionRequest request;
  request.deployment = "local";
  request.phase = wanted.phase;
  request.mode = wanted.mode;
  request.max_tokens = wanted.max_tokens;
  request.y_dtype = wanted.y_dtype;
  request.step_deadline = wanted.step_deadline;
  ServedSession served;
  served.session = OrExit(client.OpenWhenReady(request, kReady));
  return served;
}

}  // namespace switchyard::bench
