// Sole owner of a vendor handle (ucp_ep_h, sqlite3*, a file descriptor ...).
//
// Traits: `using Handle = ...; static Handle Invalid(); static void Close(Handle);`. Close logs
// a failure if it must and never throws. Move-only; not thread-safe.
#pragma once

#include <utility>

namespace switchyard {

template <typename Traits>
// Costs what the handle costs: no virtual call, no allocation.
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  // Holds nothing; valid() is false.
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  // Borrows: the handle stays this object's.
  [[nodiscard]] Handle get() const { return handle_; }
  [[nodiscard]] bool valid() const { return handle_ != Traits::Invalid(); }
  // Gives the handle up without closing it.
  Handle release() { return std::exchange(handle_, Traits::Invalid()); }
  // Closes the handle that is held and takes `handle`. The member changes first, so a Close that
  // comes back here cannot close twice.
  void reset(Handle handle = Traits::Invalid()) {
    const Handle old = std::exchange(handle_, handle);
    if (old != Traits::Invalid()) Traits::Close(old);
  }

 private:
  Handle handle_ = Traits::Invalid();
};

}  // namespace switchyard
