#include "src/comm/expect.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "src/core/bits.hpp"
#include "src/core/require.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep {

// Bytes.

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
    const BytesByVerb verb_bytes = by_verb(at);
    return std::accumulate(verb_bytes.begin(), verb_bytes.end(), std::int64_t{0});
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
    const BytesByVerb verb_bytes = sent.by_verb(at);
    const std::int64_t got =
        std::accumulate(verb_bytes.begin(), verb_bytes.end(), std::int64_t{0});
    if (got == bytes) return;
    const Communicator& group = sent.communicator();
    Diagnosis diagnosis = diagnosis_of("F27");
    diagnosis.title =
        got > bytes ? "more bytes than expected" : "fewer bytes than expected";
    diagnosis.cause =
        got > bytes
            ? "Something is sent too often, or is larger than necessary: look for "
              "gradients that are reduced after every micro-batch instead of once after "
              "the last, or for a value that is reduced or gathered twice."
            : "Something is not sent, or is smaller than in the formula: look for a "
              "tensor that is left out of the reduction, or for another element type.";
    diagnosis.communicator = group.name();
    diagnosis.sentence = fmt::format(
        "expect_bytes: rank {} has sent {} bytes over {} from {} to {}, {} {} than the "
        "expected {}: {}",
        sent.rank(), got, group.name(), sent.begun_at().text(), at.text(),
        std::max(got, bytes) - std::min(got, bytes), got > bytes ? "more" : "fewer",
        bytes, verbs_text(verb_bytes));
    diagnosis.parties.push_back(
        {{sent.rank()},
         fmt::format("expect_bytes({}) of {}", bytes, group.name()),
         fmt::format("{} bytes", got),
         at,
         {}});
    throw FaultError(std::move(diagnosis));
}

// Replicas.

void expect_replicated(Communicator& group, const Tensor& tensor, const std::string& name,
                       SourceLine at) {
    require(static_cast<bool>(tensor), at,
            "expect_replicated: rank {} of {} passed no tensor", group.rank(),
            group.name());
    group.require_no_open_group("expect_replicated", at);
    group.do_expect_replicated(tensor, name, at);
}

void declare_replicas(Communicator& group, const Tensor& tensor, const std::string& name,
                      SourceLine at) {
    require(static_cast<bool>(tensor), at,
            "declare_replicas: rank {} of {} passed no tensor for {}", group.rank(),
            group.name(), name);
    group.do_declare_replicas(tensor, name, at);
}

void declare_same(Communicator& group, const Tensor& tensor, const std::string& name,
                  SourceLine at) {
    require(static_cast<bool>(tensor), at,
            "declare_same: rank {} of {} passed no tensor for {}", group.rank(),
            group.name(), name);
    group.do_declare_same(tensor, name, at);
}

void declare_same(Communicator& group, const HostTensor& values, const std::string& name,
                  SourceLine at) {
    group.do_declare_same(values, name, at);
}

namespace {

/// The words that a rank sends to the others: either a hash of its values, with dtype,
/// shape and the rank's number in the run, or its difference from the usual values.
constexpr std::int64_t kWords = 8;
using Words = std::array<std::int64_t, kWords>;

/// Returns every rank's words, with an all-gather in which a word is two i32.
std::vector<Words> words_of_all(Communicator& group, Device& device, const Words& mine,
                                SourceLine at) {
    HostTensor packed(Shape{2 * kWords}, DType::i32);
    std::memcpy(packed.data(), mine.data(), sizeof mine);
    const MemoryScope scope(device, MemoryCategory::workspace);
    const Tensor input = device.upload(packed, at);
    const Tensor output =
        device.empty({std::int64_t{2} * group.size() * kWords}, DType::i32, at);
    group.all_gather(output, input, at).wait(at);
    const HostTensor gathered = device.download(output, at);
    std::vector<Words> all(static_cast<std::size_t>(group.size()));
    std::memcpy(all.data(), gathered.data(), static_cast<std::size_t>(gathered.bytes()));
    return all;
}

/// Returns the sets of members that sent the same words, the largest set first. If sets
/// are equally large, the set with the lowest member is first.
std::vector<std::vector<int>> equal_members(const std::vector<Words>& words) {
    std::map<Words, std::vector<int>> sets;
    for (std::size_t member = 0; member < words.size(); ++member) {
        Words values = words[member];
        values.back() = 0;
        sets[values].push_back(static_cast<int>(member));
    }
    std::vector<std::vector<int>> sorted;
    sorted.reserve(sets.size());
    for (const auto& [key, members] : sets)
        sorted.push_back(members);
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        return std::make_pair(-static_cast<int>(a.size()), a.front()) <
               std::make_pair(-static_cast<int>(b.size()), b.front());
    });
    return sorted;
}

