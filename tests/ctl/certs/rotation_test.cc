#include "ctl/certs/rotation.h"

#include <ctime>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "ctl/certs/certs.h"
#include "ctl/certs/secret_file.h"
#include "ctl/syctl.h"
#include "services/config/security_files.h"
#include "services/security/certificate.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::ReadBytes;
using switchyard::testing::TempDir;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kDay = 86400;
const char* const kRoles[] = {"coordinator", "worker", "source", "operator", "observer"};

// Path -> content, of all files below a folder.
using Files = std::map<std::string, std::string>;

class RotationTest : public ::testing::Test {
 protected:
  RotationTest() {
    options_.dir = dir_.Join("certs");
    options_.trust_domain = "moe.example";
  }
  [[nodiscard]] std::string PathOf(absl::string_view file) const {
    return absl::StrCat(options_.dir, "/", file);
  }
  [[nodiscard]] std::string Read(absl::string_view file) const { return ReadBytes(PathOf(file)); }
  [[nodiscard]] Files AllFiles() const {
    Files files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.dir)) {
      if (entry.is_regular_file()) files[entry.path().string()] = ReadBytes(entry.path().string());
    }
    return files;
  }
  void Restore(const Files& files) const {
    std::filesystem::remove_all(options_.dir);
    for (const auto& [path, content] : files) {
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
      dir_.Write(path.substr(dir_.path().size() + 1), content);
    }
  }
  CertificatesReport Ensure() {
    auto report = EnsureCertificates(options_, now_s_);
    SY_EXPECT_OK(report.status());
    return report.ok() ? *std::move(report) : CertificatesReport{};
  }
  CertificatesReport EnsureAfter(std::int64_t seconds) {
    now_s_ += seconds;
    return Ensure();
  }
  // The first state, then the announcement of another authority.
  void Begin() {
    Ensure();
    options_.rotate_authority = "a";
    ASSERT_EQ(Ensure().rotation.phase, AuthorityPhase::kAnnounced);
  }
  // Whether who has this bundle lets in whoever has this certificate.
  static bool Trusts(const std::string& bundle, const std::string& certificate) {
    return CheckChain({bundle, certificate, ""}, {}).ok();
  }

  TempDir dir_;
  CertsOptions options_;
  std::int64_t now_s_ = std::time(nullptr);
};

TEST_F(RotationTest, GoesOnePhaseOnAtATime) {
  Ensure();
  const std::string old_ca = Read("authority/ca.crt");
  const std::string old_leaf = Read("worker/tls.crt");
  options_.rotate_authority = "2027-01";

  CertificatesReport report = Ensure();
  EXPECT_EQ(report.rotation.phase, AuthorityPhase::kAnnounced);
  EXPECT_THAT(report.rows, Each(Field(&CertificateRow::what, "kept")));
  const std::string new_ca = Read("authority/next.crt");
  const std::string new_key = Read("authority/next.key");
  for (const char* role : kRoles) {
    EXPECT_EQ(Read(absl::StrCat(role, "/ca.crt")), old_ca + new_ca) << role;
  }

  report = EnsureAfter(kPhaseSeconds);
  EXPECT_EQ(report.rotation.phase, AuthorityPhase::kSwitched);
  EXPECT_THAT(report.rows, Each(Field(&CertificateRow::what, "renewed")));
  EXPECT_EQ(Read("authority/ca.crt"), new_ca);
  EXPECT_EQ(Read("authority/ca.key"), new_key);
  const std::string new_leaf = Read("worker/tls.crt");
  SY_EXPECT_OK(CheckIssuer(new_leaf, new_ca));
  for (const char* role : kRoles) {
    EXPECT_EQ(Read(absl::StrCat(role, "/ca.crt")), old_ca + new_ca) << role;
    SY_EXPECT_OK(OpenSecurity(PathOf(role), nullptr).status());
  }
  for (const char* gone : {"authority/next.crt", "authority/next.key"}) {
    EXPECT_FALSE(std::filesystem::exists(PathOf(gone))) << gone;
  }

  report = EnsureAfter(kPhaseSeconds);
  EXPECT_EQ(report.rotation.phase, AuthorityPhase::kSettled);
  EXPECT_THAT(report.rows, Each(Field(&CertificateRow::what, "kept")));
  for (const char* role : kRoles) EXPECT_EQ(Read(absl::StrCat(role, "/ca.crt")), new_ca) << role;
  EXPECT_TRUE(Trusts(Read("coordinator/ca.crt"), new_leaf));
  EXPECT_FALSE(Trusts(Read("coordinator/ca.crt"), old_leaf));
}

