#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"
#include "sim/check/tensors.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// Something that a rank has added to a tensor in place.
struct Addend {
    std::uint64_t bits;  ///< equal on ranks that have added the same numbers
    const char* name;
    SourceLine at;

    bool operator==(const Addend& other) const { return bits == other.bits; }
};
using Addends = std::vector<Addend>;

/// Finds numbers that are alike on ranks where they should not be.
///
/// F22: in a sum over ranks of different numbers, an addend that all ranks have alike
/// counts once for each rank: a bias, or a result that was already summed, which is added
/// before the sum instead of after it. Gradients are left out, because a program may
/// divide them later; so are means.
///
/// F26: ranks that hold different parts of one parameter have the same numbers in them,
/// and these are not all equal: a loader has cut out one rank's part for all.
class AlikeWatcher final : public Tracker<Addends> {
  public:
    using Tracker::Tracker;

    void executing(int rank, const DeviceOperation& operation) override;
    void freed(int rank, const Storage& storage) noexcept override;
    void quiet() override;
    void run_ended() override { quiet(); }
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_begins(Posted& send, Posted& recv) override { copy_facts(send, recv); }

  private:
    /// A rank's part of a parameter, when an operation first read it.
    struct HeldPart {
        int rank;
        std::string part;
        std::uint64_t bits;
        SourceLine made_at;
        SourceLine read_at;
    };

    void note_addend(int rank, const DeviceOperation& operation);
    void note_parts(int rank, const DeviceOperation& operation);

    std::map<std::string, std::vector<HeldPart>> parts_;  ///< by the parameter's name
    std::set<std::pair<int, const Storage*>> seen_;       ///< parts that are in parts_
    bool noted_ = false;
};

/// Returns the part without its padding: two strategies may pad it differently.
std::string without_padding(const std::string& part) {
    return part.ends_with(" of padding") ? part.substr(0, part.rfind(", ")) : part;
}

void AlikeWatcher::executing(int rank, const DeviceOperation& operation) {
    note_parts(rank, operation);
    if (operation.derivation.kind == Derivation::Kind::copy)
        return copy_facts(rank, operation);
    if (operation.derivation.adds && !is_backward_sum(operation))
        return note_addend(rank, operation);
    forget_results(rank, operation);
}

/// Notes what the operation adds. Two operations add the same numbers if all that they
/// read, except the old values, is the same.
void AlikeWatcher::note_addend(int rank, const DeviceOperation& operation) {
    constexpr std::size_t kMost = 8;
    const Tensor& sum = *operation.writes[0];
    const auto* const range = known(rank).whole(sum);
    Addends addends = range == nullptr ? Addends() : range->fact;
    if (sum.storage()->category == MemoryCategory::gradients || addends.size() == kMost)
        return known(rank).forget(sum);
    std::uint64_t bits = mixed(0x616c696b, static_cast<std::uint64_t>(operation.kind));
    for (const Tensor* read : operation.reads) {
        if (read->storage() == sum.storage() && read->overlaps(sum)) continue;
        const HostTensor values = values_of(*read);
        if (is_one_number(values)) return;
        bits = mixed(bits, hash_of_bits(values.data(), values.bytes()));
    }
    addends.push_back({bits, operation.name, operation.at});
    known(rank).set(sum, std::move(addends));
}

void AlikeWatcher::note_parts(int rank, const DeviceOperation& operation) {
    constexpr std::int64_t kFew = 4;  // so few numbers may be equal by chance
    if (is_update(operation)) return;
    for (const Tensor* read : operation.reads) {
        const Storage::Label* const label = read->labelled();
        if (label == nullptr || label->part.empty() || read->elements() < kFew ||
            read->storage()->category != MemoryCategory::parameters ||
            !seen_.emplace(rank, read->storage()).second)
            continue;
        const HostTensor values = values_of(*read);
        if (is_one_number(values)) continue;
        parts_[label->name].push_back({rank, without_padding(label->part),
                                       hash_of_bits(values.data(), values.bytes()),
                                       read->storage()->allocated_at, operation.at});
        noted_ = true;
    }
}

