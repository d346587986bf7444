#include "sim/check/race_text.hpp"

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/team_diagnosis.hpp"
#include "src/comm/aliasing.hpp"

namespace lockstep::sim {

namespace {

Diagnosis start_diagnosis(const char* fault, int rank, const Use& use) {
    const Past& past = use.operation;
    Diagnosis diagnosis = diagnosis_on(*past.team, fault);
    if (!is_point_to_point(past.verb))
        diagnosis.sequence = static_cast<std::int64_t>(past.sequence);
    Diagnosis::Party launch;
    launch.ranks = {rank};
    launch.operation = text_of(past) + ", launched";
    launch.at = past.at;
    diagnosis.parties.push_back(std::move(launch));
    return diagnosis;
}

void add_party(Diagnosis& diagnosis, int rank, std::string operation, SourceLine at) {
    Diagnosis::Party party;
    party.ranks = {rank};
    party.operation = std::move(operation);
    party.at = at;
    diagnosis.parties.push_back(std::move(party));
}

}  // namespace

Diagnosis explain_race(int rank, const Use& use, const std::string& what, bool reads,
                       const Tensor& touched, SourceLine at) {
    Diagnosis diagnosis = start_diagnosis(reads ? "F16" : "F17", rank, use);
    const std::int64_t begin = std::max(use.begin, touched.offset_bytes());
    const std::int64_t end = std::min(use.end, touched.offset_bytes() + touched.bytes());
    diagnosis.sentence = fmt::format(
        "rank {} {} a buffer in {} at {} while {}, launched at {}, still {} it: the rank "
        "has not waited for that {} (the two share {})",
        rank, reads ? "reads" : "overwrites", what, at.text(), text_of(use.operation),
        use.operation.at.text(), use.writes ? "writes to" : "reads from",
        name_of(use.operation.verb), buffer_text(touched, begin, end));
    add_party(diagnosis, rank,
              fmt::format("{} {} the buffer", what, reads ? "reads" : "overwrites"), at);
    return diagnosis;
}

Diagnosis explain_hidden_write(int rank, const Use& use, SourceLine waited_at) {
    Diagnosis diagnosis = start_diagnosis("F17", rank, use);
    const bool waited = waited_at.line != 0;
    diagnosis.sentence = fmt::format(
        "rank {} overwrote a buffer that {}, launched at {}, reads, {}: {} no longer "
        "hold what they held at the launch; no device operation wrote there, so the "
        "program did by itself (Tensor::data())",
        rank, text_of(use.operation), use.operation.at.text(),
        waited ? fmt::format("before its wait at {}", waited_at.text())
               : std::string("before that was done"),
        buffer_text(use.tensor, use.begin, use.end));
    if (waited) add_party(diagnosis, rank, "wait", waited_at);
    return diagnosis;
}

Diagnosis explain_given_up(int rank, const Use& use, SourceLine waited_at) {
    Diagnosis diagnosis = start_diagnosis("F18", rank, use);
    diagnosis.sentence = fmt::format(
        "rank {} let go of the buffer of {}, launched at {}, before it waited at {}: the "
        "last variable that held these {} x {}, made at {}, went while the communication "
        "could still {} them",
        rank, text_of(use.operation), use.operation.at.text(), waited_at.text(),
        use.tensor.elements(), name_of(use.tensor.dtype()),
        use.tensor.storage()->allocated_at.text(), use.writes ? "write to" : "read");
    add_party(diagnosis, rank, "wait, when the buffer had gone", waited_at);
    return diagnosis;
}

}  // namespace lockstep::sim
