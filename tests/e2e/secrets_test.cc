// What only processes of one host have, cookies, UCX's addresses and secrets of rings, is in no log
// at the level debug, no metric and no output of syctl; nor is a row. tests/helm/drills_test.py
// searches a release on Kubernetes for the rest.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "services/channels/grpc_channels.h"
#include "tests/e2e/system_ports.h"
#include "tests/testing/status_matchers.h"
#include "worker/registry/device_registry.h"
#include "worker/registry/transport_registry.h"
#include "worker/transport/ring_exchange.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::HttpRequest;
using testing::kProgramTimeout;
using testing::RunStep;

// Bytes by what they are.
class Secrets {
 public:
  void Add(const std::string& name, std::string bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    secrets_.emplace(absl::StrCat(name, " ", secrets_.size()), std::move(bytes));
  }
  template <typename T>
  void AddValue(const std::string& name, const T& value) {
    Add(name, std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
  }
  // An offer's: its address, and its key with the secret.
  void AddOffer(const std::string& side, const RingOffer& offer) {
    // The last bytes: the first ones are a number and a length, which may be anywhere.
    if (offer.address.size() >= 32) {
      Add(side + "'s address", offer.address.substr(offer.address.size() - 24));
    }
    const absl::StatusOr<RingKey> key = OpenRingKey(offer.rkey);
    if (key.ok() && key->secret != RingSecret{}) AddValue(side + "'s ring secret", key->secret);
  }
  [[nodiscard]] std::map<std::string, std::string> all() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return secrets_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> secrets_;
};

// Base64 of `bytes` behind `before` others, without the characters that depend on what surrounds
// it.
std::string Base64Behind(std::size_t before, const std::string& bytes) {
  const std::string text = absl::Base64Escape(std::string(before, '\0') + bytes);
  // A character has six bits; those at the edges depend on what is around.
  const std::size_t begin = (before * 8 + 5) / 6;
  return text.substr(begin, (before + bytes.size()) * 8 / 6 - begin);
}

std::string Reversed(std::string bytes) {
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

// Ways to write bytes; numbers are written from their other end.
std::vector<std::string> Forms(const std::string& bytes) {
  std::vector<std::string> forms{bytes, absl::CEscape(bytes)};
  std::vector<std::string> orders{bytes, Reversed(bytes)};
  // A random id is written as two numbers.
  if (bytes.size() == 16) {
    orders.push_back(Reversed(bytes.substr(0, 8)) + Reversed(bytes.substr(8)));
  }
  for (const std::string& order : orders) {
    forms.push_back(absl::BytesToHexString(order));
    forms.push_back(absl::AsciiStrToUpper(absl::BytesToHexString(order)));
  }
  for (std::size_t before = 0; before < 3; ++before) forms.push_back(Base64Behind(before, bytes));
  if (bytes.size() == sizeof(std::uint64_t)) {
    std::uint64_t number = 0;
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&number));
    forms.push_back(absl::StrCat(number));
  }
  return forms;
}

// "secret in text" of each that is found.
std::vector<std::string> Found(const std::map<std::string, std::string>& texts,
                               const std::map<std::string, std::string>& secrets) {
  std::vector<std::string> found;
  for (const auto& [name, bytes] : secrets) {
    for (const std::string& form : Forms(bytes)) {
      for (const auto& [where, text] : texts) {
        if (absl::StrContains(text, form)) found.push_back(absl::StrCat(name, " in ", where));
      }
    }
  }
  return found;
}

class TappedSink final : public AttachSink {
 public:
  TappedSink(AttachSink* sink, Secrets* secrets) : sink_(sink), secrets_(secrets) {}
  void OnAttached(const AttachGrant& grant) override {
    secrets_->AddOffer("a worker", grant.request_ring);
    sink_->OnAttached(grant);
  }
  void OnBound(Epoch epoch, const absl::Status& result) override { sink_->OnBound(epoch, result); }
  void OnAttachEnded(const absl::Status& why) override { sink_->OnAttachEnded(why); }

 private:
  AttachSink* const sink_;
  Secrets* const secrets_;
};

class TappedStream final : public AttachStream {
 public:
  TappedStream(std::unique_ptr<TappedSink> sink, std::unique_ptr<AttachStream> stream)
      : sink_(std::move(sink)), stream_(std::move(stream)) {}
  void Bind(const BindRequest& request) override { stream_->Bind(request); }
  void Release(const ReleaseRequest& request) override { stream_->Release(request); }

 private:
  std::unique_ptr<TappedSink> sink_;
  std::unique_ptr<AttachStream> stream_;  // ends before the sink
};

// Notes what passes between a source, the coordinator and workers.
class Tap final : public SessionChannel {
 public:
  Tap(std::unique_ptr<SessionChannel> channel, Secrets* secrets)
      : channel_(std::move(channel)), secrets_(secrets) {}
  absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& request,
                                           Duration timeout) override {
    auto grant = channel_->OpenSession(request, timeout);
    if (grant.ok()) {
      secrets_->AddValue("cookie", grant->cookie.value);
      secrets_->AddValue("signature", grant->signature);
    }
    return grant;
  }
  absl::Status CloseSession(SessionId session, Duration timeout) override {
    return channel_->CloseSession(session, timeout);
  }
  std::unique_ptr<WatchStream> Watch(const WatchRequest& request, WatchSink* sink) override {
    return channel_->Watch(request, sink);
  }
  std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& request,
                                       AttachSink* sink) override {
    secrets_->AddOffer("a source", request.reply_ring);
    auto tapped = std::make_unique<TappedSink>(sink, secrets_);
    auto stream = channel_->Attach(endpoint, request, tapped.get());
    return std::make_unique<TappedStream>(std::move(tapped), std::move(stream));
  }
  absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint, SessionId session,
                                              Duration timeout) override {
    return channel_->GetCounters(endpoint, session, timeout);
  }

 private:
  const std::unique_ptr<SessionChannel> channel_;
  Secrets* const secrets_;
};

