// A deployment is applied again with other checkpoints while eight sessions send steps, p2p and
// through gateways: no step returns another model's answer, no byte outside y changes, and a
// session goes on or ends with MODEL_CHANGED.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/mutex.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/random_step.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::Processes;
using testing::RandomStep;

constexpr int kApplies = 100;
constexpr std::int32_t kTokens = 3;
constexpr LayerId kLayer{0};
constexpr Duration kChangeMax = std::chrono::seconds(60);

// Two of one shape, and a wider one: a source that sent it the narrow rows would write beyond y.
struct Model {
  std::string checkpoint;
  MoeShape shape;
};
std::vector<Model> Models() {
  const auto model = [](int seed, std::int32_t hidden) {
    const MoeShape shape{.hidden = hidden, .intermediate = 32, .experts = 8, .top_k = 2};
    return Model{absl::StrCat("synthetic:seed=", seed, ",hidden=", hidden,
                              ",intermediate=32,experts=8,top_k=2,layers=1"),
                 shape};
  };
  return {model(1, 64), model(2, 64), model(3, 256)};
}

// Memory for y that ends where reading and writing fault, behind bytes that must not change.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t floats) : bytes_(floats * sizeof(float)) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    length_ = (bytes_ + page - 1) / page * page + 2 * page;
    void* memory =
        ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    begin_ = static_cast<std::byte*>(memory);
    EXPECT_EQ(::mprotect(begin_ + length_ - page, page, PROT_NONE), 0);
    end_ = begin_ + length_ - page;
    std::fill(begin_, end_, kCanary);
  }
  ~GuardedMemory() { ::munmap(begin_, length_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  [[nodiscard]] float* y() const { return reinterpret_cast<float*>(end_ - bytes_); }
  [[nodiscard]] bool intact() const {
    return std::all_of(begin_, end_ - bytes_, [](std::byte b) { return b == kCanary; });
  }

 private:
  static constexpr std::byte kCanary{0xa5};
  std::size_t bytes_ = 0;
  std::size_t length_ = 0;
  std::byte* begin_ = nullptr;
  std::byte* end_ = nullptr;
};

class ModelChangeTest : public Processes {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.checkpoint = models_[0].checkpoint;
    options.mode = "low_latency";  // the same bits on every placement
    Deploy(2, std::move(options));
    ASSERT_NE(deployment_, nullptr);
  }

  // Applies that model and waits until it serves. `more`: further lines of the file.
  void Apply(std::size_t model, const std::string& more = "") {
    const std::string file = folder_.Join("deployment.yaml");
    std::ofstream(file) << "name: local\ncheckpoint: \"" << models_[model].checkpoint
                        << "\"\nmin_workers: 2\nphases:\n"
                        << "  - {phase: prefill, mode: low_latency}\n"
                        << "  - {phase: decode, mode: low_latency}\n"
                        << "  - {phase: mixed, mode: low_latency}\n"
                        << more;
    const std::int64_t before = ServingEpoch();
    const testing::ProgramResult applied = Syctl({"apply", "-f", file});
    ASSERT_EQ(applied.code, 0) << applied.err;
    const auto until = std::chrono::steady_clock::now() + kChangeMax;
    while (ServingEpoch() <= before) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << models_[model].checkpoint;
    }
  }
  testing::ProgramResult Syctl(std::vector<std::string> words) {
    words.insert(words.begin(), {absl::StrCat(testing::kBinDir, "/syctl"), "--target",
                                 deployment_->coordinator()});
    return testing::RunProgram(words);
  }
  std::int64_t ServingEpoch() {
    const auto all =
        nlohmann::json::parse(Syctl({"get", "deployments", "-o", "json"}).out, nullptr, false);
    if (all.is_discarded()) return 0;
    const nlohmann::json& one = all.at("deployments").at(0);
    return one.at("state") == "serving" ? one.at("committed_epoch").get<std::int64_t>() : 0;
  }

  // Opens session after session through `transport` until stopped.
  void RunSessions(const std::string& transport) {
    const auto client = Connect(transport);
    if (!client.ok()) return Fail(absl::StrCat(transport, ": ", client.status().ToString()));
    while (!stop_) {
      OpenSessionRequest request;
      request.max_tokens = kTokens;
      request.step_deadline = std::chrono::seconds(60);
      const auto session = (*client)->OpenWhenReady(request, kChangeMax);
      if (!session.ok()) {
        // The model may change while the session opens.
        if (ReasonOf(session.status()) == Reason::kModelChanged) continue;
        return Fail(absl::StrCat(transport, ": open: ", session.status().ToString()));
      }
      RunSteps(transport, **session);
    }
  }
  // Sends steps until the session ends.
  void RunSteps(const std::string& transport, MoeSession& session) {
    const auto grant = session.Grant();
    // Ended before it could say what it was for.
    if (!grant.ok() && ReasonOf(grant.status()) == Reason::kModelChanged) return;
    if (!grant.ok()) return Fail(absl::StrCat(transport, ": ", grant.status().ToString()));
    const Sha256Digest manifest = grant->plan.manifest;
    RandomStep step(grant->plan.shape, kTokens, 9);
    const GuardedMemory memory(step.x.size());
    while (!stop_) {
      StepRequest request = step.Request(kLayer);
      request.y = memory.y();
      const auto ticket = session.Submit(request);
      const absl::Status status = ticket.ok() ? session.Wait(*ticket) : ticket.status();
      if (!memory.intact()) return Fail(absl::StrCat(transport, ": bytes before y changed"));
      if (!status.ok()) {
        if (ReasonOf(status) == Reason::kModelChanged) {
          ++changes_;
          return;
        }
        return Fail(absl::StrCat(transport, ": step: ", status.ToString()));
      }
      ++steps_;
      Compare(transport, manifest, {memory.y(), step.x.size()});
    }
  }
  // The first answer of a model stands for it.
  void Compare(const std::string& transport, const Sha256Digest& manifest,
               std::span<const float> y) {
    const MutexLock lock(mutex_);
    for (const auto& [known, answer] : answers_) {
      if (known != manifest) continue;
      if (std::memcmp(answer.data(), y.data(), y.size_bytes()) == 0) return;
      failures_.push_back(absl::StrCat(transport, ": the answer of another model"));
      return;
    }
    answers_.emplace_back(manifest, std::vector<float>(y.begin(), y.end()));
  }
  void Fail(const std::string& why) {
    const MutexLock lock(mutex_);
    failures_.push_back(why);
  }

  const std::vector<Model> models_ = Models();
  const testing::TempDir folder_;
  std::atomic<bool> stop_{false};
  std::atomic<int> steps_{0};
  std::atomic<int> changes_{0};
  Mutex mutex_;
  std::vector<std::pair<Sha256Digest, std::vector<float>>> answers_ SY_GUARDED_BY(mutex_);
  std::vector<std::string> failures_ SY_GUARDED_BY(mutex_);
};

