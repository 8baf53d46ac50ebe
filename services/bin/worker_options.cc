#include "services/bin/worker_options.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <net/if.h>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/name.h"
#include "core/base/parallel_each.h"
#include "core/base/port_range.h"
#include "core/base/suggest.h"
#include "core/cli/default_address.h"
#include "services/worker/worker_server.h"
#include "worker/agent/agent_options.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

std::string CheckAddress(const std::string& text) {
  const auto address = ParseListen(text);
  if (!address.ok()) return std::string(address.status().message());
  return address->port == 0 ? absl::StrCat("\"", text, "\" has no port") : "";
}

std::string CheckId(const std::string& text) {
  if (IsName(text)) return "";
  return absl::StrCat("\"", text, "\" is no name: 1 to ", kNameMax,
                      " letters, digits and '.', '_', '-'");
}

std::string CheckPorts(const std::string& text) {
  if (ParsePortRange(text)) return "";
  return absl::StrCat("\"", text, "\" is not FIRST-LAST, two ports from 1024 on");
}

void AddPool(WorkerSettings* settings, OptionTable* table) {
  table->sections.push_back({"pool", "which worker this is, and whose"});
  table->options.push_back(
      TextOption({.key = "pool.coordinator", .help = "The coordinator's host:port"},
                 &settings->coordinator, &CheckAddress));
  table->options.push_back(TextOption(
      {.key = "pool.id", .help = "Name of this worker, which stays the same when it restarts"},
      &settings->id, &CheckId));
  table->options.back().required = true;
  table->options.push_back(TextOption(
      {.key = "pool.name",
       .flag = "--pool",
       .help = "Pool that this worker belongs to; a deployment that names pools uses their workers "
               "only",
       .unset = "none"},
      &settings->pool, &CheckId));
  table->options.push_back(DurationOption(
      {.key = "pool.leave_timeout",
       .help = "After SIGTERM, how long to wait until this worker's experts serve elsewhere; keep "
               "it below the time after which the platform kills the process"},
      &settings->leave_timeout, {Duration{}, std::chrono::hours(24)}));
  table->options.push_back(DurationOption(
      {.key = "pool.leave_alone_timeout",
       .help = "The same for a coordinator that cannot be reached, while sessions use this worker; "
               "together at most the sum"},
      &settings->leave_alone_timeout, {Duration{}, std::chrono::hours(24)}));
}

void AddNetwork(WorkerSettings* settings, OptionTable* table) {
  table->sections.push_back({"network", "addresses, ports and devices"});
  auto& all = table->options;
  all.push_back(ListenOption(&settings->network.listen));
  all.push_back(SystemPortOption(&settings->network.system_port));
  all.push_back(TextOption({.key = "network.advertise",
                            .help = "host:port at which peers reach this worker",
                            .unset = "the address of --listen"},
                           &settings->advertise));
  all.push_back(
      TextOption({.key = "network.net_devices",
                  .help = "Network devices for rows over TCP, separated by commas, or all",
                  .unset = "the device of --listen; all if that is a wildcard"},
                 &settings->net_devices, &WhyNoNetDevices));
  all.push_back(TextOption(
      {.key = "network.data_ports",
       .help = "TCP ports to listen on for rows, FIRST-LAST, for firewalls; a worker takes four to "
               "ten for each of its network devices, and opens others for moments",
       .unset = "any free ones"},
      &settings->data_ports, &CheckPorts));
  all.push_back(TextOption(
      {.key = "network.ring_dir",
       .help = "Directory for the sockets over which processes of one host share memory, if they "
               "are in different network namespaces: the same shared one for all of them",
       .unset = "none"},
      &settings->ring_dir));
  all.back().in_file = &PathInFolder;
}

