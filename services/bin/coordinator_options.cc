#include "services/bin/coordinator_options.h"

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "coordinator/placement/registry.h"
#include "coordinator/store/registry.h"
#include "core/base/dial_address.h"
#include "core/base/parallel_each.h"
#include "core/base/units.h"
#include "core/cli/default_address.h"
#include "core/resolve/dtype_option.h"

namespace switchyard {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);
constexpr Duration kSecond = std::chrono::seconds(1);
constexpr Duration kDay = std::chrono::hours(24);

// Names of rows of a registry.
template <typename Rows, typename Name>
std::vector<std::string> NamesOf(const Rows& rows, Name name) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(name(row));
  return names;
}

std::string CheckStore(const std::string& address) {
  const std::string scheme = address.substr(0, address.find(':'));
  std::vector<std::string> known =
      NamesOf(StateStores(), [](const StateStoreEntry& row) { return row.scheme; });
  for (const std::string& each : known) {
    if (each == scheme) return "";
  }
  return absl::StrCat("\"", address, "\" names none of the stores ", absl::StrJoin(known, ", "),
                      "; examples: sqlite:/var/lib/switchyard/plans.sqlite, memory");
}

// The file of "sqlite:FILE".
std::string StoreInFolder(absl::string_view address, const std::string& folder) {
  constexpr absl::string_view kSqlite = "sqlite:";
  if (!absl::StartsWith(address, kSqlite) || address.size() == kSqlite.size()) {
    return std::string(address);
  }
  return absl::StrCat(kSqlite, PathInFolder(address.substr(kSqlite.size()), folder));
}

void AddStore(CoordinatorSettings* settings, OptionTable* table) {
  table->sections.push_back({"store", "what the coordinator keeps, and starts with"});
  table->options.push_back(TextOption(
      {.key = "store.location",
       .flag = "--store",
       .help = "Where deployments, plans and epochs are stored: sqlite:FILE, or memory, which a "
               "restart forgets"},
      &settings->store, &CheckStore));
  table->options.back().in_file = &StoreInFolder;
  table->options.push_back(
      FileListOption({.key = "store.deployments",
                      .flag = "--deployment",
                      .help = "Files of deployments to apply at start; the flag may be repeated",
                      .unset = "none"},
                     &settings->deployments));
  table->options.push_back(
      IntegerOption({.key = "store.read_threads",
                     .help = "Threads that hash the weights of a checkpoint when it is applied",
                     .unset = "half of the CPUs, from 1 to 16"},
                    &settings->read_threads, {1, 64}));
}

Option Time(OptionName name, Duration* value, Duration least = kMillisecond) {
  return DurationOption(std::move(name), value, {least, kDay});
}

void AddLeases(CoordinatorOptions* times, OptionTable* table) {
  table->sections.push_back({"leases", "when a worker counts as lost, stuck or back"});
  auto& all = table->options;
  all.push_back(Time({.key = "leases.lease_ttl",
                      .help = "A worker that sends nothing for so long is lost; workers report "
                              "twice a second"},
                     &times->lease_ttl, kSecond));
  all.push_back(
      Time({.key = "leases.stream_grace",
            .help = "A worker whose stream ended is lost after so long without a new one"},
           &times->stream_grace));
  all.push_back(Time({.key = "leases.register_timeout",
                      .help = "A stream that does not register a worker is closed after so long"},
                     &times->register_timeout));
  all.push_back(Time({.key = "leases.former_share_kept",
                      .help = "A worker that comes back within this time gets the experts that it "
                              "had"},
                     &times->former_share_kept));
  all.push_back(Time({.key = "leases.stuck_thread",
                      .help = "A worker whose data thread makes no turn for so long is stuck, and "
                              "plans do without it"},
                     &times->stuck_thread, kSecond));
  all.push_back(
      Time({.key = "leases.stuck_batch", .help = "The same for a batch that does not end"},
           &times->stuck_batch, kSecond));
  all.push_back(Time({.key = "leases.stuck_retire",
                      .help = "The same for an epoch that the worker still holds after it should "
                              "have freed it"},
                     &times->stuck_retire, kSecond));
  all.push_back(Time({.key = "leases.stuck_recovery",
                      .help = "Plans use such a worker again after its work has moved for so long"},
                     &times->stuck_recovery, kSecond));
  all.push_back(Time(
      {.key = "leases.dial_again", .help = "How long after a failed dial a worker is dialed again"},
      &times->dial_again));
  all.push_back(Time({.key = "leases.session_linger",
                      .help = "A session that nobody watches is forgotten after so long"},
                     &times->session_linger, kSecond));
}