class SecretsTest : public testing::SystemPorts {
 protected:
  static absl::StatusOr<std::unique_ptr<Client>> ConnectTapped(const std::string& coordinator,
                                                               TransportChoice transport,
                                                               Secrets* secrets) {
    ClientOptions options;
    options.transport = transport;
    ClientParts parts;
    SystemRng rng;
    parts.incarnation = rng.NextId<Incarnation>();
    parts.sessions = std::make_unique<Tap>(MakeGrpcSessionChannel(coordinator), secrets);
    SY_ASSIGN_OR_RETURN(parts.device, MakeDevice(kDefaultDevice));
    SY_ASSIGN_OR_RETURN(parts.transport, MakeTransport("ucx", {.incarnation = parts.incarnation,
                                                               .net_devices = "lo"}));
    return Client::Over(options, std::move(parts));
  }
  // Runs steps through shared memory and through messages, and notes their rows.
  static void RunSteps(const std::string& coordinator, Secrets* secrets) {
    for (const TransportChoice transport : {TransportChoice::kShm, TransportChoice::kTcp}) {
      SY_ASSERT_OK_AND_ASSIGN(const auto client, ConnectTapped(coordinator, transport, secrets));
      OpenSessionRequest order;
      order.deployment = "local";
      SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady(order, kProgramTimeout));
      Batch batch(8, 11);
      for (int i = 0; i < 20; ++i) SY_ASSERT_OK(RunStep(*session, batch, 0));
      for (const std::size_t row : {0U, 5U}) {
        const auto* const begin = reinterpret_cast<const char*>(&batch.x[row * testing::kHidden]);
        secrets->Add("row", std::string(begin, 32));
      }
    }
  }
  // Whatever processes of this coordinator have said so far, or say now.
  [[nodiscard]] std::map<std::string, std::string> Texts(const std::string& coordinator,
                                                         const std::vector<std::string>& systems) {
    std::map<std::string, std::string> texts;
    for (const char* log :
         {"switchyard-coordinator.log", "switchyard-workerw0.log", "switchyard-workerw1.log"}) {
      std::ifstream file(folder_.Join(log));
      texts[log] = std::string(std::istreambuf_iterator<char>(file), {});
      EXPECT_GT(texts[log].size(), 100U) << log;
    }
    for (const std::string& system : systems) {
      texts["metrics of " + system] = HttpRequest(system, "/metrics").body;
    }
    const std::vector<std::vector<std::string>> commands{
        {"get", "workers"},  {"get", "deployments"},    {"get", "plan"},
        {"get", "sessions"}, {"get", "events"},         {"describe", "worker", "w0"},
        {"get", "metrics"},  {"get", "metrics", "w0"},  {"describe", "deployment", "local"},
        {"doctor"},          {"explain", "layer", "0"}, {"version"}};
    for (std::vector<std::string> words : commands) {
      const std::string name = words[0] + " " + words.back();
      words.insert(words.end(), {"-o", "json"});
      const testing::ProgramResult result = Syctl(coordinator, words);
      EXPECT_EQ(result.code, 0) << name << ": " << result.err;
      texts["syctl " + name] = result.out + result.err;
    }
    return texts;
  }
};

TEST_F(SecretsTest, AreInNoLogOfAllDetailsAndInNothingThatIsShown) {
  SY_ASSERT_OK_AND_ASSIGN(
      const Running coordinator,
      Start("switchyard-coordinator",
            {"--store", "sqlite:" + folder_.Join("store"), "--log-level", "debug"}));
  const std::vector<std::string> flags{
      "--coordinator", coordinator.endpoint, "--net-devices", "lo", "--log-level", "debug"};
  std::vector<Running> workers;
  for (const std::string id : {"w0", "w1"}) {
    std::vector<std::string> own = flags;
    own.insert(own.end(), {"--id", id});
    SY_ASSERT_OK_AND_ASSIGN(Running worker, Start("switchyard-worker", own, id));
    workers.push_back(std::move(worker));
  }
  Apply(coordinator.endpoint);
  Secrets secrets;
  ASSERT_NO_FATAL_FAILURE(RunSteps(coordinator.endpoint, &secrets));

  const auto all = secrets.all();
  for (const char* kind :
       {"cookie", "signature", "row", "a worker's address", "a source's address", "ring secret"}) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [kind](const auto& secret) {
      return absl::StrContains(secret.first, kind);
    })) << kind;
  }
  auto texts =
      Texts(coordinator.endpoint, {coordinator.system, workers[0].system, workers[1].system});
  EXPECT_EQ(Found(texts, all), std::vector<std::string>{});

  // The search finds each in every form.
  for (const auto& [name, bytes] : all) {
    for (const std::string& form : Forms(bytes)) {
      EXPECT_FALSE(
          Found({{"planted", absl::StrCat("before ", form, " after")}}, {{name, bytes}}).empty())
          << name;
    }
    const std::string inside = absl::Base64Escape(absl::StrCat("text ", bytes, " and more"));
    EXPECT_FALSE(Found({{"planted", inside}}, {{name, bytes}}).empty()) << name;
  }
}

}  // namespace
}  // namespace switchyard
