// Steps of an ExchangeGroup by messages.
#include <algorithm>
#include <iterator>

#include "tests/cuda/exchange_group.h"

namespace switchyard::cuda::testing {

void ExchangeGroup::StepByMessages(int lost, Message at, const std::function<void()>& give_up) {
  const auto of_all = [this](const auto& launch) {
    for (int r = 0; r < ranks(); ++r) {
      Select(r);
      Check(launch(*members_[At(r)]), "a step by messages");
    }
    Synchronize();
  };
  of_all([](const Member& m) { return WriteRowMessages(m.rank, m.step, m.stream); });
  Carry(&RowMessages, lost);
  if (give_up && at == Message::kRows) give_up();
  of_all([](const Member& m) { return SealRowMessages(m.rank, m.step, m.stream); });
  Carry(&SealMessages, lost);
  of_all([](const Member& m) { return ListRowMessages(m.rank, m.step, m.stream); });
  for (int r = 0; r < ranks(); ++r) Experts(r);
  of_all([](const Member& m) {
    return WriteAnswerMessages(m.rank, m.step, m.answers.get(), m.stream);
  });
  Carry(&AnswerMessages, lost);
  if (give_up && at == Message::kAnswers) give_up();
  of_all([](const Member& m) { return SealAnswerMessages(m.rank, m.step, m.stream); });
  Carry(&SealMessages, lost);
  of_all([](const Member& m) { return AddAnswerMessages(m.rank, m.step, m.out.get(), m.stream); });
}

void ExchangeGroup::StepByMessages(int rank, const CarryMessages& carry) {
  Select(rank);
  const Member& m = *members_[At(rank)];
  const auto travel = [&](const Messages& messages) {
    carry(messages, m.outbox.get(), m.heap.get(), m.stream);
  };
  Check(WriteRowMessages(m.rank, m.step, m.stream), "rows");
  travel(RowMessages(m.rank, m.step.cover));
  Check(SealRowMessages(m.rank, m.step, m.stream), "seal of rows");
  travel(SealMessages(m.rank, m.step.cover));
  Check(ListRowMessages(m.rank, m.step, m.stream), "lists");
  Experts(rank);
  Check(WriteAnswerMessages(m.rank, m.step, m.answers.get(), m.stream), "answers");
  travel(AnswerMessages(m.rank, m.step.cover));
  Check(SealAnswerMessages(m.rank, m.step, m.stream), "seal of answers");
  travel(SealMessages(m.rank, m.step.cover));
  Check(AddAnswerMessages(m.rank, m.step, m.out.get(), m.stream), "sums");
}

// The parts that a rank sends to another, and those that this one receives from it, in turn.
void ExchangeGroup::Carry(MessagesOf messages, int lost) {
  for (int from = 0; from < ranks(); ++from) {
    for (int to = 0; to < ranks(); ++to) {
      if (from == to || from == lost) continue;
      const Member& sender = *members_[At(from)];
      const Member& receiver = *members_[At(to)];
      const Messages sent = messages(sender.rank, sender.step.cover);
      const Messages received = messages(receiver.rank, receiver.step.cover);
      std::vector<MessagePart> out;
      std::vector<MessagePart> in;
      const auto is_for = [](int peer) { return [peer](const auto& p) { return p.peer == peer; }; };
      std::copy_if(sent.sent.begin(), sent.sent.end(), std::back_inserter(out), is_for(to));
      std::copy_if(received.received.begin(), received.received.end(), std::back_inserter(in),
                   is_for(from));
      for (std::size_t i = 0; i < out.size(); ++i) {
        Check(cudaMemcpy(receiver.heap.get() + in.at(i).at, sender.outbox.get() + out[i].at,
                         At(static_cast<int>(out[i].bytes)), cudaMemcpyDefault),
              "a message");
      }
    }
  }
  Synchronize();
}

}  // namespace switchyard::cuda::testing