void AddDevice(WorkerSettings* settings, OptionTable* table) {
  table->sections.push_back({"device", "what computes, and in which formats"});
  auto& all = table->options;
  all.push_back(TextOption({.key = "device.device",
                            .help = "KIND or KIND:KEY=VALUE,...; keys of cpu: kernel_family, "
                                    "compute_threads; of cuda: index, portable, shared_mib_max"},
                           &settings->device));
  all.push_back(WordListOption({.key = "device.wire_dtypes",
                                .help = "Dtypes of rows to offer, bf16 among them",
                                .unset = "all that the device has proven"},
                               &settings->wire_dtypes, {"bf16", "fp8", "int8", "nvfp4"}));
  all.push_back(DurationOption(
      {.key = "device.busy_poll",
       .help = "After each frame, look for the next for so long instead of sleeping: for steps of "
               "few tokens, where a CPU is free for it"},
      &settings->busy_poll, {Duration{}, std::chrono::seconds(1)}));
}

void AddMemory(WorkerSettings* settings, OptionTable* table) {
  table->sections.push_back({"memory", "how much of it, and how it is filled"});
  auto& all = table->options;
  all.push_back(BytesOption(
      {.key = "memory.weight_bytes_max", .help = "Memory for expert weights; 0: no limit"},
      &settings->weight_bytes_max, {0, std::numeric_limits<std::int64_t>::max()}));
  all.push_back(
      BytesOption({.key = "memory.gateway_memory_bytes_max",
                   .help = "Memory for the steps of all callers of this worker as a gateway"},
                  &settings->gateway_memory_bytes_max,
                  {2 * static_cast<std::int64_t>(kStepMessageBytesMax), std::int64_t{1} << 50}));
  all.push_back(IntegerOption(
      {.key = "memory.gateway_sessions_max",
       .help = "Sessions of callers of this worker as a gateway at a time, each with a thread; one "
               "tenant may have half of them"},
      &settings->gateway_sessions_max, {1, 1024}));
  all.push_back(IntegerOption(
      {.key = "memory.load_threads",
       .help = "Experts to load at once; each takes about three times its bytes meanwhile",
       .unset = "half of the CPUs, from 1 to 16"},
      &settings->load_threads, {1, 64}));
}

}  // namespace

WorkerSettings::WorkerSettings()
    : coordinator(kDefaultCoordinator),
      leave_timeout(AgentOptions().leave_timeout),
      leave_alone_timeout(AgentOptions().leave_alone_timeout),
      device(kDefaultDevice),
      gateway_memory_bytes_max(WorkerServerOptions().gateway_memory_bytes_max),
      gateway_sessions_max(WorkerServerOptions().gateway_sessions_max),
      load_threads(HalfOfCpus()) {
  network.listen = "127.0.0.1:0";
}

OptionTable WorkerOptionTable(WorkerSettings* settings) {
  OptionTable table;
  table.program = "switchyard-worker";
  table.about = "Hosts experts of Mixture-of-Experts models.";
  table.footer = absl::StrCat("Devices of this build: ", DeviceKinds(), ".\n", kProgramFooter);
  AddPool(settings, &table);
  AddNetwork(settings, &table);
  AddDevice(settings, &table);
  AddMemory(settings, &table);
  AddSecurityOptions(&settings->tls_dir, &settings->tenants, &table);
  AddLogOptions(&settings->log, &table);
  return table;
}

std::string WhyNoNetDevices(const std::string& names) {
  if (names == "all") return "";
  std::vector<std::string> there;
  if (struct if_nameindex* const devices = ::if_nameindex(); devices != nullptr) {
    for (const struct if_nameindex* each = devices; each->if_index != 0; ++each) {
      there.emplace_back(each->if_name);
    }
    ::if_freenameindex(devices);
  }
  std::sort(there.begin(), there.end());
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    if (std::find(there.begin(), there.end(), name) != there.end()) continue;
    const std::string near = NearestWord(name, there);
    return absl::StrCat("this machine has no network device \"", name, "\"; it has ",
                        absl::StrJoin(there, ", "), near.empty() ? "" : "; did you mean ", near,
                        near.empty() ? "" : "?");
  }
  return "";
}

}  // namespace switchyard