TEST_F(RotationTest, ASecondRunInAPhaseChangesNothing) {
  Begin();
  for (const AuthorityPhase phase :
       {AuthorityPhase::kAnnounced, AuthorityPhase::kSwitched, AuthorityPhase::kSettled}) {
    const Files files = AllFiles();
    const CertificatesReport report = EnsureAfter(kPhaseSeconds - 1);
    EXPECT_EQ(report.rotation.phase, phase);
    EXPECT_EQ(AllFiles(), files) << PhaseName(phase);
    EnsureAfter(1);
  }
  const Files files = AllFiles();
  EnsureAfter(kDay);
  EXPECT_EQ(AllFiles(), files) << "one word begins one rotation";
  options_.rotate_authority.clear();
  EXPECT_EQ(Ensure().rotation.phase, AuthorityPhase::kSettled);
  options_.rotate_authority = "b";
  EXPECT_EQ(Ensure().rotation.phase, AuthorityPhase::kAnnounced);
}

// A rotation goes on without its word, and takes no other one along.
TEST_F(RotationTest, AnotherWordBeginsTheNextRotationOnceThisOneHasSettled) {
  Begin();
  options_.rotate_authority.clear();
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kSwitched);
  options_.rotate_authority = "b";
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kSettled);
  const CertificatesReport report = EnsureAfter(1);
  EXPECT_EQ(report.rotation.phase, AuthorityPhase::kAnnounced);
  EXPECT_EQ(report.rotation.words, (std::vector<std::string>{"a", "b"}));
}

// As when a file in a repository still has the word of before.
TEST_F(RotationTest, AWordBeginsOneRotationAlsoAfterAnotherOne) {
  Begin();
  for (const char* word : {"a", "a", "b", "b", "b"}) {
    options_.rotate_authority = word;
    EnsureAfter(kPhaseSeconds);
  }
  options_.rotate_authority = "a";
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kSettled);
  for (std::size_t i = 0; i <= kWordsMax; ++i) {
    options_.rotate_authority = absl::StrCat("word-", i);
    for (int phase = 0; phase < 3; ++phase) EnsureAfter(kPhaseSeconds);
  }
  EXPECT_EQ(Ensure().rotation.words.size(), kWordsMax);
}

TEST_F(RotationTest, ANewAuthorityTakesTheWordAndIsNotReplaced) {
  options_.rotate_authority = "a";
  EXPECT_EQ(Ensure().rotation.phase, AuthorityPhase::kSettled);
  EXPECT_EQ(EnsureAfter(kDay).rotation.phase, AuthorityPhase::kSettled);
}

TEST_F(RotationTest, BeginsByItselfWhenAThirdOfTheAuthoritysLifeIsLeft) {
  options_.authority_days = 300;
  Ensure();
  EXPECT_EQ(EnsureAfter(199 * kDay).rotation.phase, AuthorityPhase::kSettled);
  const CertificatesReport report = EnsureAfter(2 * kDay);
  EXPECT_EQ(report.rotation.phase, AuthorityPhase::kAnnounced);
  EXPECT_TRUE(report.rotation.words.empty());
}

// Nobody has a valid certificate, so that there is nothing to wait for.
TEST_F(RotationTest, AnExpiredAuthorityIsSwitchedAtOnce) {
  options_.authority_days = 300;
  Ensure();
  const std::string old_ca = Read("authority/ca.crt");
  const CertificatesReport report = EnsureAfter(301 * kDay);
  EXPECT_EQ(report.rotation.phase, AuthorityPhase::kSwitched);
  EXPECT_THAT(report.rows, Each(Field(&CertificateRow::what, "renewed")));
  for (const char* role : kRoles) SY_EXPECT_OK(OpenSecurity(PathOf(role), nullptr).status());
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kSettled);
  EXPECT_NE(Read("worker/ca.crt"), old_ca);
}

