// transport_peer: the other process of tests/testing/transport_peer.h.
//
//   transport_peer SOCKET    questions: 'A' choice offer, 'C'; answers: '+' ... or '-' and why
#include <array>
#include <cstdlib>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "core/rng.h"
#include "tests/testing/transport_pair.h"
#include "tests/testing/transport_peer.h"
#include "worker/registry/transport_registry.h"

namespace switchyard::testing {
namespace {

// Sends every frame back as it came, into the reply slot that it names.
class Echo final : public FrameSink {
 public:
  explicit Echo(int socket) : socket_(socket) {}

  int Run() {
    SystemRng rng;
    auto made = MakeTransport("ucx", {.incarnation = rng.NextId<Incarnation>()});
    if (!made.ok()) return 2;
    transport_ = std::move(made).value();
    while (!ended_) {
      Listen();
      if (transport_->Progress(*this)) continue;
      if (transport_->Arm()) transport_->Wait(std::chrono::milliseconds(1));
    }
    attached_.clear();
    return 0;
  }

  void OnFrame(Link& link, const HeaderBytes& /*raw*/, const FrameHeader& header,
               std::span<const std::byte> payload) override {
    for (const Attached& each : attached_) {
      if (each.link.get() != &link) continue;
      FrameHeader reply = header;
      reply.kind = FrameKind::kResult;
      reply.attachment = each.peer;
      const std::vector<std::byte> copy(payload.begin(), payload.end());
      static_cast<void>(SendFrame(link, reply, copy));
    }
  }
  void OnLinkDown(Link& link, const absl::Status& /*why*/) override {
    std::erase_if(attached_, [&](const Attached& each) { return each.link.get() == &link; });
  }

 private:
  struct Attached {
    std::unique_ptr<Link> link;
    AttachmentId peer;
  };

  absl::StatusOr<RingOffer> Attach(absl::string_view question) {
    const auto choice = static_cast<TransportChoice>(question[1]);
    const RingOffer offer = UnpackOffer(question.substr(2));
    SY_ASSIGN_OR_RETURN(std::unique_ptr<Link> link,
                        transport_->CreateLink({.cookie = kTestCookie,
                                                .slots = offer.slots,
                                                .slot_bytes = offer.slot_bytes,
                                                .choice = choice,
                                                .connects_at_once = true}));
    SY_RETURN_IF_ERROR(link->Connect(offer));
    const RingOffer own = link->offer();
    attached_.push_back({std::move(link), offer.attachment});
    return own;
  }

  void Listen() {
    pollfd ready{socket_, POLLIN, 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    std::array<char, 64 * 1024> bytes{};
    const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (got <= 0) {
      ended_ = true;
      return;
    }
    const absl::string_view question(bytes.data(), static_cast<std::size_t>(got));
    std::string answer = "+";
    if (question[0] == 'A') {
      const absl::StatusOr<RingOffer> own = Attach(question);
      answer = own.ok() ? absl::StrCat("+", PackOffer(*own))
                        : absl::StrCat("-", own.status().ToString());
    } else {
      attached_.clear();
    }
    ended_ = ::send(socket_, answer.data(), answer.size(), MSG_NOSIGNAL) < 0;
  }

  int socket_;
  bool ended_ = false;
  std::unique_ptr<Transport> transport_;
  std::vector<Attached> attached_;
};

}  // namespace
}  // namespace switchyard::testing

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return switchyard::testing::Echo(std::atoi(argv[1])).Run();
}
