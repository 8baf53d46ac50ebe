#include "core/dispatch_config.h"

namespace switchyard {

WireFormat DispatchConfig::format() const {
  for (const NamedWireFormat& row : WireFormats()) {
    if (row.format.dtype == wire_dtype && row.format.scale == wire_scale) return row.format;
  }
  // No row of the table has kNone with a quantized dtype: the default format then, as the header
  // says.
  return DefaultWireFormat(wire_dtype);
}

}  // namespace switchyard
