#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/team.hpp"
#include "src/run/diagnosis.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

/// A collective that has made values. It is kept after its end, for checks that follow
/// values.
struct CollectiveOrigin : PastOperation {  // the call of its lowest rank
    /// "all_reduce(sum, 64 x f32) of dp".
    std::string text() const;
    /// "all_reduce(sum, 64 x f32) of dp at train.cpp:12".
    std::string text_with_line() const;
    /// Returns the collective's ranks and their call, as a party of a mistake.
    Diagnosis::Party party() const;
};
using Origin = std::shared_ptr<const CollectiveOrigin>;

/// Returns the origin of the values that a meeting makes. All members are present.
Origin origin_of(const Meeting& meeting);

/// Returns a party of a mistake: what its ranks did, and where.
Diagnosis::Party party(std::vector<int> ranks, std::string operation, SourceLine at,
                       std::string differs = "");

/// Returns the team's ranks in ascending order.
std::vector<int> sorted_ranks(const Team& team);
/// Returns whether every rank of `inner` is one of `outer`.
bool contains(const Team& outer, const Team& inner);
bool same_ranks(const Team& one, const Team& other);

/// Mixes two numbers into one, to identify how values were made.
constexpr std::uint64_t mixed(std::uint64_t seed, std::uint64_t value) {
    seed ^= value + 0x9e3779b97f4a7c15 + (seed << 6) + (seed >> 2);
    seed ^= seed >> 31;
    return seed * 0xbf58476d1ce4e5b9;
}
/// Returns a number that identifies a call of a collective.
inline std::uint64_t identity_of(const CollectiveOrigin& origin) {
    return mixed(mixed(0x636f6c6c, static_cast<std::uint64_t>(origin.team->id)),
                 origin.sequence);
}

/// Returns a diagnosis of the class, with the communicator filled in.
inline Diagnosis diagnosis_on(const Team& team, const std::string& fault) {
    Diagnosis diagnosis = diagnosis_of(fault);
    diagnosis.communicator = team.name;
    diagnosis.members = team.ranks;
    return diagnosis;
}

/// Returns a diagnosis of the class, with communicator and collective filled in.
inline Diagnosis diagnosis_on(const Team& team, std::uint64_t sequence,
                              const std::string& fault) {
    Diagnosis diagnosis = diagnosis_on(team, fault);
    diagnosis.sequence = static_cast<std::int64_t>(sequence);
    return diagnosis;
}

}  // namespace lockstep::sim
