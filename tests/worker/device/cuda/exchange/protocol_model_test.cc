// A model of how ranks share memory in low_latency_dispatch.cu and low_latency_combine.cu: what
// their threads store, wait for and make poison again, with every order of threads and of the
// arrival of stores that chance gives. No GPU takes part. The rules hold in all of many runs, and
// each rule that is left out is noticed.
//
// A kernel's threads run in any order. A store arrives at any time, at the latest when its kernel
// ends; the next kernel of a rank begins then. A value is the number of its step.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

constexpr int kRanks = 3;
constexpr int kTokens = 3;  // of a rank at most
constexpr int kSteps = 7;
constexpr int kBuffersMax = 3;
constexpr int kPoison = -1;
constexpr int kTurnsMax = 60'000;

// A rule of the kernels that a run leaves out.
enum class Broken {
  kNothing,
  kHeaderOfNoTokens,  // a rank may be any number of steps ahead
  kThirdBuffer,       // there are two
  kPoisonRows,        // those of the step before stay
  kPoisonAnswers,     // they stay after they were read
  kCoverOfBefore,     // as many rows are made poison as this step covers, not the one before
  kTagOfTable,        // an entry of any step counts
  kNumberOfTokens,    // a table is waited for although its source has no such token
};

// The part of each rank in a step, which all of them know.
struct StepPlan {
  int cover = 0;
  std::array<int, kRanks> tokens{};
  std::array<std::array<unsigned, kTokens>, kRanks> wants{};  // ranks that have a token's experts
};

struct Header {
  int step = kPoison;
  int tokens = 0;
};
struct Entry {
  int step = kPoison;
  unsigned wants = 0;
};
struct Memory {
  Header headers[kBuffersMax][kRanks];
  Entry table[kBuffersMax][kRanks][kTokens];
  int rows[kBuffersMax][kRanks][kTokens];
  int answers[kBuffersMax][kRanks][kTokens];
  Memory() {
    for (auto* cells : {&rows, &answers}) {
      for (auto& buffer : *cells) {
        for (auto& of_rank : buffer) std::fill(std::begin(of_rank), std::end(of_rank), kPoison);
      }
    }
  }
};

class Model {
 public:
  Model(Broken broken, std::uint64_t seed)
      : broken_(broken), buffers_(broken == Broken::kThirdBuffer ? 2 : 3), rng_(seed) {
    for (StepPlan& plan : plans_) {
      plan.cover = 1 + Draw(kTokens);
      for (int r = 0; r < kRanks; ++r) {
        plan.tokens[At(r)] = Draw(plan.cover + 1);
        // Often for one rank only, so that the others have no reason to wait.
        for (unsigned& wants : plan.wants[At(r)]) wants = static_cast<unsigned>(Draw(1 << kRanks));
      }
    }
    for (int r = 0; r < kRanks; ++r) Begin(r);
  }

  // Why the run is wrong; nothing if all ranks ended all steps with the right values.
  std::optional<std::string> Run() {
    for (int turn = 0; turn < kTurnsMax; ++turn) {
      if (turn % 16 == 0) favorite_ = Draw(kRanks + 1);
      const int rank = favorite_ < kRanks && Draw(4) > 0 ? favorite_ : Draw(kRanks);
      Turn(rank);
      if (wrong_.has_value()) return wrong_;
      bool ended = true;
      for (const Rank& one : ranks_) ended = ended && one.step == kSteps;
      if (ended) return std::nullopt;
    }
    return "ranks wait for ever";
  }

 private:
  enum class Kernel { kDispatch, kCombine };
  // A thread does one thing in a turn, and then the next one, or waits. `done` when it has ended.
  struct Thread {
    int token = -1;  // the first: -1 makes the lists
    int stage = 0;
    unsigned awaited = 0;
    bool done = false;
  };
  struct Store {
    int* to = nullptr;
    int value = 0;
    Header* header = nullptr;
    Header of_header{};
    Entry* entry = nullptr;
    Entry of_entry{};
    void Arrive() const {
      if (to != nullptr) *to = value;
      if (header != nullptr) *header = of_header;
      if (entry != nullptr) *entry = of_entry;
    }
  };
  struct Rank {
    Memory memory;
    Kernel kernel = Kernel::kDispatch;
    int step = 0;
    std::array<int, kBuffersMax> covered{};
    std::vector<Thread> threads;
    std::vector<Store> stores;  // of the running kernel, not arrived yet
  };