void AddTimeouts(CoordinatorOptions* times, OptionTable* table) {
  table->sections.push_back({"timeouts", "how long changes of the plan wait"});
  auto& all = table->options;
  all.push_back(Time({.key = "timeouts.join_settle",
                      .help = "Workers that join within this time enter the plan in one epoch; "
                              "each join starts it again"},
                     &times->join_settle));
  all.push_back(
      Time({.key = "timeouts.join_settle_most", .help = "The longest wait for further joins"},
           &times->join_settle_most));
  all.push_back(Time({.key = "timeouts.mass_loss_hold",
                      .help = "When more than a third of the workers are lost, the plan waits so "
                              "long after the last loss"},
                     &times->mass_loss_hold));
  all.push_back(Time({.key = "timeouts.prepare_timeout",
                      .help = "A worker that has not loaded an epoch after so long has refused it"},
                     &times->prepare_timeout, kSecond));
  all.push_back(Time({.key = "timeouts.commit_timeout",
                      .help = "A worker that has not activated an epoch after so long has refused "
                              "it"},
                     &times->commit_timeout, kSecond));
  all.push_back(Time({.key = "timeouts.urgent_retire",
                      .help = "While a worker of the plan is lost, steps on older epochs have so "
                              "long to end"},
                     &times->urgent_retire));
  all.push_back(Time({.key = "timeouts.retire_patience",
                      .help = "After so long, an epoch that is not free becomes urgent"},
                     &times->retire_patience, kSecond));
  all.push_back(Time({.key = "timeouts.sources_return",
                      .help = "After a restart, epochs of before are kept so long for sources that "
                              "dial again"},
                     &times->sources_return));
  all.push_back(
      Time({.key = "timeouts.unclaimed_kept",
            .help = "Workers free the epochs of deployments that the coordinator does not "
                    "know after so long"},
           &times->unclaimed_kept, kSecond));
  all.push_back(Time({.key = "timeouts.retry_first",
                      .help = "Delay after a failed change; it doubles with each failure"},
                     &times->retry_first));
  all.push_back(
      Time({.key = "timeouts.retry_last", .help = "The longest such delay"}, &times->retry_last));
  all.push_back(Time({.key = "timeouts.quarantine_first",
                      .help = "How long a worker that failed two changes in a row is left out; it "
                              "doubles with each failure"},
                     &times->quarantine_first));
  all.push_back(Time({.key = "timeouts.quarantine_last", .help = "The longest such time"},
                     &times->quarantine_last));
}

