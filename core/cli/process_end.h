// A program's first call, so that its process can end while threads of libraries run.
#pragma once

namespace switchyard {

// gRPC ends its threads in the background, some of them after main has returned. OpenSSL 3 frees in
// an exit handler what the end of such a thread reads: with TLS, one of some hundred processes that
// had just closed a connection ended with SIGSEGV (gRPC issue 38539). After this call OpenSSL has
// no such handler, and the system gets its memory back with the process. Before anything uses TLS;
// for main of programs, not for libraries.
void KeepTlsForThreads();

}  // namespace switchyard