  static std::size_t At(int i) { return static_cast<std::size_t>(i); }
  int Draw(int below) { return static_cast<int>(rng_.Next() % static_cast<std::uint64_t>(below)); }
  const StepPlan& Plan(int rank) const { return plans_[At(ranks_[At(rank)].step)]; }
  int Buffer(int rank) const { return ranks_[At(rank)].step % buffers_; }
  int Before(int rank) const { return (ranks_[At(rank)].step + buffers_ - 1) % buffers_; }

  void Begin(int rank) {
    Rank& own = ranks_[At(rank)];
    own.threads.clear();
    if (own.step == kSteps) return;
    if (own.kernel == Kernel::kDispatch) own.threads.push_back({});
    for (int t = 0; t < Plan(rank).cover; ++t) own.threads.push_back({.token = t});
  }

  void Turn(int rank) {
    Rank& own = ranks_[At(rank)];
    if (own.step == kSteps) return;
    if (!own.stores.empty() && Draw(3) == 0) {
      const std::size_t one = At(Draw(static_cast<int>(own.stores.size())));
      own.stores[one].Arrive();
      own.stores.erase(own.stores.begin() + static_cast<std::ptrdiff_t>(one));
      return;
    }
    Thread& thread = own.threads[At(Draw(static_cast<int>(own.threads.size())))];
    if (!thread.done) Do(rank, thread);
    bool ended = true;
    for (const Thread& one : own.threads) ended = ended && one.done;
    if (ended) End(rank);
  }

  void Do(int rank, Thread& thread) {
    if (ranks_[At(rank)].kernel == Kernel::kCombine) {
      Combine(rank, thread);
    } else if (thread.token < 0) {
      MakeLists(rank, thread);
    } else {
      MoveRows(rank, thread);
    }
  }

  void End(int rank) {
    Rank& own = ranks_[At(rank)];
    for (const Store& store : own.stores) store.Arrive();
    own.stores.clear();
    if (own.kernel == Kernel::kDispatch) {
      own.covered[At(Buffer(rank))] = Plan(rank).cover;
      CheckRows(rank);
      own.kernel = Kernel::kCombine;
    } else {
      own.kernel = Kernel::kDispatch;
      ++own.step;
    }
    Begin(rank);
  }

  bool IsSilent(int rank, int source) const {
    return broken_ == Broken::kHeaderOfNoTokens && Plan(rank).tokens[At(source)] == 0;
  }

  // The experts read what has landed.
  void CheckRows(int rank) {
    const Rank& own = ranks_[At(rank)];
    for (int source = 0; source < kRanks; ++source) {
      for (int t = 0; t < Plan(rank).tokens[At(source)]; ++t) {
        if ((Plan(rank).wants[At(source)][At(t)] >> rank & 1U) == 0) continue;
        const int found = own.memory.rows[Buffer(rank)][source][t];
        if (found != own.step) Say(rank, "experts read a row of step ", found);
      }
    }
  }

  void MakeLists(int rank, Thread& thread) {
    Rank& own = ranks_[At(rank)];
    const StepPlan& plan = Plan(rank);
    if (thread.stage == 0) {
      for (Rank& to : ranks_) {
        if (IsSilent(rank, rank)) break;
        own.stores.push_back({.header = &to.memory.headers[Buffer(rank)][rank],
                              .of_header = {own.step, plan.tokens[At(rank)]}});
        for (int t = 0; t < plan.tokens[At(rank)]; ++t) {
          own.stores.push_back({.entry = &to.memory.table[Buffer(rank)][rank][t],
                                .of_entry = {own.step, plan.wants[At(rank)][At(t)]}});
        }
      }
      thread.stage = 1;
      return;
    }
    for (int source = 0; source < kRanks; ++source) {
      const Header& header = own.memory.headers[Buffer(rank)][source];
      if (!IsSilent(rank, source) && header.step != own.step) return;
      for (int t = 0; header.step == own.step && t < header.tokens; ++t) {
        if (own.memory.table[Buffer(rank)][source][t].step != own.step) return;
      }
    }
    thread.done = true;
  }

  void MoveRows(int rank, Thread& thread) {
    Rank& own = ranks_[At(rank)];
    const StepPlan& plan = Plan(rank);
    const int token = thread.token;
    if (thread.stage == 0) {
      for (int to = 0; token < plan.tokens[At(rank)] && to < kRanks; ++to) {
        if ((plan.wants[At(rank)][At(token)] >> to & 1U) == 0) continue;
        own.stores.push_back(
            {.to = &ranks_[At(to)].memory.rows[Buffer(rank)][rank][token], .value = own.step});
      }
    } else if (thread.stage == 1) {
      Poison(rank, token);
    } else if (thread.stage == 2) {
      if (!FindSources(rank, thread)) return;
    } else {
      for (int source = 0; source < kRanks; ++source) {
        if ((thread.awaited >> source & 1U) == 0) continue;
        const int found = own.memory.rows[Buffer(rank)][source][token];
        if (found == kPoison) return;
        if (found != own.step) Say(rank, "takes a row of step ", found);
      }
      thread.done = true;
    }
    ++thread.stage;
  }

