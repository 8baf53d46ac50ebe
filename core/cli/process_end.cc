#include "core/cli/process_end.h"

#include <openssl/crypto.h>

namespace switchyard {

// It fails only if OpenSSL cannot start at all, which the first use of TLS reports.
void KeepTlsForThreads() { (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr); }

}  // namespace switchyard
