#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "src/comm/expect.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep {

ByteCount::ByteCount(const Communicator& communicator, SourceLine at)
    : communicator_(communicator), at_(at), before_(communicator.bytes_sent(at)) {}

int ByteCount::rank() const {
    return communicator_.device().index();
}

BytesByVerb ByteCount::by_verb(SourceLine at) const {
    BytesByVerb bytes = communicator_.bytes_sent(at);
    for (std::size_t verb = 0; verb < bytes.size(); ++verb)
        bytes[verb] -= before_[verb];
    return bytes;
}

std::int64_t ByteCount::bytes(SourceLine at) const {
    const BytesByVerb by = by_verb(at);
    return std::accumulate(by.begin(), by.end(), std::int64_t{0});
}

namespace {

/// "6000 by all_reduce, 400 by send".
std::string verbs_text(const BytesByVerb& bytes) {
    std::string text;
    for (std::size_t verb = 0; verb < bytes.size(); ++verb)
        if (bytes[verb] != 0)
            text += fmt::format("{}{} by {}", text.empty() ? "" : ", ", bytes[verb],
                                name_of(static_cast<Verb>(verb)));
    return text.empty() ? "nothing" : text;
}

}  // namespace

void expect_bytes(const ByteCount& sent, std::int64_t bytes, SourceLine at) {
    const BytesByVerb by = sent.by_verb(at);
    const std::int64_t got = std::accumulate(by.begin(), by.end(), std::int64_t{0});
    if (got == bytes) return;
    const Communicator& group = sent.communicator();
    Diagnosis diagnosis = diagnosis_of("F27");
    diagnosis.title =
        got > bytes ? "more bytes than expected" : "fewer bytes than expected";
    diagnosis.cause =
        got > bytes
            ? "Something is sent once too often, or larger than it need be: look for "
              "gradients that are reduced after every micro-batch instead of once after "
              "the last, or a value that is reduced or gathered twice."
            : "Something is not sent, or smaller than the formula has it: look for a "
              "tensor that is left out of the reduction, or another element type.";
    diagnosis.communicator = group.name();
    diagnosis.sentence = fmt::format(
        "expect_bytes: rank {} has sent {} bytes over {} from {} to {}, {} {} than the "
        "{} that are expected there: {}",
        sent.rank(), got, group.name(), sent.begun_at().text(), at.text(),
        std::max(got, bytes) - std::min(got, bytes), got > bytes ? "more" : "fewer",
        bytes, verbs_text(by));
    diagnosis.parties.push_back(
        {{sent.rank()},
         fmt::format("expect_bytes({}) of {}", bytes, group.name()),
         fmt::format("{} bytes", got),
         at,
         {}});
    throw FaultError(std::move(diagnosis));
}

}  // namespace lockstep