Words signature_of(const HostTensor& values) {
    Words words{};
    words[0] = static_cast<std::int64_t>(hash_of_bits(values.data(), values.bytes()));
    words[1] = static_cast<std::int64_t>(values.dtype());
    words[2] = values.shape().dimensions();
    for (int i = 0; i < values.shape().dimensions(); ++i)
        words[3 + i] = values.shape()[i];
    return words;
}

std::string kind_text(const Words& words) {
    const Shape shape(&words[3], static_cast<int>(words[2]));
    return fmt::format("{} {}", shape.text(), name_of(static_cast<DType>(words[1])));
}

bool same_kind(const Words& a, const Words& b) {
    return std::equal(a.begin() + 1, a.end() - 1, b.begin() + 1);
}

int rank_in(const Words& words) {
    return static_cast<int>(words.back());
}

/// Returns one side for each set of members. A side's ranks are numbers in the run.
std::vector<ReplicaSide> sides_of(const std::vector<Words>& words,
                                  const std::vector<std::vector<int>>& sets,
                                  SourceLine at) {
    const auto words_of = [&](int member) { return words[member]; };
    std::vector<ReplicaSide> sides;
    for (const std::vector<int>& members : sets) {
        sides.push_back({{}, kind_text(words_of(members.front())), at});
        for (const int member : members)
            sides.back().ranks.push_back(rank_in(words_of(member)));
    }
    return sides;
}

/// Returns how a rank's values differ from the usual values: the first element that
/// differs, the number of such elements, and this rank's value of the first of them.
Words difference_of(const HostTensor& mine, const HostTensor& usual) {
    Words found{};
    if (mine == usual) return found;
    const BitDifference difference = difference_in_bits(mine, usual);
    const double value = mine.at(difference.first);
    found = {difference.first, difference.elements, 0};
    std::memcpy(&found[2], &value, sizeof value);
    return found;
}

/// Returns the value in difference_of's result, as a tensor of one element.
HostTensor value_in(const Words& found, DType dtype) {
    double value = 0;
    std::memcpy(&value, &found[2], sizeof value);
    HostTensor element(Shape{1}, dtype);
    element.set(0, value);
    return element;
}

}  // namespace

/// Uses only the communicator's own verbs. The ranks exchange hashes. If the hashes
/// differ, a rank of the largest set of equal ranks broadcasts its values, and the ranks
/// exchange their differences from these values. Every rank throws the same error.
void Communicator::do_expect_replicated(const Tensor& tensor, const std::string& name,
                                        SourceLine at) {
    if (!device_.has_numbers()) return;
    const HostTensor mine = device_.peek(tensor, at);
    Words signature = signature_of(mine);
    signature.back() = device_.index();
    const std::vector<Words> words = words_of_all(*this, device_, signature, at);
    const std::vector<std::vector<int>> sets = equal_members(words);
    if (sets.size() == 1) return;

    const auto first_of = [&](const std::vector<int>& set) { return words[set.front()]; };
    const Words usual = first_of(sets[0]);
    std::vector<int> all;
    all.reserve(words.size());
    for (const Words& member : words)
        all.push_back(rank_in(member));
    std::vector<ReplicaSide> sides = sides_of(words, sets, at);
    if (!same_kind(first_of(sets[1]), usual))
        throw FaultError(replicas_differ(name_, all, name, sides, "", ""));

    // A rank with another shape or dtype receives the broadcast in a buffer that fits.
    HostTensor usual_values(Shape(&usual[3], static_cast<int>(usual[2])),
                            static_cast<DType>(usual[1]));
    const bool alike = same_kind(signature, usual);
    const Tensor buffer = device_.upload(alike ? mine : usual_values, at);
    broadcast(buffer, sets[0].front(), at).wait(at);
    usual_values = device_.download(buffer, at);
    const Words found = alike ? difference_of(mine, usual_values) : Words{};
    const Words odd = words_of_all(*this, device_, found, at)[sets[1].front()];
    sides[0].value = value_text(usual_values, odd[0]);
    sides[1].value = value_text(value_in(odd, usual_values.dtype()), 0);
    throw FaultError(replicas_differ(
        name_, all, name, sides, "element " + element_text(usual_values.shape(), odd[0]),
        fmt::format("{} of {} elements differ", odd[1], usual_values.elements())));
}