TEST_F(ModelChangeTest, SessionsGoOnOrEndWithTheReasonAndNeverMixModels) {
  std::vector<std::thread> sessions;
  for (const char* transport :
       {"shm", "shm", "tcp", "tcp", "gateway", "gateway", "gateway", "gateway"}) {
    sessions.emplace_back([this, transport] { RunSessions(transport); });
  }

  for (int i = 1; i <= kApplies && !HasFailure(); ++i) Apply(static_cast<std::size_t>(i) % 3);

  stop_ = true;
  for (std::thread& session : sessions) session.join();
  const MutexLock lock(mutex_);
  for (const std::string& failure : failures_) ADD_FAILURE() << failure;
  EXPECT_EQ(answers_.size(), models_.size());
  for (std::size_t a = 0; a < answers_.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) EXPECT_NE(answers_[a].second, answers_[b].second);
  }
  EXPECT_GT(changes_, kApplies) << "of eight sessions, most end at each change";
  std::printf("%d steps, %d sessions ended by a change of the model\n", steps_.load(),
              changes_.load());
}

// A session with the answer of its model to one batch.
struct Pinned {
  std::unique_ptr<MoeSession> session;
  RandomStep step;
  std::vector<float> y;
};

class FormerModelTest : public ModelChangeTest {
 protected:
  Pinned Open(Client& client) {
    OpenSessionRequest request;
    request.max_tokens = kTokens;
    request.step_deadline = std::chrono::seconds(60);
    auto session = client.OpenWhenReady(request, kChangeMax);
    EXPECT_TRUE(session.ok()) << session.status();
    Pinned pinned{*std::move(session), RandomStep(models_[0].shape, kTokens, 9), {}};
    EXPECT_TRUE(Run(&pinned).ok());
    pinned.y = pinned.step.y;
    return pinned;
  }
  static absl::Status Run(Pinned* pinned) {
    return testing::RunStep(*pinned->session, pinned->step, kLayer);
  }
  std::string Activity() {
    const auto all = nlohmann::json::parse(Syctl({"get", "deployments", "-o", "json"}).out);
    return all.at("deployments").at(0).at("activity");
  }
};

