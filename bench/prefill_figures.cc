#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "bench/figures.h"
#include "bench/in_process_model.h"
#include "bench/measure.h"
#include "bench/served_model.h"
#include "core/format/bf16.h"
#include "examples/qwen3_moe/decoder.h"
#include "model/checkpoint.h"

namespace switchyard::bench {
namespace {

constexpr std::size_t kTokens = 512;
constexpr int kThreads = 2;

StepRequest RequestOf(const qwen3_moe::MoeCall& call, void* y) {
  const auto top_k = static_cast<std::int32_t>(call.top_k);
  const auto hidden = static_cast<std::int64_t>(call.x.size() / call.tokens);
  return {.layer = call.layer,
          .tokens = static_cast<std::int32_t>(call.tokens),
          .x = call.x.data(),
          .x_stride = hidden,
          .ids = call.ids.data(),
          .ids_stride = top_k,
          .weights = call.weights.data(),
          .weights_stride = top_k,
          .top_k = top_k,
          .y = y,
          .y_stride = hidden};
}

qwen3_moe::MoePath LocalPath(InProcessModel* model, std::vector<Bf16>* y) {
  return {.run =
              [model, y](const qwen3_moe::MoeCall& call) {
                y->resize(call.y.size());
                model->Run(RequestOf(call, y->data()));
                for (std::size_t i = 0; i < y->size(); ++i) call.y[i] = Bf16ToFloat((*y)[i]);
                return absl::OkStatus();
              },
          .max_tokens = kTokens};
}

qwen3_moe::MoePath ServedPath(const ServedSession* served) {
  return {.run =
              [served](const qwen3_moe::MoeCall& call) {
                served->Run(RequestOf(call, call.y.data()));
                return absl::OkStatus();
              },
          .max_tokens = kTokens};
}

std::vector<std::int32_t> Prompt(const std::string& folder) {
  std::ifstream text(absl::StrCat(folder, "/eval.txt"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(text)), std::istreambuf_iterator<char>());
  std::vector<std::int32_t> tokens;  // of this model, a token is a byte
  for (std::size_t i = 0; i < kTokens && i < bytes.size(); ++i) {
    tokens.push_back(static_cast<unsigned char>(bytes[i]));
  }
  return tokens;
}

}  // namespace

void PrefillFigures(const RunOptions& options, Report* report) {
  const auto checkpoint = OrExit(Checkpoint::Open(options.model));
  const auto decoder = OrExit(qwen3_moe::Decoder::Load(*checkpoint));
  const ServedModel served(options.bin_dir, options.model, 4);
  const std::vector<std::string> transports = {"shm", "tcp", "gateway"};
  std::vector<ServedSession> sessions;
  for (const std::string& transport : transports) {
    sessions.push_back(served.Open({.transport = transport,
                                    .phase = Phase::kPrefill,
                                    .max_tokens = static_cast<std::int32_t>(kTokens),
                                    .y_dtype = OutputDtype::kF32}));
  }
  InProcessModel in_process(options.model, kThreads, static_cast<std::int32_t>(kTokens));
  const std::vector<std::int32_t> prompt = Prompt(options.model);
  std::vector<Bf16> scratch;
  std::vector<qwen3_moe::MoePath> paths = {LocalPath(&in_process, &scratch)};
  for (const ServedSession& session : sessions) paths.push_back(ServedPath(&session));

  std::vector<std::vector<double>> times(paths.size());
  for (int pass = -1; pass < options.passes; ++pass) {
    for (std::size_t way = 0; way < paths.size(); ++way) {
      qwen3_moe::KvCache cache = decoder->MakeCache(kTokens);
      const double took = SecondsOf(
          [&] { OrExit(decoder->Forward(cache, {.tokens = prompt}, paths[way]).status()); });
      if (pass >= 0) times[way].push_back(took);
    }
  }
  for (std::size_t way = 0; way < transports.size(); ++way) {
    Figure figure{
        .name = absl::StrFormat("prefill of 512 tokens, four workers, %s", transports[way]),
        .value = MedianRatio(times[way + 1], times[0]),
        .unit = "x",
        .floor = absl::StrFormat("%.2f ms against %.2f ms in process", Median(times[way + 1]) * 1e3,
                                 Median(times[0]) * 1e3)};
    if (transports[way] == "shm") figure.at_most = 1.5;
    report->Add(figure);
  }
}

}  // namespace switchyard::bench