namespace {

/// Returns the diagnosis of two sides of the tensor that `call` compares, without
/// sentence and cause.
Diagnosis sides_differ(const std::string& group, const std::vector<int>& members,
                       const std::string& call, const std::vector<ReplicaSide>& sides,
                       const std::string& element) {
    Diagnosis diagnosis = diagnosis_of("F24");
    diagnosis.communicator = group;
    diagnosis.members = members;
    for (const ReplicaSide& side : sides) {
        const bool usual = &side == &sides.front();
        diagnosis.parties.push_back(
            {side.ranks,
             fmt::format("{} of {}", call, group),
             usual ? "" : element + (element.empty() ? "" : " ") + side.value,
             side.made_at.line > 0 ? side.made_at : side.at,
             {}});
    }
    return diagnosis;
}

/// "ranks 0, 2 hold 3 in element [0]". The verb is `does` for one rank, else `do_it`.
std::string value_text(const ReplicaSide& side, const char* does, const char* do_it,
                       const std::string& element) {
    return fmt::format("{} {} {}{}", ranks_text(side.ranks),
                       side.ranks.size() == 1 ? does : do_it, side.value,
                       element.empty() ? "" : " in " + element);
}

}  // namespace

Diagnosis replicas_differ(const std::string& group, const std::vector<int>& members,
                          const std::string& name, const std::vector<ReplicaSide>& sides,
                          const std::string& element, const std::string& differing) {
    const std::string what = name.empty() ? "the tensor" : name;
    const auto holds = [&](const ReplicaSide& side) {
        return fmt::format("{} at {}", value_text(side, "holds", "hold", element),
                           side.at.text());
    };
    Diagnosis diagnosis = sides_differ(
        group, members, fmt::format("expect_replicated({})", name), sides, element);
    diagnosis.sentence = fmt::format(
        "expect_replicated: {} is not the same on all ranks of {}: {}, but {}", what,
        group, holds(sides[1]), holds(sides[0]));
    if (!differing.empty()) diagnosis.sentence += "; " + differing;
    if (!element.empty())
        diagnosis.cause = fmt::format(
            "An earlier line writes other values to {} on {} than on the other ranks: "
            "look for a write that only some ranks make, or a write of values that "
            "differ (a seed, a file, a gradient that was not reduced).",
            what, ranks_text(sides[1].ranks));
    return diagnosis;
}

Diagnosis reads_differ(const std::string& group, const std::vector<int>& members,
                       const std::string& name, const std::vector<ReplicaSide>& sides,
                       const std::string& element, const std::string& differing) {
    Diagnosis diagnosis = sides_differ(
        group, members, fmt::format("declare_same({})", name), sides, element);
    const auto holds = [&](const ReplicaSide& side) {
        return fmt::format("{} ({} at {})", value_text(side, "reads", "read", element),
                           side.made_at.line > 0 ? "made" : "given",
                           (side.made_at.line > 0 ? side.made_at : side.at).text());
    };
    diagnosis.title = "ranks read different data";
    diagnosis.sentence =
        fmt::format("the ranks of {} must read the same {}, but do not: {}, but {}",
                    group, name, holds(sides[1]), holds(sides[0]));
    if (!differing.empty()) diagnosis.sentence += "; " + differing;
    if (sides[0].made_at.line > 0)
        diagnosis.details.push_back(
            fmt::format("They are compared at {}.", sides[0].at.text()));
    diagnosis.cause = fmt::format(
        "The data that the ranks of {} read depends on something that differs between "
        "them: the rank, a seed, the position of a loader. On a mesh, it must depend "
        "only on the coordinates along the axes whose ranks have their own data: dp, and "
        "cp for the tokens of a sequence.",
        group);
    return diagnosis;
}

}  // namespace lockstep
