// Sessions of an engine whose tensors lie on a device: a device that is late, in memory that the
// host cannot touch, so that a read or write of the engine's tensors by the host ends the process.
// The answers are those of the same steps from memory of the host, bit by bit, whether the tensors
// pass through the host or the device itself encodes rows and sums answers, and whether those lie
// in rings of the host or in memory of the workers' devices.
#include <cstring>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "harness/in_process_deployment.h"
#include "tests/e2e/random_step.h"
#include "tests/testing/late_device.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::LateDevice;
using testing::RandomStep;

constexpr char kShippedModel[] = SWITCHYARD_SOURCE_DIR "/models/sqlite-moe-7m";
constexpr LayerId kLayer{1};
constexpr MoeShape kShape{.hidden = 256, .intermediate = 128, .experts = 16, .top_k = 4};
constexpr Duration kLong = std::chrono::seconds(20);

// One tensor on the device, whose rows lie `stride` elements apart.
template <typename T>
class DeviceRows {
 public:
  DeviceRows(LateDevice* device, std::size_t rows, std::size_t columns, std::size_t gap)
      : rows_(rows), columns_(columns), stride_(columns + gap) {
    stream_ = *device->MakeStream({});
    event_ = stream_->MakeEvent();
    buffer_ = *device->Allocate(std::max<std::size_t>(rows * stride_ * sizeof(T), 1),
                                MemoryKind::kDevice);
    Fill(0xff);
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(buffer_->data()); }
  [[nodiscard]] std::int64_t stride() const { return static_cast<std::int64_t>(stride_); }
  // All bytes; 0xff is a NaN of every type.
  void Fill(int byte) {
    std::vector<T> all(rows_ * stride_);
    if (!all.empty()) std::memset(all.data(), byte, all.size() * sizeof(T));
    Copy(buffer_->data(), reinterpret_cast<const std::byte*>(all.data()), all.size());
  }
  void Set(const std::vector<T>& dense) {
    for (std::size_t row = 0; row < rows_; ++row) {
      Copy(buffer_->data() + row * stride_ * sizeof(T),
           reinterpret_cast<const std::byte*>(dense.data() + row * columns_), columns_);
    }
  }
  // Dense; fails where a gap has been written.
  std::vector<T> Get() {
    std::vector<T> all(rows_ * stride_);
    Copy(reinterpret_cast<std::byte*>(all.data()), buffer_->data(), all.size());
    std::vector<T> dense;
    for (std::size_t row = 0; row < rows_; ++row) {
      const T* begin = all.data() + row * stride_;
      dense.insert(dense.end(), begin, begin + columns_);
      const std::vector<T> gap(begin + columns_, begin + stride_);
      const std::vector<std::byte> poison(gap.size() * sizeof(T), std::byte{0xff});
      if (gap.empty()) continue;
      EXPECT_EQ(std::memcmp(gap.data(), poison.data(), poison.size()), 0) << "row " << row;
    }
    return dense;
  }

 private:
  void Copy(std::byte* to, const std::byte* from, std::size_t count) {
    const CopyPiece piece{.to = to, .from = from, .bytes = count * sizeof(T)};
    ASSERT_TRUE(stream_->Copy({&piece, 1}).ok());
    ASSERT_TRUE(stream_->Record(event_.get()).ok());
    ASSERT_TRUE(event_->Wait(kLong));
  }

  std::size_t rows_;
  std::size_t columns_;
  std::size_t stride_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceEvent> event_;
  std::unique_ptr<Buffer> buffer_;
};

