#include "worker/device/cuda/messages/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <dlfcn.h>
#include <nccl.h>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

constexpr int kVersionMin = NCCL_VERSION(2, 27, 0);
// While NCCL works in the background, which takes some microseconds but the first time.
constexpr Duration kSpin = std::chrono::microseconds(100);
constexpr Duration kLook = std::chrono::microseconds(200);
constexpr Duration kAbortMax = std::chrono::seconds(2);

// The functions of the library that a group needs.
struct Nccl {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
};

absl::Status NoLibrary(absl::string_view why) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("exchange between GPUs by messages: ", why,
                                "; install NCCL 2.27 or later where the dynamic linker finds it "
                                "(libnccl2 of your distribution, or nvidia-nccl-cu13 from PyPI)"));
}

// The library stays loaded: an engine in this process may use it too.
absl::StatusOr<Nccl> Load(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return NoLibrary(absl::StrCat(library, " cannot be loaded"));
  Nccl nccl;
  bool found = true;
  const auto find = [&](const char* name, auto* call) {
    *call = reinterpret_cast<std::remove_pointer_t<decltype(call)>>(::dlsym(handle, name));
    found = found && *call != nullptr;
  };
  find("ncclGetVersion", &nccl.get_version);
  find("ncclGetUniqueId", &nccl.get_unique_id);
  find("ncclGetErrorString", &nccl.error_string);
  find("ncclCommInitRankConfig", &nccl.init_rank);
  find("ncclCommGetAsyncError", &nccl.async_error);
  find("ncclCommAbort", &nccl.abort);
  find("ncclGroupStart", &nccl.group_start);
  find("ncclGroupEnd", &nccl.group_end);
  find("ncclSend", &nccl.send);
  find("ncclRecv", &nccl.receive);
  int version = 0;
  if (!found || nccl.get_version(&version) != ncclSuccess || version < kVersionMin) {
    return NoLibrary(absl::StrFormat("%s is of version %d", library, version));
  }
  return nccl;
}

class NcclGroup final : public MessageGroup {
 public:
  NcclGroup(const Nccl& nccl, int ranks, int rank, const NcclOptions& options)
      : nccl_(nccl), ranks_(ranks), rank_(rank), patience_(options.patience) {}
  ~NcclGroup() override { Abort(); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  absl::Status MakeKey() {
    key_ = absl::StrCat("rank ", rank_);
    if (rank_ != 0) return absl::OkStatus();
    ncclUniqueId id{};
    SY_RETURN_IF_ERROR(Checked(nccl_.get_unique_id(&id), "making an id"));
    key_ = absl::BytesToHexString(absl::string_view(id.internal, sizeof(id.internal)));
    return absl::OkStatus();
  }

  [[nodiscard]] const std::string& key() const override { return key_; }

  absl::Status Join(std::span<const std::string> keys) override {
    ncclUniqueId id{};
    if (keys.size() != static_cast<std::size_t>(ranks_) ||
        keys.front().size() != 2 * sizeof(id.internal) ||
        !std::all_of(keys.front().begin(), keys.front().end(), absl::ascii_isxdigit)) {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                       absl::StrFormat("exchange between GPUs by messages: %d keys for %d ranks, "
                                       "or the first is no key of NCCL",
                                       keys.size(), ranks_),
                       {{"rank", "0"}});
    }
    const std::string bytes = absl::HexStringToBytes(keys.front());
    std::memcpy(id.internal, bytes.data(), bytes.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const MutexLock lock(mutex_);
    if (comm_ != nullptr || aborted_) {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                       "exchange between GPUs by messages: a second join");
    }
    return Checked(nccl_.init_rank(&comm_, ranks_, id, rank_, &config), "joining the group");
  }

  absl::Status Carry(const cuda::Messages& messages, const std::byte* outbox, std::byte* heap,
                     cudaStream_t stream) override {
    const MutexLock lock(mutex_);
    // A call that has failed may have sent a part, so that a later one would be taken for it.
    if (!failed_.ok()) return failed_;
    failed_ = TryCarry(messages, outbox, heap, stream);
    return failed_;
  }

  void Abort() override {
    ncclComm_t comm = nullptr;
    {
      const MutexLock lock(mutex_);
      aborted_ = true;
      comm = std::exchange(comm_, nullptr);
    }
    changed_.NotifyAll();
    if (comm != nullptr) AbortInTime(comm);
  }