TEST_F(RotationTest, AnAnnouncedOneIsSwitchedWhenTheCurrentOneExpires) {
  options_.authority_days = 300;
  Begin();
  dir_.Write("certs/observer/ca.crt", Read("authority/ca.crt"));
  EXPECT_EQ(EnsureAfter(301 * kDay).rotation.phase, AuthorityPhase::kSwitched);
}

// Each of them would otherwise meet peers that do not know its authority yet.
TEST_F(RotationTest, WaitsAnewForWhoDidNotHaveThePhasesFiles) {
  Begin();
  const std::string old_ca = Read("authority/ca.crt");
  const std::string old_leaf = Read("worker/tls.crt");
  const std::string old_key = Read("worker/tls.key");
  dir_.Write("certs/observer/ca.crt", old_ca);
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kAnnounced);
  EXPECT_EQ(Read("observer/ca.crt"), old_ca + Read("authority/next.crt"));
  // One whose files are gone; a folder that has never been there has no processes.
  options_.also = {"late:source", "new:source"};
  std::filesystem::create_directory(PathOf("late"));
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kAnnounced);
  EXPECT_EQ(EnsureAfter(kPhaseSeconds - 1).rotation.phase, AuthorityPhase::kAnnounced);
  options_.also.emplace_back("newer:source");
  EXPECT_EQ(EnsureAfter(1).rotation.phase, AuthorityPhase::kSwitched);

  dir_.Write("certs/worker/tls.crt", old_leaf);
  dir_.Write("certs/worker/tls.key", old_key);
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kSwitched);
  SY_EXPECT_OK(CheckIssuer(Read("worker/tls.crt"), Read("authority/ca.crt")));
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kSettled);
}

TEST_F(RotationTest, AClockThatWentBackStartsTheWaitAnew) {
  Begin();
  const CertificatesReport report = EnsureAfter(-kDay);
  EXPECT_EQ(report.rotation.since_s, now_s_);
  EXPECT_EQ(EnsureAfter(kPhaseSeconds).rotation.phase, AuthorityPhase::kSwitched);
}

TEST_F(RotationTest, AuthoritiesOfOthersStay) {
  Ensure();
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate other, MakeAuthority("other", 10));
  std::string no_newline = other.certificate;
  no_newline.pop_back();
  dir_.Write("certs/worker/ca.crt", absl::StrCat(Read("authority/ca.crt"), no_newline));
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate leaf,
                          IssueCertificate(other, "spiffe://moe.example/x", 10));
  options_.rotate_authority = "a";
  for (int phase = 0; phase < 3; ++phase) {
    Ensure();
    EXPECT_TRUE(Trusts(Read("worker/ca.crt"), leaf.certificate)) << phase;
    EXPECT_TRUE(Trusts(Read("worker/ca.crt"), Read("source/tls.crt"))) << phase;
    EXPECT_FALSE(Trusts(Read("source/ca.crt"), leaf.certificate)) << phase;
    now_s_ += kPhaseSeconds;
  }
  EXPECT_EQ(Read("worker/ca.crt"), absl::StrCat(other.certificate, Read("authority/ca.crt")));
}

// An engine that only the first run named.
TEST_F(RotationTest, FoldersThatAreThereTakePart) {
  options_.also = {"engine-a:source"};
  Ensure();
  options_.also.clear();
  options_.rotate_authority = "a";
  Ensure();
  EXPECT_THAT(Read("engine-a/ca.crt"), HasSubstr(Read("authority/next.crt")));
  EnsureAfter(kPhaseSeconds);
  EnsureAfter(kPhaseSeconds);
  SY_EXPECT_OK(CheckIssuer(Read("engine-a/tls.crt"), Read("authority/ca.crt")));
  EXPECT_EQ(Read("engine-a/ca.crt"), Read("authority/ca.crt"));
}

// A certificate of somebody else's authority, whose key is nowhere else.
TEST_F(RotationTest, CertificatesOfOthersStay) {
  Ensure();
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate other, MakeAuthority("other", 10));
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate leaf,
                          IssueCertificate(other, "spiffe://moe.example/worker", 10));
  std::filesystem::create_directory(PathOf("engine-b"));
  dir_.Write("certs/engine-b/ca.crt", other.certificate);
  dir_.Write("certs/engine-b/tls.crt", leaf.certificate);
  dir_.Write("certs/engine-b/tls.key", leaf.key);
  options_.rotate_authority = "a";
  for (int phase = 0; phase < 3; ++phase) EnsureAfter(kPhaseSeconds);
  EXPECT_EQ(Read("engine-b/ca.crt"), other.certificate);
  EXPECT_EQ(Read("engine-b/tls.crt"), leaf.certificate);
  EXPECT_EQ(Read("engine-b/tls.key"), leaf.key);
}