  void Poison(int rank, int first) {
    if (broken_ == Broken::kPoisonRows) return;
    Rank& own = ranks_[At(rank)];
    const int cover = Plan(rank).cover;
    const int left = broken_ == Broken::kCoverOfBefore ? cover : own.covered[At(Before(rank))];
    for (int t = first; t < left; t += cover) {
      for (int source = 0; source < kRanks; ++source) {
        if (source == rank) continue;
        own.stores.push_back({.to = &own.memory.rows[Before(rank)][source][t], .value = kPoison});
      }
    }
  }

  // False: the table of a source is not there yet.
  bool FindSources(int rank, Thread& thread) {
    const Rank& own = ranks_[At(rank)];
    for (int source = 0; source < kRanks; ++source) {
      if (source == rank || IsSilent(rank, source)) continue;
      const Entry& entry = own.memory.table[Buffer(rank)][source][thread.token];
      const Header& header = own.memory.headers[Buffer(rank)][source];
      const bool known =
          entry.step == own.step || (broken_ == Broken::kTagOfTable && entry.step != kPoison);
      const bool absent = broken_ != Broken::kNumberOfTokens && header.step == own.step &&
                          thread.token >= header.tokens;
      if (!known && !absent) return false;
      if (known && (entry.wants >> rank & 1U) != 0) thread.awaited |= 1U << source;
    }
    return true;
  }

  void Combine(int rank, Thread& thread) {
    Rank& own = ranks_[At(rank)];
    const StepPlan& plan = Plan(rank);
    const int token = thread.token;
    if (thread.stage == 0) {
      for (int source = 0; source < kRanks; ++source) {
        const bool wanted = source != rank && token < plan.tokens[At(source)] &&
                            (plan.wants[At(source)][At(token)] >> rank & 1U) != 0;
        if (!wanted) continue;
        own.stores.push_back({.to = &ranks_[At(source)].memory.answers[Buffer(rank)][rank][token],
                              .value = own.step});
      }
      thread.stage = 1;
      return;
    }
    const bool is_own = token < plan.tokens[At(rank)];
    const unsigned wants = is_own ? plan.wants[At(rank)][At(token)] & ~(1U << rank) : 0;
    for (int from = 0; from < kRanks; ++from) {
      if ((wants >> from & 1U) == 0) continue;
      const int found = own.memory.answers[Buffer(rank)][from][token];
      if (found == kPoison) return;
      if (found != own.step) Say(rank, "takes an answer of step ", found);
    }
    for (int from = 0; from < kRanks && broken_ != Broken::kPoisonAnswers; ++from) {
      if ((wants >> from & 1U) == 0) continue;
      own.stores.push_back(
          {.to = &own.memory.answers[Buffer(rank)][from][token], .value = kPoison});
    }
    thread.done = true;
  }

  void Say(int rank, const char* what, int step) {
    wrong_ = "rank " + std::to_string(rank) + " in step " + std::to_string(ranks_[At(rank)].step) +
             " " + what + std::to_string(step);
  }

  const Broken broken_;
  const int buffers_;
  SeededRng rng_;
  std::array<StepPlan, kSteps> plans_;
  std::array<Rank, kRanks> ranks_;
  int favorite_ = 0;  // runs most of the turns for a while
  std::optional<std::string> wrong_;
};

TEST(ExchangeModelTest, EveryOrderGivesEveryRankTheRowsOfItsStep) {
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    const std::optional<std::string> wrong = Model(Broken::kNothing, seed).Run();
    ASSERT_FALSE(wrong.has_value()) << "seed " << seed << ": " << *wrong;
  }
}

class BrokenExchangeTest : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenExchangeTest, IsNoticed) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    if (Model(GetParam(), seed).Run().has_value()) return;
  }
  FAIL() << "3000 runs were right";
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenExchangeTest,
                         ::testing::Values(Broken::kHeaderOfNoTokens, Broken::kThirdBuffer,
                                           Broken::kPoisonRows, Broken::kPoisonAnswers,
                                           Broken::kCoverOfBefore, Broken::kTagOfTable,
                                           Broken::kNumberOfTokens));

}  // namespace
}  // namespace switchyard
