// Memory that a device hands out.
//
// Buffers belong to the device that made them and are destroyed before it. Their contents are read
// and written by streams, or by the host where the kind allows it (core/memory_kind.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/memory_kind.h"

namespace switchyard {

// Owns its bytes; destruction frees them. The owner first waits for all work that uses it.
class Buffer {
 public:
  // A device's subclass frees the bytes: only it knows how they were allocated.
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // 64-byte aligned. For kDevice an address that only this device's streams may use.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] MemoryKind kind() const { return kind_; }

 protected:
  Buffer(std::byte* data, std::size_t bytes, MemoryKind kind)
      : data_(data), bytes_(bytes), kind_(kind) {}

 private:
  std::byte* data_;
  std::size_t bytes_;
  MemoryKind kind_;
};

// Memory of a device that devices of other processes of its host reach too.
struct SharedBuffer {
  std::unique_ptr<Buffer> buffer;  // kDevice
  // For DeviceBackend::OpenShared. Whoever has it can write there: never logged.
  std::string key;
};

// Host memory of others that a device reaches by itself while this exists. Destroyed before that
// memory is unmapped and before the device, and after all work that uses it.
class HostMapping {
 public:
  virtual ~HostMapping() = default;
};

}  // namespace switchyard