struct DeviceStep {
  DeviceStep(LateDevice* device, const RandomStep& step, std::size_t gap)
      : tokens(step.tokens),
        x(device, Rows(step), kShape.hidden, gap),
        ids(device, Rows(step), kShape.top_k, gap),
        weights(device, Rows(step), kShape.top_k, gap),
        y(device, Rows(step), kShape.hidden, gap) {
    x.Set(step.x);
    ids.Set(step.ids);
    weights.Set(step.weights);
  }
  static std::size_t Rows(const RandomStep& step) { return static_cast<std::size_t>(step.tokens); }
  [[nodiscard]] StepRequest Request(LateDevice::ForeignQueue* queue) const {
    return {.layer = kLayer,
            .tokens = tokens,
            .x = x.data(),
            .x_stride = x.stride(),
            .ids = ids.data(),
            .ids_stride = ids.stride(),
            .weights = weights.data(),
            .weights_stride = weights.stride(),
            .top_k = kShape.top_k,
            .y = y.data(),
            .y_stride = y.stride(),
            .stream = queue};
  }

  std::int32_t tokens;
  DeviceRows<Bf16> x;
  DeviceRows<std::int32_t> ids;
  DeviceRows<float> weights;
  DeviceRows<float> y;
};

// Where the rows of steps are encoded, and where they lie on their way.
enum class Rows : std::uint8_t {
  kThroughTheHost,      // by the host, which copies the tensors
  kByTheDevice,         // by the device, in rings of the host
  kFromDeviceToDevice,  // by the device, in memory of the workers' devices
  kToEachKind,          // so for one worker, in a ring for the other
};

class DeviceTensorsTest : public ::testing::TestWithParam<Rows> {
 protected:
  void SetUp() override {
    InProcessOptions options;
    options.checkpoint = kShippedModel;
    options.workers = 2;
    options.logger = &logger_;
    const bool shares = GetParam() >= Rows::kFromDeviceToDevice;
    if (shares) {
      options.make_device = [this](std::size_t worker) { return MakeWorkersDevice(worker); };
    }
    SY_ASSERT_OK_AND_ASSIGN(deployment_, InProcessDeployment::Start(options));
    SY_ASSERT_OK_AND_ASSIGN(host_client_, deployment_->MakeClient());
    testing::LateDeviceOptions late;
    late.shares = shares;
    late.maps_host = GetParam() != Rows::kFromDeviceToDevice;
    if (GetParam() != Rows::kThroughTheHost) late.source_bytes_min = 0;
    SY_ASSERT_OK_AND_ASSIGN(auto device, LateDevice::Create(late));
    device_ = device.get();
    SY_ASSERT_OK_AND_ASSIGN(client_, deployment_->MakeClient(std::move(device)));
  }
  absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeWorkersDevice(std::size_t worker) {
    if (worker > 0 && GetParam() == Rows::kToEachKind) return CpuBackend::Create({});
    SY_ASSIGN_OR_RETURN(auto device, LateDevice::Create({.kernel_family = "", .shares = true}));
    workers_devices_.push_back(device.get());
    return device;
  }
  static bool OnDevice() { return GetParam() != Rows::kThroughTheHost; }
  static absl::StatusOr<std::unique_ptr<MoeSession>> Open(Client& client, DispatchMode mode,
                                                          Duration deadline = kLong) {
    OpenSessionRequest request;
    request.mode = mode;
    request.step_deadline = deadline;
    return client.OpenWhenReady(request, kLong);
  }
  // The answer to the same step from memory of the host.
  std::vector<float> HostAnswer(RandomStep& step, DispatchMode mode) {
    const auto session = Open(*host_client_, mode);
    EXPECT_TRUE(session.ok());
    EXPECT_TRUE(testing::RunStep(**session, step, kLayer).ok());
    return step.y;
  }

  Logger logger_{"test", LogLevel::kWarn};
  std::unique_ptr<InProcessDeployment> deployment_;
  std::unique_ptr<Client> host_client_;
  LateDevice* device_ = nullptr;
  std::vector<LateDevice*> workers_devices_;  // those that share memory
  std::unique_ptr<Client> client_;
};

