#include "worker/transport/ucx/ring.h"

#include <atomic>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/error.h"
#include "core/status_macros.h"
#include "worker/transport/ucx/context.h"
#include "worker/transport/ucx/sealed_blob.h"

namespace switchyard {
namespace {

absl::Status NoMemory(std::size_t bytes, absl::string_view why) {
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                   absl::StrCat("transport: no memory for a ring of ", bytes, " bytes (", why,
                                "); use fewer or smaller slots, or raise the memory limit"));
}

}  // namespace

absl::StatusOr<UcxRing> UcxRing::Allocate(ucp_context_h context, Kind kind, std::size_t bytes,
                                          std::uint64_t tag) {
  UcxRing ring;
  if (kind == Kind::kMapped) {
    SY_RETURN_IF_ERROR(ring.AllocateMapped(context, bytes, tag));
  } else {
    SY_RETURN_IF_ERROR(ring.AllocatePlain(bytes));
  }
  return ring;
}

absl::Status UcxRing::AllocateMapped(ucp_context_h context, std::size_t bytes, std::uint64_t tag) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucs_status_t status = ucp_mem_map(context, &params, &handle_);
  if (status != UCS_OK) {
    handle_ = nullptr;
    return NoMemory(bytes, ucs_status_string(status));
  }
  context_ = context;

  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  status = ucp_mem_query(handle_, &attributes);
  if (status != UCS_OK) return UcxError("asking where a ring is", status);
  memory_ = {static_cast<std::byte*>(attributes.address), bytes};
  // Pages come now, so that no step pays for them and a lack of memory shows at attach.
  std::memset(memory_.data(), 0, memory_.size());
  std::memcpy(memory_.data(), &tag, sizeof(tag));

  void* packed = nullptr;
  std::size_t packed_bytes = 0;
  status = ucp_rkey_pack(context, handle_, &packed, &packed_bytes);
  if (status != UCS_OK) return UcxError("packing a ring's rkey", status);
  std::string blob(sizeof(tag) + packed_bytes, '\0');
  std::memcpy(blob.data(), &tag, sizeof(tag));
  std::memcpy(blob.data() + sizeof(tag), packed, packed_bytes);
  ucp_rkey_buffer_release(packed);
  rkey_ = SealBlob(BlobKind::kRkey, blob);
  return absl::OkStatus();
}

absl::Status UcxRing::AllocatePlain(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return NoMemory(bytes, "mmap");
  memory_ = {static_cast<std::byte*>(memory), bytes};
  return absl::OkStatus();
}

void UcxRing::Free() {
  if (handle_ != nullptr) {
    ucp_mem_unmap(context_, handle_);
  } else if (!memory_.empty()) {
    ::munmap(memory_.data(), memory_.size());
  }
  handle_ = nullptr;
  memory_ = {};
  rkey_.clear();
}

UcxRing::UcxRing(UcxRing&& other) noexcept { *this = std::move(other); }

UcxRing& UcxRing::operator=(UcxRing&& other) noexcept {
  if (this != &other) {
    Free();
    context_ = std::exchange(other.context_, nullptr);
    handle_ = std::exchange(other.handle_, nullptr);
    memory_ = std::exchange(other.memory_, {});
    rkey_ = std::exchange(other.rkey_, {});
  }
  return *this;
}

absl::StatusOr<UcxPeerRing> UcxPeerRing::Map(ucp_ep_h endpoint, absl::string_view rkey,
                                             std::uint64_t address, std::size_t bytes) {
  std::uint64_t tag = 0;
  const std::optional<absl::string_view> blob = OpenBlob(BlobKind::kRkey, rkey);
  if (!blob.has_value() || blob->size() <= sizeof(tag) || bytes < sizeof(tag)) {
    return UcxError("reading the peer's rkey (not one of ours)", UCS_ERR_INVALID_PARAM);
  }
  std::memcpy(&tag, blob->data(), sizeof(tag));

  UcxPeerRing ring;
  ucs_status_t status = ucp_ep_rkey_unpack(endpoint, blob->data() + sizeof(tag), &ring.rkey_);
  if (status != UCS_OK) {
    ring.rkey_ = nullptr;
    return UcxError("unpacking the peer's rkey", status);
  }
  void* local = nullptr;
  status = ucp_rkey_ptr(ring.rkey_, address, &local);
  if (status != UCS_OK) return UcxError("mapping the peer's ring", status);
  ring.memory_ = {static_cast<std::byte*>(local), bytes};

  if (std::memcmp(local, &tag, sizeof(tag)) != 0) {
    return UcxError("mapping the peer's ring gave other memory", UCS_ERR_INVALID_ADDR);
  }
  // The first look at each page makes its entry in this process; better here than in a step.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) {
    static_cast<void>(std::atomic_ref(ring.memory_[at]).load(std::memory_order_relaxed));
  }
  return ring;
}

void UcxPeerRing::Unmap() {
  if (rkey_ != nullptr) ucp_rkey_destroy(rkey_);
  rkey_ = nullptr;
  memory_ = {};
}

UcxPeerRing::UcxPeerRing(UcxPeerRing&& other) noexcept { *this = std::move(other); }

UcxPeerRing& UcxPeerRing::operator=(UcxPeerRing&& other) noexcept {
  if (this != &other) {
    Unmap();
    rkey_ = std::exchange(other.rkey_, nullptr);
    memory_ = std::exchange(other.memory_, {});
  }
  return *this;
}

}  // namespace switchyard
