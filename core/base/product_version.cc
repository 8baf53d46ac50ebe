#include "core/base/product_version.h"

namespace switchyard {

const char* const kProductVersion = SWITCHYARD_VERSION;

}  // namespace switchyard
