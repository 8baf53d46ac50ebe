#include "services/convert/worker_status.h"

#include <string>

#include "services/convert/plan.h"

namespace switchyard {
namespace {

void EncodeTransport(const TransportStats& in, v1::TransportStats* out) {
  out->set_frames_in(in.frames_in);
  out->set_frames_out(in.frames_out);
  out->set_late_wakes(in.late_wakes);
  out->set_links_open(in.links_open);
  out->set_ring_bytes(in.ring_bytes);
  for (std::size_t i = 0; i < in.drops.size(); ++i) {
    // Reasons without drops are omitted, which keeps the message short and old readers compatible.
    if (in.drops[i] == 0) continue;
    v1::FrameDropCount* drop = out->add_drops();
    drop->set_reason(std::string(FrameDropName(static_cast<FrameDrop>(i))));
    drop->set_frames(in.drops[i]);
  }
}

void EncodeExperts(const ExpertStats& in, v1::ExpertStats* out) {
  out->set_requests(in.requests);
  out->set_rows(in.rows);
  out->set_batches(in.batches);
  out->set_refused(in.refused);
  out->set_duplicates(in.duplicates);
  out->set_nan_rows(in.nan_rows);
  out->set_attachments(in.attachments);
}

void EncodeDirect(const DirectStats& in, v1::ExpertStats* out) {
  out->set_direct_chunks(in.chunks);
  out->set_direct_rows(in.rows);
  out->set_direct_failed(in.failed);
}

}  // namespace

void Encode(const ExpertServiceView& in, v1::GetStatusResponse* out) {
  for (const ResidentEpoch& resident : in.resident) Encode(resident, out->add_epochs());
  EncodeTransport(in.transport, out->mutable_transport());
  EncodeExperts(in.experts, out->mutable_experts());
  EncodeDirect(in.direct, out->mutable_experts());
}

}  // namespace switchyard
