#include "worker/transport/transport.h"

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
  return "unknown";
}

}  // namespace switchyard
