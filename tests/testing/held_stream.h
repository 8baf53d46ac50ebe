// A stream whose work is done when the test says so: for what must never wait for a device.
//
//   auto stream = std::make_unique<HeldStream>(*device->MakeStream({}));
//   stream->Hold();  ... enqueue ...  stream->ReleaseOne();
//
// Wait lets the device finish, as a real one would by itself, and is counted: a test expects 0.
// Single-threaded.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "worker/device/stream.h"

namespace switchyard::testing {

class HeldStream final : public Stream {
 public:
  // `inner` works in the call.
  explicit HeldStream(std::unique_ptr<Stream> inner) : inner_(std::move(inner)) {}

  // From now on work waits for Release.
  void Hold() { held_ = true; }
  // Does the oldest piece of work, with the events behind it.
  void ReleaseOne() {
    if (work_.empty()) return;
    Do();
    while (!work_.empty() && work_.front().event != nullptr) Do();
  }
  void ReleaseAll() {
    while (!work_.empty()) Do();
  }
  // The next piece that is done fails instead.
  void FailNext(absl::Status status) { next_failure_ = std::move(status); }
  // Pieces and events that wait.
  [[nodiscard]] std::size_t waiting() const { return work_.size(); }
  [[nodiscard]] int waits() const { return waits_; }
  [[nodiscard]] const std::vector<void*>& waited_for() const { return waited_for_; }

  absl::Status Run(const ExpertRun& run) override {
    return Queue([this, run] { return inner_->Run(run); });
  }
  absl::Status Encode(const EncodeRun& run) override {
    return Queue([this, run] { return inner_->Encode(run); });
  }
  absl::Status Sum(const SumRun& run) override {
    return Queue([this, run] { return inner_->Sum(run); });
  }
  absl::Status Copy(std::span<const CopyPiece> pieces) override {
    return Queue([this, pieces] { return inner_->Copy(pieces); });
  }
  absl::Status WaitFor(void* foreign) override {
    waited_for_.push_back(foreign);
    return absl::OkStatus();
  }
  absl::Status Precede(void* /*foreign*/) override { return absl::OkStatus(); }
  absl::Status Record(DeviceEvent* event) override {
    auto* own = static_cast<Event*>(event);
    own->done_ = false;
    work_.push_back({.work = {}, .event = own});
    if (!held_) ReleaseAll();
    return absl::OkStatus();
  }
  [[nodiscard]] std::unique_ptr<DeviceEvent> MakeEvent() override {
    return std::make_unique<Event>(this);
  }

 private:
  class Event final : public DeviceEvent {
   public:
    explicit Event(HeldStream* stream) : stream_(stream) {}
    [[nodiscard]] bool done() const override { return done_; }
    [[nodiscard]] absl::Status status() const override { return status_; }
    bool Wait(Duration /*timeout*/) override {
      ++stream_->waits_;
      while (!done_) stream_->ReleaseOne();
      return true;
    }

   private:
    friend class HeldStream;
    HeldStream* stream_;
    bool done_ = true;
    absl::Status status_;
  };
  struct Item {
    std::function<absl::Status()> work;
    Event* event = nullptr;
  };

  absl::Status Queue(std::function<absl::Status()> work) {
    work_.push_back({.work = std::move(work)});
    if (!held_) ReleaseAll();
    return absl::OkStatus();
  }
  void Do() {
    const Item item = std::move(work_.front());
    work_.pop_front();
    if (item.event != nullptr) {
      item.event->status_ = std::exchange(failed_, absl::OkStatus());
      item.event->done_ = true;
      return;
    }
    if (failed_.ok()) failed_ = std::exchange(next_failure_, absl::OkStatus());
    if (failed_.ok()) failed_ = item.work();
  }

  std::unique_ptr<Stream> inner_;
  std::deque<Item> work_;
  bool held_ = false;
  int waits_ = 0;
  std::vector<void*> waited_for_;
  absl::Status next_failure_;
  absl::Status failed_;  // of the work since the last event
};

}  // namespace switchyard::testing