TEST_P(DeviceTensorsTest, AnswersEqualThoseFromMemoryOfTheHost) {
  LateDevice::ForeignQueue empty;
  empty.Finish();
  std::uint64_t seed = 1;
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*client_, mode));
    for (const std::int32_t tokens : {0, 1, 7, 64}) {
      for (const std::size_t gap : {0, 3}) {
        RandomStep step(kShape, tokens, ++seed);
        DeviceStep on_device(device_, step, gap);

        SY_ASSERT_OK(session->Run(on_device.Request(&empty), Duration::zero()));

        EXPECT_EQ(on_device.y.Get(), HostAnswer(step, mode))
            << DispatchModeName(mode) << ", " << tokens << " tokens, gap " << gap;
      }
    }
    SY_ASSERT_OK_AND_ASSIGN(const SessionReport report, session->Report(kLong));
    EXPECT_EQ(report.status.times.steps, 8U);
    // Those without tokens have no rows.
    EXPECT_EQ(report.status.times.device_steps, OnDevice() ? 6U : 0U);
  }
}

TEST_P(DeviceTensorsTest, AStepReadsItsInputsAfterTheEnginesStreamAndOverlapsOthers) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*client_, DispatchMode::kLowLatency));
  LateDevice::ForeignQueue queue;
  RandomStep early(kShape, 9, 1);
  RandomStep late(kShape, 9, 2);
  DeviceStep on_device(device_, early, 0);

  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(on_device.Request(&queue)));
  SY_ASSERT_OK_AND_ASSIGN(const bool done, session->IsDone(ticket));
  EXPECT_FALSE(done);
  // The work of the stream: it writes the inputs.
  on_device.x.Set(late.x);
  on_device.ids.Set(late.ids);
  on_device.weights.Set(late.weights);
  queue.Finish();
  SY_ASSERT_OK(session->Wait(ticket));

  EXPECT_EQ(on_device.y.Get(), HostAnswer(late, DispatchMode::kLowLatency));
}

TEST_P(DeviceTensorsTest, StepsInFlightTogetherKeepTheirAnswersApart) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*client_, DispatchMode::kNormal));
  LateDevice::ForeignQueue empty;
  empty.Finish();
  std::vector<RandomStep> steps;
  std::vector<std::unique_ptr<DeviceStep>> on_device;
  std::vector<StepTicket> tickets;
  for (std::int32_t i = 0; i < 16; ++i) {
    steps.emplace_back(kShape, 1 + i % 5, 100 + static_cast<std::uint64_t>(i));
    on_device.push_back(std::make_unique<DeviceStep>(device_, steps.back(), 1));
  }
  for (const auto& step : on_device) {
    SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(step->Request(&empty)));
    tickets.push_back(ticket);
  }
  EXPECT_THAT(session->Submit(on_device[0]->Request(&empty)),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  for (std::size_t i = tickets.size(); i-- > 0;) {
    SY_ASSERT_OK(session->Wait(tickets[i]));
    EXPECT_EQ(on_device[i]->y.Get(), HostAnswer(steps[i], DispatchMode::kNormal)) << i;
  }
}

