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

/// Returns the items in sides of which all are alike: the largest side first, and of
/// equal ones the one whose first item comes first.
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

/// Compares what members of a team say of one thing that should be the same for all.
///
/// Claims of one number belong together. The number counts each member's claims in order,
/// or stands for something that is the same on all members. Claims are noted while ranks
/// run, and compared when all members have made theirs and the run is quiet, in an order
/// of virtual things alone. None of this takes virtual time or sends bytes.
class Rollcall {
  public:
    struct Claim {
        int member = 0;
        bool reads = false;        ///< the thing, rather than holds it
        bool is_gradient = false;  ///< of the step; else the parameter before it
        bool is_in_part = false;   ///< only a part of the values was reduced
        std::uint64_t hash = 0;    ///< equal for equal values, with the shape and dtype
        Shape shape;
        DType dtype = DType::f32;
        std::string name;        ///< of the thing
        SourceLine at;           ///< the call that makes the claim
        const char* by = "";     ///< that call's name, for who tells it
        SourceLine declared_at;  ///< the line that declared the thing, if one did
        SourceLine made_at;      ///< the line that made what is read, if it is known
        std::string reduced;     ///< by which collective the values were, for who knows
        std::shared_ptr<const GradientTerms> terms;  ///< of a gradient, if known
        std::int64_t clip = -1;  ///< of the rank's, the one that scaled it, if known
        Picoseconds time = 0;
        std::uint64_t step = 0;   ///< of an optimizer, from 1
        std::uint64_t order = 0;  ///< of the member's claims for its team; filled in
        /// The operations that made the values, by bytes, if they are known.
        struct Maker {
            std::int64_t begin;
            std::int64_t end;
            const char* name;
            SourceLine at;
        };
        std::vector<Maker> makers;
    };

    /// Members that say the same.
    struct Side {
        std::vector<const Claim*> claims;
        const Claim& first() const { return *claims.front(); }
        std::vector<int> ranks(const Team& team) const;
    };

    /// The claims of one number.
    struct Roll {
        const Team* team = nullptr;
        std::uint64_t number = 0;
        std::vector<Claim> claims;
        std::vector<bool> heard;  ///< by member: has made its claim
        /// The values behind each hash; null if no claim had any.
        const HostTensor* values_of(const Claim& claim) const;
        std::map<std::uint64_t, HostTensor> values;
    };

    /// Makes the diagnosis of a roll whose sides differ; the usual side, the largest (of
    /// equal ones the one with the lowest member), is first.
    using Explain = std::function<Diagnosis(const Roll&, const std::vector<Side>&)>;

    explicit Rollcall(Explain explain) : explain_(std::move(explain)) {}

    /// Returns the number of a member's next claim, if they go by their order.
    std::uint64_t next_number(const Team& team, int member);

    /// `of_claim` is called if no member has made the same claim before. The second claim
    /// of one number by a member goes to the next number.
    using Values = std::function<HostTensor()>;
    void note(const Team& team, std::uint64_t number, Claim claim,
              const Values& of_claim = {});

    /// The run is quiet: throws FaultError for the first complete roll whose sides
    /// differ.
    void compare();

    /// Compares, if anything was noted since the last time, and drops rolls that some
    /// member will never answer: since then every member of the team has made many
    /// claims, or each that is in it eight times as many.
    void compare_new();

    /// Returns the rolls that not all members have answered, first of the lowest team,
    /// then number.
    std::vector<const Roll*> incomplete() const;

  private:
    using Key = std::pair<int, std::uint64_t>;  // team, number

    /// Limits the values that wait for other members. Claims beyond have none, only their
    /// hash: a diagnosis then names no element, or one, as the host's order has it.
    static constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

    void forget_old();
    void drop_values(Roll& roll);

    Explain explain_;
    std::map<int, std::vector<std::uint64_t>> numbers_;  ///< by team, of each member
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