 private:
  // Waits on the device end at once; the rest may wait for ranks of this host to abort as well
  // (proxy.cc of 2.28), which one that stands still does not. That goes on without this thread.
  void AbortInTime(ncclComm_t comm) const {
    struct Ended {
      Mutex mutex;
      CondVar changed;
      bool ended SY_GUARDED_BY(mutex) = false;
    };
    const auto ended = std::make_shared<Ended>();
    int device = 0;
    const bool has_device = cudaGetDevice(&device) == cudaSuccess;
    const auto abort = [nccl = nccl_, comm, device, has_device, ended] {
      // A thread of its own would have GPU 0.
      if (has_device) (void)cudaSetDevice(device);
      (void)nccl.abort(comm);
      const MutexLock lock(ended->mutex);
      ended->ended = true;
      ended->changed.NotifyAll();
    };
    try {
      std::thread(abort).detach();
    } catch (const std::system_error&) {
      return abort();
    }
    const auto until = std::chrono::steady_clock::now() + kAbortMax;
    const MutexLock lock(ended->mutex);
    while (!ended->ended && ended->changed.WaitUntil(ended->mutex, until)) {
    }
  }

  absl::Status TryCarry(const cuda::Messages& messages, const std::byte* outbox, std::byte* heap,
                        cudaStream_t stream) SY_REQUIRES(mutex_) {
    SY_RETURN_IF_ERROR(AwaitIdle());
    SY_RETURN_IF_ERROR(Checked(nccl_.group_start(), "beginning messages"));
    ncclResult_t result = ncclSuccess;
    const auto add = [&](ncclResult_t part) {
      if (result == ncclSuccess && part != ncclInProgress) result = part;
    };
    for (const cuda::MessagePart& part : messages.sent) {
      add(nccl_.send(outbox + part.at, static_cast<std::size_t>(part.bytes), ncclUint8, part.peer,
                     comm_, stream));
    }
    for (const cuda::MessagePart& part : messages.received) {
      add(nccl_.receive(heap + part.at, static_cast<std::size_t>(part.bytes), ncclUint8, part.peer,
                        comm_, stream));
    }
    const ncclResult_t ended = nccl_.group_end();
    SY_RETURN_IF_ERROR(Checked(result, "adding messages"));
    SY_RETURN_IF_ERROR(Checked(ended, "sending messages"));
    return AwaitIdle();  // the messages are on the stream then
  }

  absl::Status Checked(ncclResult_t result, absl::string_view doing) const {
    if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
    return Lost(absl::StrCat(doing, ": ", nccl_.error_string(result)));
  }
  static absl::Status Lost(absl::string_view why) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     absl::StrCat("exchange between GPUs by messages: ", why));
  }

  // Until NCCL has done what was asked of it in the background. Others may call Abort meanwhile.
  absl::Status AwaitIdle() SY_REQUIRES(mutex_) {
    const auto begin = std::chrono::steady_clock::now();
    while (true) {
      if (aborted_ || comm_ == nullptr) return Lost("the group has been given up");
      ncclResult_t state = ncclSuccess;
      SY_RETURN_IF_ERROR(Checked(nccl_.async_error(comm_, &state), "asking for errors"));
      if (state != ncclInProgress) return Checked(state, "reaching the other ranks");
      const auto now = std::chrono::steady_clock::now();
      if (now - begin >= patience_) {
        return Lost(
            "the ranks have not reached each other in time; look for the one that is "
            "missing, and for a firewall between their hosts");
      }
      if (now - begin >= kSpin) changed_.WaitUntil(mutex_, now + kLook);
    }
  }

  const Nccl nccl_;
  const int ranks_;
  const int rank_;
  const Duration patience_;
  std::string key_;
  Mutex mutex_;
  CondVar changed_;
  ncclComm_t comm_ SY_GUARDED_BY(mutex_) = nullptr;
  bool aborted_ SY_GUARDED_BY(mutex_) = false;
  absl::Status failed_ SY_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<MessageGroup>> MakeNcclGroup(int ranks, int rank,
                                                            const NcclOptions& options) {
  SY_ASSIGN_OR_RETURN(const Nccl nccl, Load(options.library));
  auto group = std::make_unique<NcclGroup>(nccl, ranks, rank, options);
  SY_RETURN_IF_ERROR(group->MakeKey());
  return group;
}

}  // namespace switchyard
