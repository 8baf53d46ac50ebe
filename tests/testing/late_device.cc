#include "tests/testing/late_device.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/failure_scope.h"
#include "core/base/status_macros.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard::testing {
namespace {

// Counts the buffers that exist, where it is given a count.
class LateBuffer final : public Buffer {
 public:
  LateBuffer(std::shared_ptr<LateMappings> mappings, std::byte* outside, std::byte* inside,
             std::size_t bytes, std::shared_ptr<std::atomic<int>> count, int file = -1)
      : Buffer(outside, bytes, MemoryKind::kDevice),
        mappings_(std::move(mappings)),
        inside_(inside),
        count_(std::move(count)),
        file_(file) {
    mappings_->Add(outside, inside, bytes);
    if (count_ != nullptr) ++*count_;
  }
  ~LateBuffer() override {
    mappings_->Remove(data());
    munmap(data(), bytes());
    munmap(inside_, bytes());
    if (file_ >= 0) close(file_);
    if (count_ != nullptr) --*count_;
  }

 private:
  const std::shared_ptr<LateMappings> mappings_;
  std::byte* const inside_;
  const std::shared_ptr<std::atomic<int>> count_;
  const int file_;  // of memory that others may open; else -1
};

absl::Status NoLateMemory() {
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                   "no memory for a buffer of the late device");
}

std::size_t WholePages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

// `file` is the buffer's if it is made and `keeps`.
absl::StatusOr<std::unique_ptr<Buffer>> MapLate(int file, std::size_t size, bool keeps,
                                                bool host_access,
                                                const std::shared_ptr<LateMappings>& mappings,
                                                std::shared_ptr<std::atomic<int>> count) {
  constexpr int kAll = PROT_READ | PROT_WRITE;
  void* inside = mmap(nullptr, size, kAll, MAP_SHARED, file, 0);
  void* outside = mmap(nullptr, size, host_access ? kAll : PROT_NONE, MAP_SHARED, file, 0);
  if (inside == MAP_FAILED || outside == MAP_FAILED) return NoLateMemory();
  return std::make_unique<LateBuffer>(mappings, static_cast<std::byte*>(outside),
                                      static_cast<std::byte*>(inside), size, std::move(count),
                                      keeps ? file : -1);
}

class LateEvent final : public DeviceEvent {
 public:
  [[nodiscard]] bool done() const override { return done_.load(std::memory_order_acquire); }
  [[nodiscard]] absl::Status status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  bool Wait(Duration timeout) override {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return done(); });
  }
  void Open() { done_.store(false); }
  void Complete(absl::Status status) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
    changed_.notify_all();
  }

 private:
  std::atomic<bool> done_{true};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status status_;  // guarded by mutex_
};