TEST_F(FormerModelTest, ServesTheSessionsThatOpenedItUntilItsTimeIsOver) {
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<Pinned> former;
  for (const char* transport : {"shm", "tcp", "gateway"}) {
    SY_ASSERT_OK_AND_ASSIGN(auto client, Connect(transport));
    former.push_back(Open(*client));
    clients.push_back(std::move(client));
  }

  Apply(1, "former_model_kept: 8s\n");
  const auto served = std::chrono::steady_clock::now();

  EXPECT_THAT(Activity(), ::testing::HasSubstr("3 sessions go on with the former model, epoch 1"));
  Pinned next = Open(*clients[0]);
  EXPECT_NE(next.y, former[0].y);
  while (std::chrono::steady_clock::now() < served + std::chrono::seconds(5)) {
    for (Pinned& each : former) {
      SY_ASSERT_OK(Run(&each));
      ASSERT_EQ(each.step.y, each.y);
    }
    SY_ASSERT_OK(Run(&next));
    ASSERT_EQ(next.step.y, next.y);
  }
  for (Pinned& each : former) {
    absl::Status last;
    while (last.ok() && std::chrono::steady_clock::now() < served + std::chrono::seconds(30)) {
      last = Run(&each);
      if (last.ok()) {
        ASSERT_EQ(each.step.y, each.y);
      }
    }
    EXPECT_EQ(ReasonOf(last), Reason::kModelChanged) << last;
  }
  SY_EXPECT_OK(Run(&next));
}

TEST_F(FormerModelTest, EndsWithItsLastSessionAndBeforeAWorkerIsReplaced) {
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  {
    const Pinned first = Open(*client);
    Apply(1, "former_model_kept: 10m\n");
  }
  // It would wait for ten minutes.
  Pinned second = Open(*client);
  Apply(0, "former_model_kept: 10m\n");
  SY_ASSERT_OK(Run(&second));
  EXPECT_EQ(second.step.y, second.y);

  SY_ASSERT_OK(deployment_->AddWorker());
  deployment_->worker_process(1).Signal(SIGKILL);

  absl::Status last;
  const auto until = std::chrono::steady_clock::now() + kChangeMax;
  while (ReasonOf(last) != Reason::kModelChanged && std::chrono::steady_clock::now() < until) {
    last = Run(&second);
  }
  EXPECT_EQ(ReasonOf(last), Reason::kModelChanged) << last;
  const Pinned third = Open(*client);
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, third.session->Grant());
  EXPECT_EQ(grant.plan.workers.size(), 2U);
}

}  // namespace
}  // namespace switchyard
