// Remembers what was read of checkpoints, so that a dry run with hashes, an apply and an apply
// under another name read the same weights once. For the life of a process.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "coordinator/checkpoints/model_loader.h"
#include "coordinator/spec/deployment.h"
#include "core/base/mutex.h"

namespace switchyard {

// Changes when a file of the checkpoint may have: names, sizes, inodes and the times of content and
// inode of everything in its folder; of a synthetic model, its text. Empty: it must not be trusted,
// because the folder cannot be read, or something in it changed in the last two seconds, in which
// the file system's clock may show no further change.
std::string CheckpointIdentity(absl::string_view checkpoint);

// Thread-safe; copies share what they remember.
class RememberingLoader {
 public:
  // Remembers the newest `max`: a few megabytes each for the largest models.
  explicit RememberingLoader(ModelLoader load, std::size_t max = 16);

  // A ModelLoader. Whoever asks for a checkpoint while another thread reads it reads it too.
  absl::StatusOr<ModelFacts> operator()(const std::string& checkpoint,
                                        const ManifestProgress& progress);

 private:
  struct Entry {
    std::string checkpoint;
    std::string identity;
    ModelFacts facts;
  };
  struct Shared {
    Mutex mutex;
    std::deque<Entry> entries SY_GUARDED_BY(mutex);  // oldest first
  };
  const ModelLoader load_;
  const std::size_t max_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace switchyard
