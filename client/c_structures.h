// Reads the structures of C callers, and copies texts to them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include "absl/algorithm/container.h"

namespace switchyard {

// The caller's structure as one of this ABI: fields that an older one does not have are 0, those
// that only a later one has are not looked at. `older_sizes` are the sizes of its older forms.
// False for what is none of either.
template <typename T>
bool ReadStructure(const T* object, std::initializer_list<std::uint32_t> older_sizes, T* out) {
  if (object == nullptr || object->abi_version < 1) return false;
  if (object->size < sizeof(T) && !absl::c_linear_search(older_sizes, object->size)) return false;
  *out = T{};
  std::memcpy(out, object, std::min<std::size_t>(object->size, sizeof(T)));
  return true;
}

// Copies as much of the text as fits, and a NUL. Returns the size of all of it with its NUL.
inline std::size_t CopyOut(const std::string& text, char* buffer, std::size_t size) {
  if (buffer != nullptr && size > 0) {
    const std::size_t bytes = std::min(text.size(), size - 1);
    std::memcpy(buffer, text.data(), bytes);
    buffer[bytes] = '\0';
  }
  return text.size() + 1;
}

}  // namespace switchyard
