// The source of one attachment, as bytes: writes request frames, reads replies.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/session_messages.h"
#include "tests/testing/fake_transport.h"
#include "tests/worker/expert/epoch_testing.h"
#include "tests/worker/expert/layer_testing.h"
#include "worker/transport/frame.h"

namespace switchyard::testing {

inline constexpr Incarnation kSourceIncarnation{.high = 4, .low = 0x9876543210ULL};

// As if the coordinator had granted what `request` claims.
inline AttachRequest Signed(AttachRequest request) {
  request.signature = SignGrant(TestGrantKey(), ClaimsOf(request));
  return request;
}

inline AttachRequest MakeAttachRequest(const Plan& plan, DispatchMode mode,
                                       std::uint64_t session = 1) {
  AttachRequest order;
  order.session = {.high = 1, .low = session};
  order.cookie = Cookie{0xc00c1e + session};
  order.deployment = plan.deployment;
  order.mode = mode;
  order.epoch = plan.epoch;
  order.hash = HashOf(plan);
  order.reply_ring.transport = "fake";
  order.reply_ring.incarnation = kSourceIncarnation;
  order.reply_ring.attachment = AttachmentId{900 + static_cast<std::uint32_t>(session)};
  order.reply_ring.slots = 4;
  order.reply_ring.slot_bytes = 8192;
  order.max_tokens = 1024;
  return Signed(std::move(order));
}

// The layer of the test model under `plan`, with real weights, to plan steps and expect answers.
inline TestLayer LayerOf(const Plan& plan, LayerId layer) {
  TestLayer test{
      .shape = plan.shape, .experts = {}, .placement = *plan.FindLayer(layer), .map = {}};
  for (std::int32_t e = 0; e < plan.shape.experts; ++e) {
    auto raw = GenerateExpert(TestModel(), layer, ExpertId{e});
    if (!raw.ok()) std::abort();
    test.experts.emplace_back(plan.shape, 0);
    test.experts.back().gate = raw->gate;
    test.experts.back().up = raw->up;
    test.experts.back().down = raw->down;
  }
  test.map = PlacementMap(test.placement, plan.shape.experts,
                          static_cast<std::int32_t>(plan.workers.size()));
  return test;
}

struct TestRequest {
  FrameHeader header;
  std::vector<std::byte> metadata;
  std::vector<Bf16> rows;
  std::vector<Bf16> expected;  // what the worker must answer
};

// All rows of `step` for `worker` as one request of `slot`.
inline TestRequest MakeRequest(const AttachRequest& order, const AttachGrant& grant,
                               const TestLayer& layer, const TestStep& step, WorkerOrdinal worker,
                               std::uint16_t slot = 0) {
  const auto chunk =
      MakeChunk(layer, step, worker, 0,
                step.plan.workers[static_cast<std::size_t>(worker.value)].rows.size());
  TestRequest request;
  request.header = {.kind = FrameKind::kRequest,
                    .mode = step.plan.mode,
                    .format = kBf16Format,
                    .cookie = order.cookie,
                    .epoch = order.epoch,
                    .step = StepId{77},
                    .attachment = grant.request_ring.attachment,
                    .source_incarnation = static_cast<std::uint32_t>(kSourceIncarnation.low),
                    .layer = layer.placement.layer,
                    .chunk = 2,
                    .chunks = 3,
                    .attempt = 1,
                    .flags = 0,
                    .rows = static_cast<std::uint32_t>(chunk->planned.size()),
                    .request_slot = slot,
                    .reply_slot = slot,
                    .payload_bytes = LayoutOfRequest(chunk->geometry).payload_bytes()};
  const auto bytes = std::as_bytes(std::span(chunk->words));
  request.metadata.assign(bytes.begin(), bytes.end());
  request.rows = chunk->rows;
  request.expected = ExpectedAnswer(layer, step, worker, *chunk);
  return request;
}

// The request as bytes, with a right CRC over whatever header and metadata now say.
inline std::vector<std::byte> Encode(const TestRequest& request) {
  std::vector<std::byte> frame(kFrameHeaderBytes + request.header.payload_bytes, std::byte{0});
  HeaderBytes raw;
  EncodeHeader(request.header, request.metadata, &raw);
  std::memcpy(frame.data(), raw.data(), raw.size());
  std::memcpy(frame.data() + kFrameHeaderBytes, request.metadata.data(), request.metadata.size());
  const std::size_t row_bytes = request.rows.size() * sizeof(Bf16);
  const std::size_t rows_begin = (kFrameHeaderBytes + request.metadata.size() + 63) / 64 * 64;
  std::memcpy(frame.data() + rows_begin, request.rows.data(), row_bytes);
  return frame;
}

struct ReadReply {
  FrameHeader header;
  FrameDrop damage = FrameDrop::kNone;
  std::vector<Bf16> rows;  // of a result
  ErrorBody error;         // of an error
};

inline ReadReply Read(const FakeTransport::Reply& reply, std::int32_t hidden) {
  ReadReply read;
  HeaderBytes raw;
  std::memcpy(raw.data(), reply.frame.data(), raw.size());
  read.damage = DecodeHeader(raw, &read.header);
  const std::span<const std::byte> payload = std::span(reply.frame).subspan(kFrameHeaderBytes);
  if (read.header.kind == FrameKind::kError) {
    const FrameDrop decoded = DecodeErrorBody(payload, &read.error);
    const std::size_t metadata = LayoutOfError(read.error.text.size()).metadata_bytes;
    if (read.damage == FrameDrop::kNone) read.damage = decoded;
    if (read.damage == FrameDrop::kNone) read.damage = CheckCrc(raw, payload.first(metadata));
    return read;
  }
  if (read.damage == FrameDrop::kNone) read.damage = CheckCrc(raw, {});
  const FrameLayout layout = LayoutOfResult(read.header.rows, hidden);
  read.rows.resize(std::size_t{read.header.rows} * static_cast<std::size_t>(hidden));
  std::memcpy(read.rows.data(), reply.frame.data() + layout.rows_begin,
              read.rows.size() * sizeof(Bf16));
  return read;
}

}  // namespace switchyard::testing