TEST_P(DeviceTensorsTest, AStepWhoseStreamIsLateFailsAtItsDeadlineAndTheNextOneIsServed) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*client_, DispatchMode::kLowLatency,
                                                   std::chrono::milliseconds(300)));
  LateDevice::ForeignQueue queue;
  RandomStep step(kShape, 3, 1);
  DeviceStep on_device(device_, step, 0);
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(on_device.Request(&queue)));
  absl::Status waited;
  std::thread waiter([&] { waited = session->Wait(ticket); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
  queue.Finish();
  waiter.join();

  EXPECT_THAT(waited, FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
  SY_ASSERT_OK(session->Run(on_device.Request(&queue), kLong));
  EXPECT_EQ(on_device.y.Get(), HostAnswer(step, DispatchMode::kLowLatency));
}

TEST_P(DeviceTensorsTest, ALostDeviceIsAnError) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*client_, DispatchMode::kNormal));
  LateDevice::ForeignQueue queue;
  RandomStep step(kShape, 3, 1);
  DeviceStep on_device(device_, step, 0);
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(on_device.Request(&queue)));

  device_->Die();
  queue.Finish();

  EXPECT_THAT(session->Wait(ticket),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(session->Submit(on_device.Request(&queue)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_P(DeviceTensorsTest, MemoryOfTheWrongSideIsRefusedAndNamed) {
  LateDevice::ForeignQueue empty;
  empty.Finish();
  RandomStep step(kShape, 3, 1);
  DeviceStep on_device(device_, step, 0);
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*client_, DispatchMode::kNormal));
  SY_ASSERT_OK_AND_ASSIGN(const auto host, Open(*host_client_, DispatchMode::kNormal));
  const auto refused = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest);

  // The host's memory to a session on a device.
  StepRequest request = on_device.Request(&empty);
  request.ids = step.ids.data();
  request.ids_stride = kShape.top_k;
  absl::Status why = session->Submit(request).status();
  EXPECT_THAT(why, refused);
  EXPECT_EQ(MetadataOf(why).at("field"), "ids");

  // The device's memory to a session in memory of the host, each tensor in turn.
  for (const std::string field : {"x", "ids", "weights", "y"}) {
    request = step.Request(kLayer);
    if (field == "x") request.x = on_device.x.data();
    if (field == "ids") request.ids = on_device.ids.data();
    if (field == "weights") request.weights = on_device.weights.data();
    if (field == "y") request.y = on_device.y.data();
    why = host->Submit(request).status();
    EXPECT_THAT(why, refused);
    EXPECT_EQ(MetadataOf(why).at("field"), field);
    EXPECT_THAT(std::string(why.message()), HasSubstr("name the device"));
  }
  request = step.Request(kLayer);
  request.stream = &empty;
  why = host->Submit(request).status();
  EXPECT_THAT(why, refused);
  EXPECT_EQ(MetadataOf(why).at("field"), "stream");

  SY_EXPECT_OK(host->Run(step.Request(kLayer), kLong));
}

// Goal: a fault in the device's part of a step is its result, and never a wrong sum. Method: its
// first piece of work fails; the same step is right afterwards. tests/worker/source/p2p has sums.
TEST_P(DeviceTensorsTest, AFaultOfOneStepIsItsResultAndTheNextOneIsServed) {
  LateDevice::ForeignQueue empty;
  empty.Finish();
  const absl::Status fault = absl::InternalError("of one kernel");
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*client_, mode));
    RandomStep step(kShape, 9, 1);
    DeviceStep on_device(device_, step, 0);
    device_->FailNextRun(fault);

    // Copies are none of the work that fails.
    EXPECT_EQ(session->Run(on_device.Request(&empty), Duration::zero()),
              OnDevice() ? fault : absl::OkStatus());

    SY_ASSERT_OK(session->Run(on_device.Request(&empty), Duration::zero()));
    EXPECT_EQ(on_device.y.Get(), HostAnswer(step, mode));
  }
}

TEST_P(DeviceTensorsTest, AWorkerThatIsLostLeavesExactAnswersAndErrors) {
  LateDevice::ForeignQueue empty;
  empty.Finish();
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open(*client_, DispatchMode::kNormal));
  std::vector<RandomStep> steps;
  std::vector<std::unique_ptr<DeviceStep>> on_device;
  std::vector<StepTicket> tickets;
  std::vector<std::vector<float>> wanted;
  for (std::uint64_t i = 0; i < 8; ++i) {
    steps.emplace_back(kShape, 64, 7 + i);
    wanted.push_back(HostAnswer(steps.back(), DispatchMode::kNormal));
    on_device.push_back(std::make_unique<DeviceStep>(device_, steps.back(), 0));
    SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(on_device[i]->Request(&empty)));
    tickets.push_back(ticket);
  }
  SY_ASSERT_OK(session->Wait(tickets[0]));

  deployment_->KillWorker(1);

  EXPECT_EQ(on_device[0]->y.Get(), wanted[0]);
  for (std::size_t i = 1; i < 8; ++i) {
    const absl::Status ended = session->Wait(tickets[i]);
    if (ended.ok()) {
      EXPECT_EQ(on_device[i]->y.Get(), wanted[i]) << i;
    } else {
      EXPECT_THAT(ended, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost)) << i;
    }
  }
}

