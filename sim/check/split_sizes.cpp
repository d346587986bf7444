#include "sim/check/split_sizes.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/team_diagnosis.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

std::string part_text(const Posted& posted) {
    const bool sends = posted.operation.verb == Verb::send;
    const Tensor& part = sends ? posted.operation.input : posted.operation.output;
    const std::int64_t rows = part.shape()[0];
    const std::int64_t count = posted.operation.count;
    return part.shape().dimensions() == 1
               ? fmt::format("{} {}", count, count == 1 ? "element" : "elements")
               : fmt::format("{} {} ({} elements)", rows, rows == 1 ? "row" : "rows",
                             count);
}

std::vector<std::int64_t> counts_of(const Batch& batch, Verb verb) {
    std::vector<std::int64_t> counts;
    for (const Posted& part : batch.posted)
        if (part.operation.verb == verb) counts.push_back(part.operation.count);
    return counts;
}

/// A rank that expects to get just what it sends has taken the counts of one for those of
/// the other; equal numbers for all say nothing.
bool expects_what_it_sends(const Batch& batch) {
    const std::vector<std::int64_t> sent = counts_of(batch, Verb::send);
    return sent == counts_of(batch, Verb::recv) &&
           std::adjacent_find(sent.begin(), sent.end(), std::not_equal_to<>()) !=
               sent.end();
}

/// All counts of one side of the posted part's call: "rank 0 sends 2, 5, 1 elements to
/// ranks 0, 1, 2".
std::string counts_text(const Posted& posted) {
    constexpr std::size_t kListed = 32;
    const std::vector<std::int64_t> all = counts_of(*posted.batch, posted.operation.verb);
    std::string counts;
    for (std::size_t i = 0; i < std::min(all.size(), kListed); ++i)
        counts += fmt::format("{}{}", i == 0 ? "" : ", ", all[i]);
    if (all.size() > kListed) counts += fmt::format(" and {} more", all.size() - kListed);
    const bool sends = posted.operation.verb == Verb::send;
    return fmt::format("rank {} {} ranks 0, 1, … of {} in elements: {}",
                       posted.batch->rank, sends ? "sends to" : "expects from",
                       posted.batch->team->name, counts);
}

}  // namespace

Diagnosis explain_split_sizes(const Engine& engine, const Posted& send,
                              const Posted& recv) {
    const int from = send.batch->rank;
    const int to = recv.batch->rank;
    Diagnosis diagnosis = diagnosis_on(*send.batch->team, "F08");
    diagnosis.time = std::max(send.batch->opened, recv.batch->opened);
    diagnosis.sentence = fmt::format(
        "rank {}'s all_to_all_v at {} sends {} to rank {}, whose all_to_all_v at {} "
        "expects {} from rank {}",
        from, send.operation.at.text(), part_text(send), to, recv.operation.at.text(),
        part_text(recv), from);
    diagnosis.parties.push_back({{from},
                                 "all_to_all_v",
                                 fmt::format("send_counts[{}]", send.operation.peer),
                                 send.operation.at,
                                 history_of(engine, from, &send)});
    diagnosis.parties.push_back({{to},
                                 "all_to_all_v",
                                 fmt::format("recv_counts[{}]", recv.operation.peer),
                                 recv.operation.at,
                                 history_of(engine, to, &recv)});
    diagnosis.details = {counts_text(send), counts_text(recv)};
    if (expects_what_it_sends(*recv.batch))
        diagnosis.details.push_back(
            fmt::format("rank {} expects from each rank just what it sends to it: its "
                        "recv_counts are its send_counts",
                        to));
    diagnosis.others = others_of(engine, {from, to});
    return diagnosis;
}

}  // namespace lockstep::sim
