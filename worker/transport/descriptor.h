// Sole owner of a file descriptor.
#pragma once

#include "core/base/unique_handle.h"

namespace switchyard {

struct DescriptorTraits {
  using Handle = int;
  static Handle Invalid() { return -1; }
  static void Close(Handle descriptor);
};
using Descriptor = UniqueHandle<DescriptorTraits>;

}  // namespace switchyard