void AddLimits(CoordinatorOptions* limits, OptionTable* table) {
  table->sections.push_back({"limits", "what clients can make the coordinator hold"});
  auto& all = table->options;
  all.push_back(
      IntegerOption({.key = "limits.max_streams", .help = "Most streams of workers at a time"},
                    &limits->max_streams, {1, 1'000'000}));
  all.push_back(IntegerOption({.key = "limits.max_deployments",
                               .help = "Most deployments at a time; refused ones do not count"},
                              &limits->max_deployments, {1, 10'000}));
  all.push_back(
      IntegerOption({.key = "limits.revisions_kept",
                     .help = "Revisions kept of each deployment, besides the one that serves"},
                    &limits->revisions_kept, {1, 100}));
  all.push_back(
      IntegerOption({.key = "limits.journal_entries",
                     .help = "Events kept for 'syctl get events'; a restart forgets them"},
                    &limits->journal_entries, {16, 65'536}));
  all.push_back(IntegerOption(
      {.key = "limits.max_sessions", .help = "Most sessions at a time, and as many watches"},
      &limits->max_sessions, {1, 1'000'000}));
}

void AddTracing(TraceSettings* tracing, OptionTable* table) {
  table->sections.push_back({"tracing", "traces of steps, for a collector of OpenTelemetry"});
  table->options.push_back(RatioOption(
      {.key = "tracing.ratio",
       .flag = "--trace-ratio",
       .help = "The part of all steps whose spans sources and workers send; 0: none, 0.01: one of "
               "a hundred"},
      &tracing->ratio));
  table->options.push_back(TextOption(
      {.key = "tracing.endpoint",
       .flag = "--trace-endpoint",
       .help = "Where a collector takes OTLP over gRPC, as host:port; every source and worker "
               "connects to it by itself"},
      &tracing->endpoint, [](const std::string& text) -> std::string {
        const std::string why = WhyNotDialable(text);
        return why.empty() ? "" : absl::StrCat("\"", text, "\" ", why);
      }));
}

void AddDefaults(CoordinatorSettings* settings, OptionTable* table) {
  table->sections.push_back({"defaults", "what deployments get that do not say otherwise"});
  auto& all = table->options;
  all.push_back(OptionalTextOption({.key = "defaults.dispatcher_output_dtype",
                                    .flag = kDtypeFlag,
                                    .help = "Dtype of rows: auto, bf16, fp8, int8 or nvfp4",
                                    .unset = "auto"},
                                   &settings->dispatch.dispatcher_output_dtype));
  all.push_back(OptionalTextOption({.key = "defaults.deepep_dispatcher_output_dtype",
                                    .flag = kDeprecatedDtypeFlag,
                                    .help = absl::StrCat("Deprecated spelling of ", kDtypeFlag),
                                    .unset = "none"},
                                   &settings->dispatch.deepep_dispatcher_output_dtype));
  all.push_back(
      WordOption({.key = "defaults.placement", .help = "How experts are placed on workers"},
                 &settings->driver.placement,
                 NamesOf(PlacementPolicies(), [](const auto& policy) { return policy.name; })));
}

// `first` may not be longer than `most`.
OptionRule InOrder(const std::string& first_key, const Duration* first, const std::string& most_key,
                   const Duration* most) {
  OptionRule rule;
  rule.keys = {first_key, most_key};
  rule.wrong = [=]() -> std::string {
    if (*first <= *most) return "";
    return absl::StrCat(first_key, " (", DurationText(*first), ") is longer than ", most_key, " (",
                        DurationText(*most), ")");
  };
  return rule;
}

}  // namespace

// The usual port of a collector, on each process's own host.
CoordinatorSettings::CoordinatorSettings() : read_threads(HalfOfCpus()) {
  network.listen = kDefaultCoordinator;
  driver.coordinator.tracing.endpoint = "127.0.0.1:4317";
}

OptionTable CoordinatorOptionTable(CoordinatorSettings* settings) {
  CoordinatorOptions* const times = &settings->driver.coordinator;
  OptionTable table;
  table.program = "switchyard-coordinator";
  table.about = "Coordinates the workers of Mixture-of-Experts deployments.";
  table.footer = kProgramFooter;
  table.sections.push_back({"network", "where the coordinator listens"});
  table.options.push_back(ListenOption(&settings->network.listen));
  table.options.push_back(SystemPortOption(&settings->network.system_port));
  table.options.push_back(WordOption(
      {.key = "network.reflection",
       .help =
           "gRPC reflection, with which grpcurl and buf curl find the calls and their messages"},
      &settings->reflection, {"on", "off"}));
  table.options.push_back(TextOption(
      {.key = "network.page_hosts",
       .help = "Names by which people open the live page, separated by commas, beside addresses, "
               "localhost and the host of --listen",
       .unset = "none"},
      &settings->page_hosts));
  AddStore(settings, &table);
  AddLeases(times, &table);
  AddTimeouts(times, &table);
  AddLimits(times, &table);
  AddDefaults(settings, &table);
  AddTracing(&times->tracing, &table);
  AddSecurityOptions(&settings->tls_dir, &settings->tenants, &table);
  AddLogOptions(&settings->log, &table);
  table.rules = {InOrder("timeouts.join_settle", &times->join_settle, "timeouts.join_settle_most",
                         &times->join_settle_most),
                 InOrder("timeouts.retry_first", &times->retry_first, "timeouts.retry_last",
                         &times->retry_last),
                 InOrder("timeouts.quarantine_first", &times->quarantine_first,
                         "timeouts.quarantine_last", &times->quarantine_last)};
  // The texts of both spellings go through the check that deployments use.
  table.rules.push_back(
      {{"defaults.dispatcher_output_dtype", "defaults.deepep_dispatcher_output_dtype"}, [settings] {
         const auto unset = [](const char*) { return std::nullopt; };
         const auto read = MakeDispatchDefaults(unset, settings->dispatch);
         return std::string(read.status().message());
       }});
  table.check_flag = &CheckOptionName;
  return table;
}

}  // namespace switchyard
