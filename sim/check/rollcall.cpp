#include "sim/check/rollcall.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace lockstep::sim {

std::vector<int> Rollcall::Side::ranks(const Team& team) const {
    std::vector<int> ranks;
    for (const Claim* claim : claims)
        ranks.push_back(team.ranks[claim->member]);
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

const HostTensor* Rollcall::Roll::values_of(const Claim& claim) const {
    const auto found = values.find(claim.hash);
    return found == values.end() ? nullptr : &found->second;
}

std::uint64_t Rollcall::next_number(const Team& team, int member) {
    std::vector<std::uint64_t>& numbers = numbers_[team.id];
    numbers.resize(team.ranks.size());
    return numbers[member];
}

void Rollcall::note(const Team& team, std::uint64_t number, Claim claim,
                    const Values& of_claim) {
    claim.order = next_number(team, claim.member);
    ++numbers_[team.id][claim.member];
    const auto member = static_cast<std::size_t>(claim.member);
    Key key{team.id, number};
    // If a member makes a claim twice, the claims are about two things that cannot be
    // told apart. The second claim gets the next number.
    for (auto open = open_.find(key); open != open_.end() && open->second.heard[member];
         open = open_.find(key))
        ++key.second;
    Roll& roll = open_[key];
    roll.team = &team;
    roll.number = key.second;
    roll.heard.resize(team.ranks.size());
    roll.heard[member] = true;
    if (of_claim && !roll.values.contains(claim.hash)) {
        HostTensor values = of_claim();
        if (values.bytes() <= kMostBytes - bytes_) {
            bytes_ += values.bytes();
            roll.values.emplace(claim.hash, std::move(values));
        }
    }
    roll.claims.push_back(std::move(claim));
    if (roll.claims.size() == team.ranks.size()) complete_.push_back(key);
    noted_ = true;
}

void Rollcall::drop_values(Roll& roll) {
    for (const auto& [hash, values] : roll.values)
        bytes_ -= values.bytes();
    roll.values.clear();
}

void Rollcall::forget_old() {
    constexpr std::uint64_t kClaims = 64;
    int team = -1;
    std::uint64_t fewest = 0;  // the fewest claims that a member of the team has made
    for (auto roll = open_.begin(); roll != open_.end();) {
        const std::vector<std::uint64_t>& numbers = numbers_[roll->first.first];
        if (roll->first.first != team) {
            team = roll->first.first;
            fewest = *std::min_element(numbers.begin(), numbers.end());
        }
        std::uint64_t newest = 0;
        std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
        for (const Claim& claim : roll->second.claims) {
            newest = std::max(newest, claim.order);
            least = std::min(least, numbers[claim.member]);
        }
        // Some members may never claim anything, if one rank holds all parameters.
        const bool old = fewest > newest + kClaims || least > newest + 8 * kClaims;
        if (old || least > newest + kClaims) drop_values(roll->second);
        roll = old ? open_.erase(roll) : std::next(roll);
    }
}

namespace {

Picoseconds time_of(const Rollcall::Roll& roll) {
    Picoseconds time = 0;
    for (const Rollcall::Claim& claim : roll.claims)
        time = std::max(time, claim.time);
    return time;
}

std::uint64_t step_of(const Rollcall::Roll& roll) {
    std::uint64_t step = 0;
    for (const Rollcall::Claim& claim : roll.claims)
        step = std::max(step, claim.step);
    return step;
}

bool same(const Rollcall::Claim& a, const Rollcall::Claim& b) {
    return a.hash == b.hash && a.shape == b.shape && a.dtype == b.dtype;
}

/// Sorts claims by member: the result must not depend on the order in which ranks ran.
std::vector<Rollcall::Side> sides_in(Rollcall::Roll& roll) {
    std::sort(roll.claims.begin(), roll.claims.end(),
              [](const auto& a, const auto& b) { return a.member < b.member; });
    std::vector<const Rollcall::Claim*> claims;
    for (const Rollcall::Claim& claim : roll.claims)
        claims.push_back(&claim);
    std::vector<Rollcall::Side> sides;
    for (auto& side :
         sides_of(claims, [](const auto*a, const auto*b) { return same(*a, *b); }))
        sides.push_back({std::move(side)});
    return sides;
}

bool all_same(const Rollcall::Roll& roll) {
    return std::all_of(
        roll.claims.begin(), roll.claims.end(),
        [&](const Rollcall::Claim& claim) { return same(claim, roll.claims.front()); });
}

}  // namespace

void Rollcall::compare() {
    // A step's parameters come before its gradients, and these before the next step.
    const auto order = [](const Roll& roll) {
        return std::make_tuple(step_of(roll), roll.claims.front().is_gradient,
                               time_of(roll), roll.team->id, roll.number);
    };
    std::vector<Roll*> unlike;
    for (const Key& key : complete_)
        if (Roll& roll = open_.at(key); !all_same(roll)) unlike.push_back(&roll);
    std::ranges::sort(unlike, [&](const Roll* one, const Roll* other) {
        return order(*one) < order(*other);
    });
    for (Roll* const roll : unlike)
        report_(explain_(*roll, sides_in(*roll)));
    for (const Key& key : complete_) {
        drop_values(open_.at(key));
        open_.erase(key);
    }
    complete_.clear();
}

void Rollcall::compare_new() {
    if (!std::exchange(noted_, false)) return;
    compare();
    forget_old();
}

std::vector<const Rollcall::Roll*> Rollcall::incomplete() const {
    std::vector<const Roll*> rolls;
    for (const auto& [key, roll] : open_)
        if (roll.claims.size() < roll.team->ranks.size()) rolls.push_back(&roll);
    return rolls;
}

FirstDifference first_difference(const Rollcall::Roll& roll, const Rollcall::Claim& odd,
                                 const Rollcall::Claim& usual) {
    const HostTensor* const a = roll.values_of(odd);
    const HostTensor* const b = roll.values_of(usual);
    if (a == nullptr || b == nullptr || !(odd.shape == usual.shape) ||
        odd.dtype != usual.dtype)
        return {};
    const BitDifference difference = difference_in_bits(*a, *b);
    if (difference.first < 0) return {};
    return {"element " + element_text(odd.shape, difference.first),
            value_text(*a, difference.first), value_text(*b, difference.first),
            fmt::format("{} of {} elements differ", difference.elements, a->elements())};
}

}  // namespace lockstep::sim
