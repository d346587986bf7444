// What the ranks did in one step, compared when all have done it.

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/contents.hpp"
#include "sim/check/own_gradients.hpp"
#include "src/core/bits.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

namespace {

using Update = OwnGradientWatcher::Update;

bool has(const Team* team, int rank) {
    return team != nullptr &&
           std::find(team->ranks.begin(), team->ranks.end(), rank) != team->ranks.end();
}

bool have_both(const Team* team, int one, int other) {
    return has(team, one) && has(team, other);
}

bool have_values(const Update& one, const Update& other) {
    return one.gradient.elements() > 0 &&
           one.gradient.shape() == other.gradient.shape() &&
           one.gradient.dtype() == other.gradient.dtype();
}

/// Neither gradient is reduced over ranks among which both are, and they differ.
bool are_own(const Update& one, const Update& other) {
    return one.bits == other.bits && one.gradient_bits != other.gradient_bits &&
           !have_both(one.reduced, one.rank, other.rank) &&
           !have_both(other.reduced, one.rank, other.rank) &&
           (!have_values(one, other) ||
            differ_by_more_than_rounding(one.gradient, other.gradient));
}

bool are_tied(const Update& one, const Update& other) {
    const auto only = [](const Update& update) {
        return std::make_pair(update.embeds, update.projects);
    };
    return (only(one) == std::make_pair(true, false) &&
            only(other) == std::make_pair(false, true)) ||
           (only(one) == std::make_pair(false, true) &&
            only(other) == std::make_pair(true, false));
}

Diagnosis explain(const std::string& name, const Update& one, const Update& other,
                  std::uint64_t step, const Team* over) {
    const bool known = have_values(one, other);
    const std::int64_t first =
        known ? difference_in_bits(one.gradient, other.gradient).first : 0;
    const auto gradient = [&](const Update& update) {
        return fmt::format(
            "{} on rank {} (at {})",
            known ? value_text(update.gradient, first) : std::string("one"), update.rank,
            update.at.text());
    };
    const std::string element =
        known ? fmt::format("element {} of the gradient",
                            element_text(one.gradient.shape(), first))
              : std::string("the gradient");
    Diagnosis diagnosis = diagnosis_of("F23");
    if (over != nullptr) {
        diagnosis.communicator = over->name;
        diagnosis.members = over->ranks;
    }
    const std::string why =
        over == nullptr
            ? "one looks it up as an embedding and the other multiplies by it"
            : fmt::format("their other gradients are reduced over {}", over->name);
    diagnosis.sentence = fmt::format(
        "in step {} ranks {} and {}, which hold the same {}, each update it with a "
        "gradient of its own, though {}: {} is {}, but {}",
        step, one.rank, other.rank, name, why, element, gradient(one),
        known ? gradient(other)
              : fmt::format("another on rank {} (at {})", other.rank, other.at.text()));
    for (const Update* update : {&one, &other})
        diagnosis.parties.push_back({{update->rank},
                                     fmt::format("{} of {}", update->name, name),
                                     "its own gradient",
                                     update->at,
                                     {}});
    return diagnosis;
}

}  // namespace

bool OwnGradientWatcher::all_have_done(std::uint64_t step) const {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const RankSteps& rank) {
        return rank.begun == 0 || rank.ended || rank.begun > step;
    });
}

void OwnGradientWatcher::quiet() {
    if (!noted_) return;
    noted_ = false;
    constexpr std::size_t kPending = 8;  // some rank steps far more often than another
    while (!steps_.empty()) {
        const auto oldest = steps_.begin();
        const bool done = all_have_done(oldest->first);
        if (!done && steps_.size() <= kPending) return;
        if (done && oldest->first > 0) {
            const Step step = std::move(oldest->second);
            const std::uint64_t number = oldest->first;
            steps_.erase(oldest);
            evaluate(number, step);
        } else {
            steps_.erase(oldest);
        }
    }
}

void OwnGradientWatcher::evaluate(std::uint64_t number, const Step& step) const {
    for (const auto& [name, noted] : step.updates) {
        if (noted.size() < 2) continue;
        std::vector<const Update*> updates;
        for (const Update& update : noted)
            if (!update.one_number) updates.push_back(&update);
        std::stable_sort(updates.begin(), updates.end(),
                         [](const auto* a, const auto* b) { return a->rank < b->rank; });
        for (std::size_t i = 1; i < updates.size(); ++i) {
            const Update& one = **std::find_if(
                updates.begin(), updates.end(),
                [&](const Update* first) { return first->bits == updates[i]->bits; });
            const Update& other = *updates[i];
            if (!are_own(one, other)) continue;
            if (are_tied(one, other))
                throw FaultError(explain(name, one, other, number, nullptr));
            if (const Team* over = forgotten_by(step, name, one, other))
                throw FaultError(explain(name, one, other, number, over));
        }
    }
}

/// The team over which both ranks reduced another gradient in this step, where they
/// exchange nothing but gradients; else null.
const Team* OwnGradientWatcher::forgotten_by(const Step& step, const std::string& name,
                                             const Update& one,
                                             const Update& other) const {
    for (const Update* update : {&one, &other}) {
        const auto teams = step.exchanged.find(update->rank);
        if (teams == step.exchanged.end()) continue;
        for (const Team* team : teams->second)
            if (have_both(team, one.rank, other.rank)) return nullptr;
    }
    for (const auto& [label, updates] : step.updates) {
        if (label == name) continue;
        const Team* team = nullptr;
        for (const Update& update : updates) {
            if (update.rank != one.rank && update.rank != other.rank) continue;
            if (!have_both(update.reduced, one.rank, other.rank)) continue;
            if (team == update.reduced) return team;
            team = update.reduced;
        }
    }
    return nullptr;
}

}  // namespace lockstep::sim
