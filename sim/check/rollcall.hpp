#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/team.hpp"
#include "src/core/bits.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

struct GradientTerms;

/// Groups items that are alike into sides. The largest side comes first; sides of the
/// same size are in the order of their first items.
template <typename Item, typename Alike>
std::vector<std::vector<Item>> sides_of(const std::vector<Item>& items, Alike alike) {
    std::vector<std::vector<Item>> sides;
    for (const Item& item : items) {
        const auto side = std::find_if(sides.begin(), sides.end(), [&](const auto& s) {
            return alike(s.front(), item);
        });
        if (side == sides.end())
            sides.push_back({item});
        else
            side->push_back(item);
    }
    std::stable_sort(sides.begin(), sides.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return sides;
}

/// Compares claims of a team's members about a thing that should be the same for all.
///
/// Claims with the same number belong together. The number counts each member's claims in
/// order, or identifies something that is the same on all members. Claims are noted while
/// ranks run. They are compared when all members have made their claims and the run is
/// quiet, in an order that depends only on virtual quantities. This takes no virtual time
/// and sends no bytes.
class Rollcall {
  public:
    struct Claim {
        int member = 0;
        bool reads = false;        ///< the member reads (true) or holds the thing
        bool is_gradient = false;  ///< a gradient; else a parameter before the step
        bool is_in_part = false;   ///< only a part of the values was reduced
        std::uint64_t hash = 0;    ///< values are equal if hash, shape and dtype are
        Shape shape;
        DType dtype = DType::f32;
        std::string name;        ///< of the thing
        SourceLine at;           ///< the call that makes the claim
        const char* call = "";   ///< that call's name, for messages
        SourceLine declared_at;  ///< the line that declared the thing, if any
        SourceLine made_at;      ///< the line that made the read values, if known
        std::string reduced;     ///< the collective that reduced the values, if known
        std::shared_ptr<const GradientTerms> terms;  ///< of a gradient, if known
        std::int64_t clip = -1;  ///< number of the rank's clip that scaled it, if known
        Picoseconds time = 0;
        std::uint64_t step = 0;   ///< of an optimizer, from 1
        std::uint64_t order = 0;  ///< place among its member's claims; set by note()
        /// The operations that made the values, each with its bytes, if they are known.
        struct Maker {
            std::int64_t begin;
            std::int64_t end;
            const char* name;
            SourceLine at;
        };
        std::vector<Maker> makers;
    };

    /// Members that claim the same.
    struct Side {
        std::vector<const Claim*> claims;
        const Claim& first() const { return *claims.front(); }
        std::vector<int> ranks(const Team& team) const;
    };

    /// All claims with one number.
    struct Roll {
        const Team* team = nullptr;
        std::uint64_t number = 0;
        std::vector<Claim> claims;
        std::vector<bool> heard;  ///< by member: whether it has made its claim
        /// Returns the values behind a claim's hash; null if no claim had any.
        const HostTensor* values_of(const Claim& claim) const;
        std::map<std::uint64_t, HostTensor> values;
    };

    /// Makes the diagnosis of a roll whose sides differ. The usual side is first: the
    /// largest side or, of equally large sides, the one with the lowest member.
    using Explain = std::function<Diagnosis(const Roll&, const std::vector<Side>&)>;

    /// Receives a diagnosis; throws it, unless it is meant.
    using Report = std::function<void(Diagnosis)>;

    Rollcall(Explain explain, Report report)
        : explain_(std::move(explain)), report_(std::move(report)) {}

    /// Returns the number of a member's next claim, if numbers count claims in order.
    std::uint64_t next_number(const Team& team, int member);

    /// Notes a claim. Calls `of_claim` for the values, unless a member has claimed the
    /// same. If the member has already made a claim with this number, the claim gets the
    /// next number.
    using Values = std::function<HostTensor()>;
    void note(const Team& team, std::uint64_t number, Claim claim,
              const Values& of_claim = {});

    /// When the run is quiet: reports complete rolls whose sides differ, in order.
    void compare();

    /// Compares if claims were noted since the last call. Then drops rolls that some
    /// member will never answer: after a roll's last claim, every member of the team has
    /// made kClaims claims, or every member in the roll has made 8 kClaims.
    void compare_new();

    /// Returns the rolls that not all members have answered, by team, then by number.
    std::vector<const Roll*> incomplete() const;

  private:
    using Key = std::pair<int, std::uint64_t>;  // team, number

    /// The most bytes of values that are kept until other members make their claims. Any
    /// further claim keeps only its hash; then the order in which the host runs ranks
    /// decides whether a diagnosis names an element.
    static constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

    void forget_old();
    void drop_values(Roll& roll);

    Explain explain_;
    Report report_;
    std::map<int, std::vector<std::uint64_t>> numbers_;  ///< by team: claims per member
    std::map<Key, Roll> open_;
    std::vector<Key> complete_;
    std::int64_t bytes_ = 0;  ///< of all rolls' values
    bool noted_ = false;      ///< since compare_new()
};

/// The first element in which two sides differ, for messages; the texts are empty if
/// shapes differ or no values are known.
struct FirstDifference {
    std::string element;  ///< "element [0, 3]"
    std::string odd;      ///< its value
    std::string usual;
    std::string differing;  ///< "5 of 64 elements differ"
};
FirstDifference first_difference(const Rollcall::Roll& roll, const Rollcall::Claim& odd,
                                 const Rollcall::Claim& usual);

}  // namespace lockstep::sim