// A folder that was away for two rotations, as that of a pool that is installed again.
TEST_F(RotationTest, WhoComesBackTrustsNoAuthorityOfBefore) {
  Ensure();
  const std::string first = Read("authority/ca.crt");
  for (const char* word : {"a", "b", "c"}) {
    options_.rotate_authority = word;
    for (int phase = 0; phase < 3; ++phase) EnsureAfter(kPhaseSeconds);
  }
  dir_.Write("certs/worker/ca.crt", first);
  Ensure();
  EXPECT_EQ(Read("worker/ca.crt"), Read("authority/ca.crt"));
}

TEST_F(RotationTest, SaysWhichFileIsMissingOrWrong) {
  const auto bad = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);
  const auto missing = FailsWith(absl::StatusCode::kNotFound, Reason::kBadConfig);
  Begin();
  const Files announced = AllFiles();
  for (const char* text :
       {"phase: gone\n", "since: yesterday\n", "nonsense\n", "", "since: 2027-01-01T00:00:00Z\n",
        "phase: announced\n", "phase: switched\nsince: infinite-past\n",
        "phase: announced\nsince: infinite-future\n"}) {
    dir_.Write("certs/authority/rotation.yaml", text);
    const absl::Status status = EnsureCertificates(options_, now_s_).status();
    EXPECT_THAT(status, bad) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rotation.yaml")) << text;
    EXPECT_THAT(ShowCertificates(options_.dir, now_s_).status(), bad) << text;
  }
  for (const char* file : {"next.crt", "next.key"}) {
    Restore(announced);
    std::filesystem::remove(PathOf(absl::StrCat("authority/", file)));
    EXPECT_THAT(EnsureCertificates(options_, now_s_).status(), missing) << file;
  }
  // Of two runs at once, say.
  SY_ASSERT_OK_AND_ASSIGN(const KeyedCertificate other, MakeAuthority("other", 10));
  for (const std::string& key : {other.key, std::string(), std::string("no key")}) {
    Restore(announced);
    dir_.Write("certs/authority/next.key", key);
    now_s_ += kPhaseSeconds;
    const absl::Status status = EnsureCertificates(options_, now_s_).status();
    EXPECT_THAT(status, bad);
    EXPECT_THAT(std::string(status.message()), HasSubstr("next.key"));
    EXPECT_EQ(Read("authority/ca.key"), announced.at(PathOf("authority/ca.key")));
    now_s_ -= kPhaseSeconds;
  }
  Restore(announced);
  std::filesystem::remove(PathOf("authority/ca.crt"));
  EXPECT_THAT(EnsureCertificates(options_, now_s_).status(),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  Restore(announced);
  EnsureAfter(kPhaseSeconds);
  dir_.Write("certs/authority/previous.crt", "");
  EXPECT_THAT(EnsureCertificates(options_, now_s_).status(), bad);
}

TEST_F(RotationTest, OneProcessAtATime) {
  Ensure();
  {
    SY_ASSERT_OK_AND_ASSIGN(const FolderLock lock, FolderLock::Take(PathOf("authority")));
    const absl::Status status = EnsureCertificates(options_, now_s_).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
    EXPECT_THAT(std::string(status.message()), HasSubstr("another process works on"));
  }
  Ensure();
}

