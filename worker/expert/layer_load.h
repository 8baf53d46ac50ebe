// Counts the rows that each slot of a layer serves, for whoever shows the load of a worker.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace switchyard {

// Who counts. Each has counters of its own, so that counting takes no lock and no atomic addition.
enum class LoadLane : std::uint8_t { kAttached = 0, kDirect = 1, kGroups = 2 };

// One caller of Add for each lane at a time; Rows may be called by any thread meanwhile. Counters
// wrap around: compare readings by subtraction.
class LayerLoad {
 public:
  explicit LayerLoad(std::size_t slots) : slots_(slots) {
    for (auto& lane : rows_) lane = std::make_unique<std::atomic<std::uint32_t>[]>(slots);
  }

  void Add(LoadLane lane, std::size_t slot, std::uint32_t rows) {
    std::atomic<std::uint32_t>& counter = rows_[static_cast<std::size_t>(lane)][slot];
    // Relaxed: nothing is published through it.
    counter.store(counter.load(std::memory_order_relaxed) + rows, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t Rows(std::size_t slot) const {
    std::uint32_t rows = 0;
    for (const auto& lane : rows_) rows += lane[slot].load(std::memory_order_relaxed);
    return rows;
  }
  // A lane's counters by slot, for a device that counts as Add does.
  [[nodiscard]] std::atomic<std::uint32_t>* Counters(LoadLane lane) const {
    return rows_[static_cast<std::size_t>(lane)].get();
  }
  [[nodiscard]] std::size_t slots() const { return slots_; }

 private:
  const std::size_t slots_;
  std::array<std::unique_ptr<std::atomic<std::uint32_t>[]>, 3> rows_;  // by lane
};

}  // namespace switchyard
