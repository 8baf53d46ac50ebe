#include "worker/device/host/aligned_buffer.h"

#include <new>
#include <sys/mman.h>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;
constexpr std::int64_t kPageBytes = 4096;
constexpr std::align_val_t kLine{64};

std::int64_t RoundUp(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

std::size_t MappedBytes(std::int64_t bytes) {
  return static_cast<std::size_t>(RoundUp(bytes, kPageBytes));
}

// Maps one huge page more than requested and unmaps the parts outside the aligned range. The tail
// that does not fill a huge page stays on small pages, so nothing is wasted.
std::byte* MapHuge(std::int64_t bytes) {
  const std::size_t want = MappedBytes(bytes);
  const std::size_t span = want + kHugePageBytes;
  void* raw = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::size_t head =
      (kHugePageBytes - address % kHugePageBytes) % static_cast<std::size_t>(kHugePageBytes);
  // munmap of 0 bytes is an error.
  if (head > 0) munmap(base, head);
  munmap(base + head + want, span - head - want);
  // Refused where huge pages are switched off; then small ones serve.
  (void)madvise(base + head, want, MADV_HUGEPAGE);
  return base + head;
}

}  // namespace

absl::StatusOr<AlignedBuffer> AlignedBuffer::Allocate(std::int64_t bytes) {
  void* data = nullptr;
  if (bytes >= kHugePageBytes) {
    data = MapHuge(bytes);
  } else {
    data = ::operator new(static_cast<std::size_t>(RoundUp(bytes, 64)), kLine, std::nothrow);
  }
  if (data == nullptr) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
        absl::StrCat("no memory for ", bytes, " bytes; place fewer experts here or add memory"),
        {{"bytes", absl::StrCat(bytes)}});
  }
  return AlignedBuffer(static_cast<std::byte*>(data), bytes);
}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    Free();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void AlignedBuffer::Free() {
  if (data_ == nullptr) return;
  if (bytes_ >= kHugePageBytes) {
    munmap(data_, MappedBytes(bytes_));
  } else {
    ::operator delete(data_, kLine);
  }
  data_ = nullptr;
}

}  // namespace switchyard