// Mapping takes time and pins memory.
TEST_P(DeviceTensorsTest, SessionsWithoutStepsForTheDeviceMapNothing) {
  OpenSessionRequest small;
  small.mode = DispatchMode::kLowLatency;
  small.max_tokens = 4;
  OpenSessionRequest strict;
  strict.mode = DispatchMode::kNormal;
  strict.strict = true;
  constexpr std::size_t kStep = 4 * 4 * 256 * sizeof(Bf16);  // tokens, top-k, hidden
  testing::LateDeviceOptions late{.maps_host = true, .source_bytes_min = kStep + 1};
  SY_ASSERT_OK_AND_ASSIGN(auto device, LateDevice::Create(late));
  const LateDevice* const raw = device.get();
  SY_ASSERT_OK_AND_ASSIGN(const auto client, deployment_->MakeClient(std::move(device)));
  for (const OpenSessionRequest& request : {small, strict}) {
    SY_ASSERT_OK(client->OpenWhenReady(request, kLong).status());
    EXPECT_EQ(raw->mapped_memory(), 0);
  }
  small.max_tokens = 5;

  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady(small, kLong));

  EXPECT_EQ(raw->mapped_memory(), 4) << "two rings for each of two workers";
}

TEST_P(DeviceTensorsTest, MemoryOfDevicesIsUsedWhereBothEndsHaveSomeAndGoesWithTheSession) {
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open(*client_, DispatchMode::kNormal));
  SY_ASSERT_OK_AND_ASSIGN(const SessionReport report, session->Report(kLong));
  // Each side has a piece of its own and one of the other's.
  const int shared = 2 * static_cast<int>(workers_devices_.size());
  EXPECT_EQ(device_->shared_memory(), shared);
  int on_device = 0;
  for (const AttachmentStatus& row : report.status.attachments) {
    EXPECT_EQ(row.request_path, row.reply_path);
    if (row.request_path == "device") ++on_device;
    const bool why = GetParam() == Rows::kToEachKind && row.request_path != "device";
    EXPECT_EQ(row.why_no_device, why ? "the device shares no memory with other processes" : "");
  }
  EXPECT_EQ(2 * on_device, shared);

  session.reset();

  const auto end = std::chrono::steady_clock::now() + kLong;
  std::vector<const LateDevice*> devices(workers_devices_.begin(), workers_devices_.end());
  devices.push_back(device_);
  for (const LateDevice* device : devices) {  // each side frees its own
    while (device->shared_memory() > 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    EXPECT_EQ(device->shared_memory(), 0);
  }
}

std::string NameOf(Rows rows) {
  switch (rows) {
    case Rows::kThroughTheHost:
      return "ThroughTheHost";
    case Rows::kByTheDevice:
      return "ByTheDevice";
    case Rows::kFromDeviceToDevice:
      return "FromDeviceToDevice";
    case Rows::kToEachKind:
      return "ToEachKind";
  }
  return {};
}

INSTANTIATE_TEST_SUITE_P(Rows, DeviceTensorsTest,
                         ::testing::Values(Rows::kThroughTheHost, Rows::kByTheDevice,
                                           Rows::kFromDeviceToDevice, Rows::kToEachKind),
                         [](const auto& param) { return NameOf(param.param); });

}  // namespace
}  // namespace switchyard
