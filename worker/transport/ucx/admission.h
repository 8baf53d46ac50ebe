// Which hosts may connect to UCX's tcp ports.
//
// UCX asserts what it reads from a connection instead of refusing it, so any program that connects
// and sends what UCX does not expect ends this process (uct/tcp/tcp_ep.c, UCX 1.13 and later). UCX
// has no setting against it. So the kernel discards connection attempts before UCX sees them, by a
// filter on UCX's listening sockets (SO_ATTACH_FILTER, socket(7)). Only the hosts of a known peer's
// address are admitted, until its greeting has come over its connection, which takes milliseconds.
// A link is offered before its peer is known; that peer connects only after it was admitted
// (LinkOptions::connects_at_once).
//
// UCX's own thread would accept connections. It ends the process when it meets a socket that UCX
// has closed because accept(2) failed for lack of descriptors (uct_tcp_iface_connect_handler,
// UCX 1.13), which happens when a connection comes at that moment. So that thread no longer waits
// for these sockets, and the transport's thread has UCX accept, which cannot come between.
//
// A connection that exists stays, and later steps need no new connection. So in a
// process whose links are all set up, nobody can connect. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/ids.h"
#include "worker/transport/descriptor.h"
#include "worker/transport/ucx/address.h"

namespace switchyard {

// For how long a known peer that does not greet may connect. The kernel repeats a lost attempt
// after 1, 3 and 7 s.
inline constexpr Duration kUcxAdmission = std::chrono::seconds(10);
// After this part of it, a side that has waited for its peer's greeting connects without one, since
// the peer may be of a release that does not greet. Long enough for the peer to take in the answer
// to its offer, short enough to be admitted when it does.
inline constexpr int kUcxPatiencePart = 5;

class UcxAdmission {
 public:
  // Closes the sockets of this process that are `listeners` to everybody. They belong to UCX and
  // must outlive this. Errors: kFailedPrecondition (TRANSPORT) if one of them is not found, or if
  // the kernel does not filter; kResourceExhausted (OUT_OF_MEMORY) without a free descriptor.
  static absl::StatusOr<UcxAdmission> Create(std::span<const UcxListener> listeners);
  UcxAdmission() = default;  // of no sockets

  // Takes in further sockets, under the rules that hold now. Errors: as Create.
  absl::Status Add(std::span<const UcxListener> listeners);
  // Has UCX accept the connections that wait. Costs a system call where none does.
  //   kLater: the progress of every ucp_worker has to come before the next call
  enum class Accepted { kNone, kSome, kLater };
  Accepted Accept();
  // Readable while Accept has something to do.
  [[nodiscard]] int event_fd() const { return waiting_.get(); }
  // Whether each of `listeners` is still there. Costs two system calls for each.
  [[nodiscard]] bool Listens(std::span<const UcxListener> listeners) const;
  // Gives up sockets that UCX has closed by itself. UCX leaves their handlers behind, which would
  // point to freed memory once their ucp_worker ends, and crash a later one whose descriptor gets
  // the same number. So this also has to come before UCX's workers are destroyed.
  void ForgetClosed();

  // Lets the peer of `link` connect, beside those of other links on the same hosts. `hosts`: IP
  // addresses in network byte order, 4 or 16 bytes each. This and the two below cost two system
  // calls for each socket if the admitted hosts change.
  void Admit(AttachmentId link, std::span<const std::string> hosts, TimePoint until);
  // The peer of `link` has connected or is gone.
  void Withdraw(AttachmentId link);
  // Ends the admissions that are over at `now`.
  void Expire(TimePoint now);
  // Whether Expire has anything to wait for.
  [[nodiscard]] bool pending() const { return !admitted_.empty(); }

 private:
  struct Admitted {
    AttachmentId link;
    std::string host;
    TimePoint until;
  };
  // A listening socket of UCX. UCX may have closed it, and its number may be another file's by now.
  struct Socket {
    int descriptor = -1;
    UcxListener listener;
    [[nodiscard]] bool is_open() const;
  };
  // Has the next connection to it noticed, which is the first one or, with `again`, a later one.
  [[nodiscard]] bool Watch(int descriptor, bool again) const;
  // Sets the filters if `hosts_` is not what is admitted any more, or if they are new.
  void Apply(bool always);

  Descriptor waiting_;  // an epoll of `sockets_`
  std::vector<Socket> sockets_;
  std::vector<Admitted> admitted_;
  std::vector<std::string> hosts_;  // whom the filters let in, sorted
};

}  // namespace switchyard
