#include "core/dispatch_config.h"

namespace switchyard {

WireFormat DispatchConfig::format() const {
  for (const NamedWireFormat& row : WireFormats()) {
    if (row.format.dtype == wire_dtype && row.format.scale == wire_scale) return row.format;
  }
  return DefaultWireFormat(wire_dtype);
}

}  // namespace switchyard