class LateStream final : public Stream {
 public:
  LateStream(LateDevice* device, std::unique_ptr<Stream> inner, StreamOptions options)
      : device_(device),
        inner_(std::move(inner)),
        inner_event_(inner_->MakeEvent()),
        options_(std::move(options)),
        thread_([this] { Loop(); }) {}
  ~LateStream() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  absl::Status Run(const ExpertRun& run) override {
    SY_RETURN_IF_ERROR(device_->Death());
    SY_RETURN_IF_ERROR(device_->TakeRefusal());
    for (const ExpertInput& input : run.inputs) {
      if (device_->Reaches(input.rows) && device_->Reaches(input.out)) continue;
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                       "rows or answers in memory that this device does not reach");
    }
    const Duration time = device_->TimeOf(run, options_.work_class);
    return Queue(time, [this, run]() -> absl::Status {
      SY_RETURN_IF_ERROR(device_->TakeFailure());
      device_->CountRun();
      std::vector<ExpertInput> inputs(run.inputs.begin(), run.inputs.end());
      for (ExpertInput& input : inputs) {
        input.rows = device_->Inside(input.rows);
        input.scales = device_->Inside(input.scales);
        input.out = device_->Inside(input.out);
      }
      ExpertRun inside = run;
      inside.inputs = inputs;
      SY_RETURN_IF_ERROR(Await(inner_->Run(inside)));
      for (std::size_t i = 0; i < inputs.size(); ++i) run.inputs[i].nan_rows = inputs[i].nan_rows;
      return absl::OkStatus();
    });
  }
  absl::Status Encode(const EncodeRun& run) override {
    SY_RETURN_IF_ERROR(device_->Death());
    return Queue({}, [this, run]() -> absl::Status {
      SY_RETURN_IF_ERROR(device_->TakeFailure());
      EncodeRun inside = run;
      inside.x = reinterpret_cast<const Bf16*>(device_->Inside(run.x));
      inside.data = device_->Inside(run.data);
      inside.scales = device_->Inside(run.scales);
      return Await(inner_->Encode(inside));
    });
  }
  absl::Status Sum(const SumRun& run) override {
    SY_RETURN_IF_ERROR(device_->Death());
    return Queue({}, [this, run]() -> absl::Status {
      SY_RETURN_IF_ERROR(device_->TakeFailure());
      SumRun inside = run;
      inside.y = device_->Inside(run.y);
      std::vector<const Bf16*> terms;
      for (const Bf16* term : run.terms) {
        terms.push_back(reinterpret_cast<const Bf16*>(device_->Inside(term)));
      }
      inside.terms = terms;
      return Await(inner_->Sum(inside));
    });
  }
  absl::Status Copy(std::span<const CopyPiece> pieces) override {
    SY_RETURN_IF_ERROR(device_->Death());
    return Queue({}, [this, pieces] {
      std::vector<CopyPiece> inside(pieces.begin(), pieces.end());
      for (CopyPiece& piece : inside) {
        piece.to = device_->Inside(piece.to);
        piece.from = device_->Inside(piece.from);
      }
      return Await(inner_->Copy(inside));
    });
  }
  absl::Status WaitFor(void* foreign) override {
    SY_RETURN_IF_ERROR(device_->Death());
    return Queue({}, [this, foreign]() -> absl::Status {
      const auto* queue = static_cast<const LateDevice::ForeignQueue*>(foreign);
      std::unique_lock lock(mutex_);
      while (queue != nullptr && !queue->empty() && !stopping_) {
        changed_.wait_for(lock, std::chrono::milliseconds(1));
      }
      return absl::OkStatus();
    });
  }
  absl::Status Precede(void* /*foreign*/) override {
    if (device_->precedes()) return device_->Death();
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     "a late device holds back no stream of others");
  }
  absl::Status Record(DeviceEvent* event) override {
    SY_RETURN_IF_ERROR(device_->Death());
    auto* own = static_cast<LateEvent*>(event);
    own->Open();
    {
      const std::lock_guard lock(mutex_);
      work_.push_back({.work = {}, .event = own});
    }
    changed_.notify_all();
    return absl::OkStatus();
  }
  [[nodiscard]] std::unique_ptr<DeviceEvent> MakeEvent() override {
    return std::make_unique<LateEvent>();
  }

 private:
  struct Item {
    std::function<absl::Status()> work;
    Duration time{};  // that it takes beside its delay
    LateEvent* event = nullptr;
  };

  absl::Status Queue(Duration time, std::function<absl::Status()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back({.work = std::move(work), .time = time});
    }
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::Status Await(absl::Status enqueued) {
    SY_RETURN_IF_ERROR(enqueued);
    SY_RETURN_IF_ERROR(inner_->Record(inner_event_.get()));
    while (!inner_event_->Wait(std::chrono::seconds(1))) {
    }
    return inner_event_->status();
  }
  // The end of the stream cuts a delay short.
  void Delay(Duration time) {
    const Duration delay = device_->NextDelay() + time;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, delay, [this] { return stopping_; });
    while (device_->hangs() && !stopping_) changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  void Loop() {
    absl::Status failed;  // of the work since the last event
    for (;;) {
      Item item;
      {
        std::unique_lock lock(mutex_);
        while (!changed_.wait_for(lock, std::chrono::seconds(1),
                                  [this] { return stopping_ || !work_.empty(); })) {
        }
        if (work_.empty()) return;
        item = std::move(work_.front());
        work_.pop_front();
      }
      Delay(item.time);
      if (item.event == nullptr) {
        if (failed.ok()) failed = device_->Death();
        if (failed.ok()) failed = item.work();
        continue;
      }
      if (failed.ok()) failed = device_->Death();
      item.event->Complete(std::exchange(failed, absl::OkStatus()));
      if (options_.on_progress) options_.on_progress();
    }
  }

  LateDevice* const device_;
  std::unique_ptr<Stream> inner_;
  std::unique_ptr<DeviceEvent> inner_event_;
  const StreamOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> work_;  // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: starts when all above exists
};

}  // namespace

absl::StatusOr<std::unique_ptr<LateDevice>> LateDevice::Create(LateDeviceOptions options) {
  std::unique_ptr<LateDevice> device(new LateDevice(std::move(options)));
  SY_ASSIGN_OR_RETURN(device->inner_,
                      CpuBackend::Create({.kernel_family = device->options_.kernel_family}));
  return device;
}

LateDevice::~LateDevice() = default;

void LateDevice::FailNextRun(absl::Status status) {
  const std::lock_guard lock(mutex_);
  next_failure_ = std::move(status);
}

void LateDevice::RefuseNextRun(absl::Status status) {
  const std::lock_guard lock(mutex_);
  next_refusal_ = std::move(status);
}

