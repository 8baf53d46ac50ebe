// What workers send to the coordinator, given to its conversion and its state machine.
#include <array>
#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/placement/contiguous.h"
#include "core/base/error.h"
#include "core/protocol_version.h"
#include "core/rng.h"
#include "services/convert/control.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/targets.h"
#include "tests/testing/model_facts.h"

namespace switchyard::fuzz {
namespace {

constexpr int kEventsMax = 1000;  // that one message may lead to

// A coordinator with one deployment, two streams of workers, and a store that always works.
class Control {
 public:
  Control() : rng_(1), coordinator_({}, &placement_, &rng_, {}, now_) {
    Step(ApplyRequested{RequestId{1}, testing::MakeSpec(), false});
    for (const std::uint64_t stream : {1U, 2U}) Step(StreamOpened{StreamId{stream}});
  }

  void Step(Event event) {
    std::vector<Event> queue;
    queue.push_back(std::move(event));
    for (std::size_t i = 0; i < queue.size(); ++i) {
      Check(i < kEventsMax, "a message leads to a bounded number of events");
      const Event next = std::move(queue[i]);
      for (Effect& effect : coordinator_.Step(next, now_)) {
        if (const auto* write = std::get_if<WriteStore>(&effect)) {
          queue.emplace_back(StoreWritten{write->write, absl::OkStatus()});
        } else if (const auto* dial = std::get_if<DialWorker>(&effect)) {
          queue.emplace_back(WorkerDialed{dial->worker, dial->incarnation, dial->endpoint, {}});
        } else if (const auto* check = std::get_if<CheckModel>(&effect)) {
          queue.emplace_back(ModelChecked{check->id, testing::MakeLayout()});
        } else if (const auto* load = std::get_if<LoadModel>(&effect)) {
          queue.emplace_back(ModelLoaded{load->id, testing::MakeFacts()});
        } else if (const auto* send = std::get_if<SendMessage>(&effect)) {
          if (const auto* prepare = std::get_if<Prepare>(&send->message)) last_ = *prepare;
        }
      }
    }
  }
  void Advance(std::chrono::milliseconds by) {
    now_ += by;
    Step(Tick{});
  }
  // The message with the numbers of the last PREPARE, which only a worker of the plan knows.
  [[nodiscard]] WorkerMessage Corrected(WorkerMessage message) const {
    if (auto* ack = std::get_if<PrepareAck>(&message)) {
      *ack = {last_.plan.deployment, last_.plan.epoch, last_.nonce, last_.hash};
    } else if (auto* committed = std::get_if<CommitAck>(&message)) {
      *committed = {last_.plan.deployment, last_.plan.epoch, last_.hash};
    } else if (auto* retired = std::get_if<RetireAck>(&message)) {
      *retired = {last_.plan.deployment, last_.plan.epoch};
    }
    return message;
  }
  [[nodiscard]] std::size_t workers() const { return coordinator_.View(now_).workers.size(); }

 private:
  ContiguousPlacement placement_;
  SeededRng rng_;
  TimePoint now_{std::chrono::seconds(100)};
  Coordinator coordinator_;
  Prepare last_;
};

}  // namespace

// Message::what: bit 0 the stream, bit 1 time passes, bit 2 the stream ends and another begins, bit
// 3 an acknowledgement is of the last PREPARE, bit 4 Register keeps the version that the input has.
void FuzzRegister(absl::string_view input) {
  Control control;
  std::array<std::uint64_t, 2> streams = {1, 2};
  std::uint64_t last_stream = 2;
  Messages messages(input);
  for (Message message; messages.Next(&message);) {
    std::uint64_t& stream = streams[message.what & 1U];
    if ((message.what & 2) != 0) control.Advance(std::chrono::milliseconds(200));
    if ((message.what & 4) != 0) {
      control.Step(StreamClosed{StreamId{stream}});
      stream = ++last_stream;
      control.Step(StreamOpened{StreamId{stream}});
    }
    v1::SessionRequest proto;
    if (!proto.ParseFromArray(message.bytes.data(), static_cast<int>(message.bytes.size()))) {
      continue;
    }
    if (proto.has_register_() && (message.what & 16) == 0) {
      proto.mutable_register_()->set_protocol_version(kProtocolVersion);
    }
    absl::StatusOr<WorkerMessage> decoded = FromProto(proto);
    if (!decoded.ok()) {
      const Reason reason = ReasonOf(decoded.status());
      Check(reason == Reason::kBadRequest || reason == Reason::kTransport,
            "a refusal has its reason");
      continue;
    }
    WorkerMessage sent = *std::move(decoded);
    if ((message.what & 8) != 0) sent = control.Corrected(std::move(sent));
    control.Step(StreamMessage{StreamId{stream}, std::move(sent)});
    control.Advance(std::chrono::milliseconds(10));
  }
  Check(control.workers() <= 64, "a message makes one worker at most");
}

}  // namespace switchyard::fuzz