// What the processes of a deployment may have of its files, each of them those of another moment,
// at most kPhaseSeconds old.
class History {
 public:
  // The state from `now_s` on.
  void Add(std::int64_t now_s, const CertsOptions& options) {
    State state{now_s, {}};
    for (const char* role : kRoles) {
      auto read = ReadTlsFiles(TlsFilesIn(absl::StrCat(options.dir, "/", role)));
      SY_EXPECT_OK(read.status());
      if (!read.ok()) continue;
      SY_EXPECT_OK(CheckTlsMaterial(*read, {}).status());
      state.holders.push_back(*std::move(read));
    }
    states_.push_back(std::move(state));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const bool seen = i + 1 == states_.size() || now_s - states_[i + 1].from_s < kPhaseSeconds;
      if (seen) Compare(states_[i], states_.back());
    }
  }
  [[nodiscard]] int distrusted() const { return distrusted_; }

 private:
  struct State {
    std::int64_t from_s;
    std::vector<TlsMaterial> holders;
  };
  void Compare(const State& one, const State& other) {
    for (const TlsMaterial& a : one.holders) {
      for (const TlsMaterial& b : other.holders) {
        distrusted_ += Trusts(a.ca, b.certificate) ? 0 : 1;
        distrusted_ += Trusts(b.ca, a.certificate) ? 0 : 1;
      }
    }
  }
  bool Trusts(const std::string& bundle, const std::string& certificate) {
    const auto [known, is_new] = known_.try_emplace({bundle, certificate}, false);
    if (is_new) known->second = CheckChain({bundle, certificate, ""}, {}).ok();
    return known->second;
  }

  std::vector<State> states_;
  std::map<std::pair<std::string, std::string>, bool> known_;
  int distrusted_ = 0;
};

// All that a run writes.
std::vector<std::string> WrittenFiles() {
  std::vector<std::string> files;
  for (const char* file :
       {"rotation.yaml", "next.key", "next.crt", "previous.crt", "ca.key", "ca.crt"}) {
    files.push_back(absl::StrCat("authority/", file));
  }
  for (const char* role : kRoles) {
    for (const char* file : {"ca.crt", "tls.key", "tls.crt"}) {
      files.push_back(absl::StrCat(role, "/", file));
    }
  }
  return files;
}

class KilledRotationTest : public RotationTest {
 protected:
  // A run that ends right before it writes the file, if it does. Whether it ended there.
  bool EnsureUntil(const std::string& file) {
    const std::string obstacle = PathOf(absl::StrCat(file, ".new"));
    std::filesystem::remove(obstacle);
    std::filesystem::create_directories(obstacle);
    const absl::Status status = EnsureCertificates(options_, now_s_).status();
    if (!status.ok()) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(file));
    }
    std::filesystem::remove(obstacle);
    return !status.ok();
  }
  void RunToTheEnd(History* history) {
    for (int run = 0; run < 8; ++run) {
      now_s_ += kPhaseSeconds;
      const CertificatesReport report = Ensure();
      history->Add(now_s_, options_);
      if (report.rotation.phase == AuthorityPhase::kSettled) return;
    }
    FAIL() << "the rotation does not end";
  }
};

TEST_F(KilledRotationTest, LeavesNobodyDistrustedWhereverItEnds) {
  Ensure();
  options_.rotate_authority = "a";
  std::map<std::string, int> ended;
  for (int phase = 0; phase < 3; ++phase) {
    const Files before = AllFiles();
    const std::int64_t from_s = now_s_;
    for (const std::string& file : WrittenFiles()) {
      Restore(before);
      now_s_ = from_s;
      History history;
      history.Add(now_s_, options_);
      now_s_ += kPhaseSeconds;
      const std::string old_leaf = Read("worker/tls.crt");
      if (!EnsureUntil(file)) continue;
      ++ended[file];
      history.Add(now_s_, options_);
      RunToTheEnd(&history);
      EXPECT_EQ(history.distrusted(), 0) << phase << " " << file;
      EXPECT_EQ(Trusts(Read("source/ca.crt"), old_leaf), phase == 2) << phase << " " << file;
    }
    Restore(before);
    now_s_ = from_s;
    EnsureAfter(kPhaseSeconds);
  }
  for (const std::string& file : WrittenFiles()) EXPECT_GT(ended[file], 0) << file;
}

// Of a pair the key is replaced first, and a run can end between the two.
TEST_F(KilledRotationTest, FinishesAHalfReplacedPair) {
  Begin();
  const Files announced = AllFiles();
  const std::string next_key = Read("authority/next.key");
  const std::string next = Read("authority/next.crt");
  EnsureAfter(kPhaseSeconds);
  const Files switched = AllFiles();
  for (const bool certificate_too : {false, true}) {
    Restore(switched);
    for (const char* file : {"authority/next.crt", "authority/next.key"}) {
      dir_.Write(absl::StrCat("certs/", file), announced.at(PathOf(file)));
    }
    if (!certificate_too) {
      dir_.Write("certs/authority/ca.crt", announced.at(PathOf("authority/ca.crt")));
    }
    dir_.Write("certs/worker/tls.crt", announced.at(PathOf("worker/tls.crt")));
    EXPECT_EQ(Ensure().rotation.phase, AuthorityPhase::kSwitched);
    EXPECT_EQ(Read("authority/ca.key"), next_key);
    EXPECT_EQ(Read("authority/ca.crt"), next);
    EXPECT_FALSE(std::filesystem::exists(PathOf("authority/next.key")));
    SY_EXPECT_OK(OpenSecurity(PathOf("worker"), nullptr).status());
    SY_EXPECT_OK(CheckIssuer(Read("worker/tls.crt"), next));
  }
}