absl::Status LateDevice::TakeRefusal() {
  const std::lock_guard lock(mutex_);
  return std::exchange(next_refusal_, absl::OkStatus());
}

void LateDevice::Die() { dead_.store(true); }

absl::Status LateDevice::Death() const {
  if (!dead_.load()) return absl::OkStatus();
  return WithScope(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                             "the late device has died; restart its worker"),
                   FailureScope::kWorker);
}

absl::Status LateDevice::TakeFailure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(next_failure_, absl::OkStatus());
}

Duration LateDevice::TimeOf(const ExpertRun& run, WorkClass work_class) const {
  const Duration row =
      work_class == WorkClass::kDecode ? options_.decode_row : options_.prefill_row;
  if (row == Duration::zero()) return {};
  std::int64_t rows = 0;
  for (const ExpertInput& input : run.inputs) {
    const std::span<const std::int32_t> slots(input.slots, input.count * std::size_t(run.width));
    rows += std::count_if(slots.begin(), slots.end(), [](std::int32_t slot) { return slot >= 0; });
  }
  return rows * row;
}

Duration LateDevice::NextDelay() {
  const std::lock_guard lock(mutex_);
  const auto max = static_cast<std::uint64_t>(options_.late_max.count());
  return Duration(static_cast<std::int64_t>(rng_.Next() % (max + 1)));
}

absl::StatusOr<std::unique_ptr<Buffer>> LateDevice::Allocate(std::size_t bytes, MemoryKind kind) {
  if (kind != MemoryKind::kDevice) return inner_->Allocate(bytes, kind);
  const std::size_t size = WholePages(bytes);
  const int file = memfd_create("late-device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) return NoLateMemory();
  auto buffer = MapLate(file, size, /*keeps=*/false, options_.host_access, mappings_, nullptr);
  close(file);
  return buffer;
}

// The key is a path, under which any process of this user finds the file.
absl::StatusOr<SharedBuffer> LateDevice::AllocateShared(std::size_t bytes) {
  if (!options_.shares) return DeviceBackend::AllocateShared(bytes);
  const std::size_t size = WholePages(bytes);
  const int file = memfd_create("late-device-shared", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) return NoLateMemory();
  SharedBuffer shared;
  SY_ASSIGN_OR_RETURN(shared.buffer, MapLate(file, size, /*keeps=*/true, options_.host_access,
                                             mappings_, shared_memory_));
  shared.key = absl::StrCat("/proc/", getpid(), "/fd/", file);
  ++shared_memory_ever_;
  return shared;
}

absl::StatusOr<std::unique_ptr<Buffer>> LateDevice::OpenShared(absl::string_view key,
                                                               std::size_t bytes) {
  if (!options_.shares) return DeviceBackend::OpenShared(key, bytes);
  const int file = open(std::string(key).c_str(), O_RDWR | O_CLOEXEC);
  struct stat found {};
  if (file < 0 || fstat(file, &found) != 0 || found.st_size < static_cast<off_t>(bytes)) {
    if (file >= 0) close(file);
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     "the key is of no such memory of a late device");
  }
  auto buffer = MapLate(file, WholePages(bytes), /*keeps=*/false, options_.host_access, mappings_,
                        shared_memory_);
  close(file);
  ++shared_memory_ever_;
  return buffer;
}

void LateMappings::Add(const std::byte* outside, std::byte* inside, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  mapped_[outside] = {inside, bytes};
}

void LateMappings::Remove(const std::byte* outside) {
  const std::lock_guard lock(mutex_);
  mapped_.erase(outside);
}

std::byte* LateMappings::Inside(const void* address) const {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(address));
  const std::lock_guard lock(mutex_);
  auto at = mapped_.upper_bound(bytes);
  if (at == mapped_.begin()) return bytes;
  --at;
  const std::ptrdiff_t offset = bytes - at->first;
  if (offset >= static_cast<std::ptrdiff_t>(at->second.bytes)) return bytes;
  return at->second.inside + offset;
}

absl::StatusOr<MemoryKind> LateDevice::KindAt(const void* address) const {
  if (address == options_.foreign_memory && address != nullptr) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                     "memory of another late device");
  }
  return Reaches(address) ? MemoryKind::kDevice : MemoryKind::kHost;
}

bool LateDevice::Reaches(const void* address) const {
  return options_.host_access || Inside(address) != address;
}

absl::StatusOr<std::unique_ptr<Stream>> LateDevice::MakeStream(StreamOptions options) {
  SY_ASSIGN_OR_RETURN(auto inner, inner_->MakeStream({.work_class = options.work_class}));
  return std::make_unique<LateStream>(this, std::move(inner), std::move(options));
}

}  // namespace switchyard::testing
