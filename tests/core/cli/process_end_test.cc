// OpenSSL's exit handler runs in a program that does not ask for its absence, and in no other.
#include "core/cli/process_end.h"

#include <cstdlib>
#include <unistd.h>

#include "gtest/gtest.h"
#include <openssl/crypto.h>

namespace switchyard {
namespace {

// Ends the process as the end of main does, once OpenSSL has started.
[[noreturn]] void EndWithTls() {
  OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr);
  OPENSSL_atexit([] { (void)!write(STDERR_FILENO, "OpenSSL is gone", 15); });
  (void)!write(STDERR_FILENO, "<", 1);
  std::exit(0);
}

// The statements run in processes of their own, in which OpenSSL has not started.
class ProcessEndDeathTest : public ::testing::Test {
 protected:
  ProcessEndDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ProcessEndDeathTest, OpenSslFreesWhatThreadsUseWhenAProcessEnds) {
  EXPECT_EXIT(EndWithTls(), ::testing::ExitedWithCode(0), "<OpenSSL is gone");
}

TEST_F(ProcessEndDeathTest, AndDoesNotInProgramsThatSayFirstThatTheirThreadsUseIt) {
  EXPECT_EXIT(
      {
        KeepTlsForThreads();
        EndWithTls();
      },
      ::testing::ExitedWithCode(0), "<$");
}

}  // namespace
}  // namespace switchyard