// Whatever ends where, and however soon the next run follows.
TEST_F(KilledRotationTest, RandomRunsLeaveNobodyDistrusted) {
  const std::vector<std::string> files = WrittenFiles();
  int rotations = 0;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    std::filesystem::remove_all(options_.dir);
    std::mt19937 random(seed);
    options_.rotate_authority.clear();
    Ensure();
    History history;
    history.Add(now_s_, options_);
    for (int run = 0; run < 60; ++run) {
      now_s_ += static_cast<std::int64_t>(random() % 200);
      options_.rotate_authority = absl::StrCat("word-", run / 10);
      if (random() % 3 == 0) {
        EnsureUntil(files[random() % files.size()]);
      } else {
        rotations += Ensure().rotation.phase == AuthorityPhase::kSwitched ? 1 : 0;
      }
      history.Add(now_s_, options_);
    }
    EXPECT_EQ(history.distrusted(), 0) << "seed " << seed;
  }
  EXPECT_GT(rotations, 5);
}

// The control: a rotation in one step, as by deleting the authority, is noticed.
TEST_F(KilledRotationTest, TheHistoryKnowsARotationInOneStep) {
  Ensure();
  History history;
  history.Add(now_s_, options_);
  std::filesystem::remove_all(PathOf("authority"));
  EnsureAfter(kPhaseSeconds);
  history.Add(now_s_, options_);
  EXPECT_GT(history.distrusted(), 0);
}

TEST_F(RotationTest, SyctlSaysWhatComesNext) {
  constexpr Terminal kScreen{.is_terminal = true, .width = 120};
  const auto run = [&](std::vector<std::string> words) {
    const SyctlResult result = RunSyctl(words, kScreen);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(run({"certs", "ensure", options_.dir, "--trust-domain", "moe.example"}),
              Not(HasSubstr("authority is")));
  EXPECT_THAT(run({"certs", "show", options_.dir, "-o", "json"}),
              AllOf(HasSubstr("\"phase\": \"settled\""), Not(HasSubstr("since"))));
  EXPECT_THAT(run({"certs", "ensure", options_.dir, "--rotate-authority", "1"}),
              AllOf(HasSubstr("next authority is announced"), HasSubstr("in 150 s or later")));
  EXPECT_THAT(run({"certs", "show", options_.dir, "-o", "json"}),
              AllOf(HasSubstr("\"phase\": \"announced\""), HasSubstr("\"word\": \"1\""),
                    HasSubstr("\"wait_seconds\": 1")));
  for (const char* word : {"a b", "a\nphase: settled", "\"", "ä"}) {
    const SyctlResult refused =
        RunSyctl({"certs", "ensure", options_.dir, "--rotate-authority", word}, kScreen);
    EXPECT_EQ(refused.exit_code, 2) << word;
  }
}

TEST(RotationTextTest, TellsEachPhase) {
  EXPECT_EQ(RotationText({}, 0), "");
  EXPECT_EQ(RotationText({AuthorityPhase::kSettled, 86400, {"a"}}, 90000),
            "The authority was replaced at 1970-01-02T00:00:00Z; no ca.crt here has one of before. "
            "Whoever has copies needs the new ones.\n");
  EXPECT_THAT(RotationText({AuthorityPhase::kSwitched, 86400, {"a"}}, 86410),
              AllOf(HasSubstr("ends the trust in the old one"), HasSubstr("in 140 s or later")));
  EXPECT_THAT(RotationText({AuthorityPhase::kSwitched, 86400, {"a"}}, 90000),
              HasSubstr("new files, run 'syctl certs ensure' again"));
}

}  // namespace
}  // namespace switchyard::ctl
