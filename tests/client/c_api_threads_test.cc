// Every pair of calls of switchyard.h at once on one session and one step, over shared memory, tcp
// and a gateway: each call returns, with a result or an error that the header names for it, and no
// step that succeeds has another answer.
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "client/switchyard.h"
#include "core/base/clock.h"
#include "core/rng.h"
#include "harness/local_deployment.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

constexpr std::int32_t kHidden = 256;
constexpr std::int32_t kTokens = 3;
constexpr std::int32_t kTopK = 4;
constexpr std::int32_t kExperts = 16;
constexpr int kRounds = 3;

// One batch with an answer of its own.
struct Batch {
  Batch() {
    SeededRng rng(3);
    x = testing::GaussianBf16(kTokens * kHidden, 1.0, rng);
    for (std::int32_t i = 0; i < kTokens * kTopK; ++i) {
      ids.push_back(i % kExperts);
      weights.push_back(0.25F);
    }
    y.assign(kTokens * kHidden, -1.0F);
  }
  sy_step_request Request() {
    sy_step_request request;
    SY_INIT(request);
    request.layer = 1;
    request.tokens = kTokens;
    request.top_k = kTopK;
    request.x = reinterpret_cast<const std::uint16_t*>(x.data());
    request.x_stride = request.y_stride = kHidden;
    request.ids = ids.data();
    request.ids_stride = request.weights_stride = kTopK;
    request.weights = weights.data();
    request.y = y.data();
    return request;
  }

  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

struct Shared {
  sy_client* client = nullptr;
  sy_session* session = nullptr;
  sy_step* step = nullptr;
  const std::vector<float>* expected = nullptr;
};

// A session or step that another call has ended.
bool IsDone(sy_code code) { return code == SY_OK || code == SY_FAILED_PRECONDITION; }

void ExpectAnswer(sy_code code, const Batch& batch, const Shared& shared, const char* call) {
  EXPECT_TRUE(IsDone(code)) << call << " " << code;
  if (code == SY_OK) {
    EXPECT_EQ(batch.y, *shared.expected) << call;
  }
}

void Run(const Shared& shared) {
  Batch batch;
  const sy_step_request request = batch.Request();
  ExpectAnswer(sy_run(shared.session, &request, 0), batch, shared, "sy_run");
}
void SubmitAndWait(const Shared& shared) {
  Batch batch;
  const sy_step_request request = batch.Request();
  sy_step* step = nullptr;
  sy_code code = sy_submit(shared.session, &request, &step);
  if (code == SY_OK) code = sy_wait(step);
  ExpectAnswer(code, batch, shared, "sy_submit");
}
void Wait(const Shared& shared) { EXPECT_TRUE(IsDone(sy_wait(shared.step))); }
void Poll(const Shared& shared) {
  int done = 7;
  const sy_code code = sy_poll(shared.step, &done);
  EXPECT_TRUE(IsDone(code));
  if (code == SY_OK) {
    EXPECT_TRUE(done == 0 || done == 1) << done;
  }
}
void Status(const Shared& shared) {
  std::array<char, 1 << 16> text{};
  const std::size_t size = sy_session_status(shared.session, text.data(), text.size());
  if (size > 0) {
    EXPECT_EQ(text[0], '{');
  }
}
void LastError(const Shared& shared) {
  std::array<char, 4096> text{};
  EXPECT_GT(sy_last_error(shared.client, text.data(), text.size()), 0U);
}
void Close(const Shared& shared) { EXPECT_TRUE(IsDone(sy_session_close(shared.session))); }
void OpenAnother(const Shared& shared) {
  sy_session_options options;
  SY_INIT(options);
  options.phase = SY_PHASE_DECODE;
  sy_session* session = nullptr;
  EXPECT_EQ(sy_session_open(shared.client, &options, &session), SY_OK);
  EXPECT_EQ(sy_session_close(session), SY_OK);
}

using Call = void (*)(const Shared&);
constexpr std::array<Call, 8> kCalls = {Run,    SubmitAndWait, Wait,  Poll,
                                        Status, LastError,     Close, OpenAnother};

class CApiThreadsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.bin_dir = SY_BIN_DIR;
    options.checkpoint = SY_SHIPPED_MODEL;
    options.workers = 2;
    options.worker_flags = {"--net-devices", "lo"};
    SY_ASSERT_OK_AND_ASSIGN(deployment_, LocalDeployment::Start(options));
    const std::string where = GetParam();
    const std::string address =
        where == "gateway" ? deployment_->worker_address(0) : deployment_->coordinator();
    sy_client_options client;
    SY_INIT(client);
    (where == "gateway" ? client.gateway : client.coordinator) = address.c_str();
    client.transport = where == "tcp" ? SY_TRANSPORT_TCP : SY_TRANSPORT_AUTO;
    client.net_devices = "lo";
    ASSERT_EQ(sy_client_open(&client, &shared_.client), SY_OK);
    shared_.expected = &expected_;
    ASSERT_TRUE(OpenWhenServing());
    Batch batch;
    const sy_step_request request = batch.Request();
    ASSERT_EQ(sy_run(shared_.session, &request, 10'000), SY_OK) << Error();
    expected_ = batch.y;
    ASSERT_EQ(sy_session_close(shared_.session), SY_OK);
  }
  void TearDown() override { sy_client_close(shared_.client); }

  std::string Error() const {
    std::array<char, 4096> text{};
    sy_last_error(shared_.client, text.data(), text.size());
    return text.data();
  }
  sy_code Open() {
    sy_session_options options;
    SY_INIT(options);
    options.phase = SY_PHASE_DECODE;
    return sy_session_open(shared_.client, &options, &shared_.session);
  }
  bool OpenWhenServing() {
    const SteadyClock clock;
    const TimePoint until = clock.Now() + std::chrono::seconds(30);
    while (Open() != SY_OK) {
      if (clock.Now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::unique_ptr<LocalDeployment> deployment_;
  std::vector<float> expected_;
  Shared shared_;
};

TEST_P(CApiThreadsTest, EveryPairOfCallsMayComeAtOnce) {
  for (std::size_t a = 0; a < kCalls.size(); ++a) {
    for (std::size_t b = a; b < kCalls.size(); ++b) {
      for (int round = 0; round < kRounds; ++round) {
        SCOPED_TRACE(absl::StrCat("calls ", a, " and ", b, ", round ", round));
        ASSERT_EQ(Open(), SY_OK) << Error();
        Batch batch;
        const sy_step_request request = batch.Request();
        ASSERT_EQ(sy_submit(shared_.session, &request, &shared_.step), SY_OK) << Error();
        std::barrier together(2);
        std::thread other([&] {
          together.arrive_and_wait();
          kCalls[b](shared_);
        });
        together.arrive_and_wait();
        kCalls[a](shared_);
        other.join();
        // One of them may have ended the session or the step. Nothing writes y after this.
        EXPECT_TRUE(IsDone(sy_wait(shared_.step)));
        EXPECT_TRUE(IsDone(sy_session_close(shared_.session)));
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, CApiThreadsTest, ::testing::Values("shm", "tcp", "gateway"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace switchyard
