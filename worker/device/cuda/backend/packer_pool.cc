#include "worker/device/cuda/backend/packer_pool.h"

#include <utility>

namespace switchyard {

absl::StatusOr<std::unique_ptr<PackedExpert>> PackerPool::Pack(const MoeShape& shape,
                                                               const ExpertWeightsView& view) {
  std::unique_ptr<ExpertPacker> packer = Take();
  auto packed = packer->Pack(shape, view);
  Give(std::move(packer));
  return packed;
}

std::unique_ptr<ExpertPacker> PackerPool::Take() {
  const MutexLock lock(mutex_);
  while (idle_.empty() && packers_ == kPackersMax) idle_changed_.Wait(mutex_);
  if (idle_.empty()) {
    ++packers_;
    return std::make_unique<ExpertPacker>(fault_, portable_);
  }
  std::unique_ptr<ExpertPacker> packer = std::move(idle_.back());
  idle_.pop_back();
  return packer;
}

void PackerPool::Give(std::unique_ptr<ExpertPacker> packer) {
  {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(packer));
  }
  idle_changed_.NotifyOne();
}

}  // namespace switchyard
