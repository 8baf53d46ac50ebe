#include "tests/testing/allocation_counter.h"

#include <cstdlib>
#include <new>

namespace switchyard::testing {
namespace {

thread_local std::uint64_t allocations = 0;

}  // namespace

std::uint64_t AllocationsOfThisThread() { return allocations; }

void* CountedAllocation(std::size_t size, std::size_t alignment) {
  ++allocations;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* CountedAllocationOrAbort(std::size_t size, std::size_t alignment) {
  void* memory = CountedAllocation(size, alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace switchyard::testing

void* operator new(std::size_t size) {
  return switchyard::testing::CountedAllocationOrAbort(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return switchyard::testing::CountedAllocationOrAbort(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return switchyard::testing::CountedAllocation(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return switchyard::testing::CountedAllocation(size, static_cast<std::size_t>(alignment));
}
// The C++ library implements these by the functions above; AddressSanitizer brings its own. All are
// replaced, because what one allocates the other must not free.
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return switchyard::testing::CountedAllocation(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new[](std::size_t size) {
  return switchyard::testing::CountedAllocationOrAbort(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}