void AlikeWatcher::freed(int rank, const Storage& storage) noexcept {
    Tracker::freed(rank, storage);
    seen_.erase({rank, &storage});
}

void AlikeWatcher::quiet() {
    if (!std::exchange(noted_, false)) return;
    for (auto& [name, held] : parts_) {
        std::ranges::stable_sort(held, {}, &HeldPart::rank);
        for (std::size_t i = 1; i < held.size(); ++i) {
            const HeldPart& other = held[i];
            const auto one = std::ranges::find_if(held, [&](const HeldPart& first) {
                return first.bits == other.bits && first.part != other.part;
            });
            if (one == held.end() || one->rank >= other.rank) continue;
            Diagnosis diagnosis = diagnosis_of("F26");
            diagnosis.title = "different parts have the same numbers";
            diagnosis.sentence = fmt::format(
                "ranks {} and {} hold different parts of {} ({} and {}), but the same "
                "numbers in them, when {} and {} first read them",
                one->rank, other.rank, name, one->part, other.part, one->read_at.text(),
                other.read_at.text());
            diagnosis.cause =
                "What filled these parts has cut the same part out of the whole for both "
                "ranks: use the rank's own number in its group.";
            const HeldPart& first_part = *one;
            for (const HeldPart* part : {&first_part, &other})
                diagnosis.parties.push_back(
                    party({part->rank}, fmt::format("holds {} of {}", part->part, name),
                          part->made_at));
            report(std::move(diagnosis));
        }
    }
}

void AlikeWatcher::collective_begins(const Team& team, const Meeting& meeting) {
    const CommOperation& first = meeting.first->operation;
    const bool sums = first.is_sum() && first.reduction == Reduction::sum;
    const auto addends_of = [&](const Posted* side) -> const Addends* {
        const auto* const range = known(side->launch->rank).whole(side->operation.input);
        return range == nullptr ? nullptr : &range->fact;
    };
    const Addends* const known_first =
        sums ? addends_of(meeting.arrived.front()) : nullptr;
    if (known_first != nullptr && team.size() > 1 && first.count > 1) {
        const auto all_have = [&](const Addend& addend) {
            return std::ranges::all_of(meeting.arrived, [&](const Posted* side) {
                const Addends* const theirs = addends_of(side);
                return theirs != nullptr && std::ranges::count(*theirs, addend) > 0;
            });
        };
        const auto alike = std::ranges::find_if(*known_first, all_have);
        const auto bits = [](const Posted* side) {
            return hash_of(side->operation.input);
        };
        const bool differ = std::ranges::any_of(meeting.arrived, [&](const Posted* side) {
            return bits(side) != bits(meeting.arrived.front());
        });
        if (alike != known_first->end() && differ) {
            const std::vector<int> ranks = sorted_ranks(team);
            const Posted& call = *meeting.arrived.front();
            Diagnosis diagnosis = diagnosis_on(team, meeting.first->sequence, "F22");
            diagnosis.title = "what all ranks have alike is summed over them";
            diagnosis.sentence = fmt::format(
                "{} add the same numbers to different partial sums by {} at {}, and then "
                "sum over {} at {}: these numbers count {} times",
                ranks_text(ranks), alike->name, alike->at.text(), team.name,
                call.line().text(), team.size());
            diagnosis.cause =
                "Add what every rank has whole (a bias, a result that was already "
                "summed) after the sum, or on one rank only.";
            diagnosis.parties = {
                party(ranks, alike->name, alike->at, "the same on all ranks"),
                party(ranks, text_of(first), call.line())};
            report(std::move(diagnosis));
        }
    }
    Tracker::collective_begins(team, meeting);
}

}  // namespace

std::unique_ptr<Watcher> watch_alike(Engine& engine) {
    return std::make_unique<AlikeWatcher>(engine.ranks().size());
}

}  // namespace lockstep::sim
