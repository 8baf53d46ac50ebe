#include "tools/deployment/hashed_moe.h"

#include <span>

#include "core/base/status_macros.h"

namespace switchyard::qwen3_moe {

HashedMoe::HashedMoe(MoeProvider& inner)
    : inner_(inner), prefill_(Through(inner.prefill())), decode_(Through(inner.decode())) {}

MoePath HashedMoe::Through(const MoePath& path) {
  return {.run =
              [this, &path](const MoeCall& call) {
                SY_RETURN_IF_ERROR(path.run(call));
                // Only after success: y is undefined after an error.
                hash_.Update(std::as_bytes(call.y));
                return absl::OkStatus();
              },
          .max_tokens = path.max_tokens};
}

}  // namespace switchyard::qwen3_moe
