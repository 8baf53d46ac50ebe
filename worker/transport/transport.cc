#include "worker/transport/transport.h"

#include "core/base/check.h"

namespace switchyard {

absl::string_view LinkPathName(LinkPath path) {
  switch (path) {
    case LinkPath::kNone:
      return "none";
    case LinkPath::kMapped:
      return "mapped";
    case LinkPath::kMessages:
      return "messages";
    case LinkPath::kInProcess:
      return "inproc";
  }
  SY_UNREACHABLE("a link path that is none");
}

}  // namespace switchyard
