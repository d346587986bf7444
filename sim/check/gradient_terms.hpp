#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/check/origin.hpp"
#include "sim/check/shadow.hpp"

namespace lockstep::sim {

/// The terms of which a gradient is the sum.
struct GradientTerms {
    std::map<int, int> ranks;  ///< ranks whose backward has added to it, and how often
    std::vector<Origin> sums;  ///< its sums over ranks, oldest first
};
using KnownTerms = std::shared_ptr<const GradientTerms>;

/// Follows the terms of gradients from the backward that adds them to zeros, on each
/// rank, through copies and sums over ranks. This tracker finds no mistakes itself. If
/// other watchers find gradients that differ, it tells why.
class TermsTracker final : public Tracker<KnownTerms> {
  public:
    explicit TermsTracker(std::size_t ranks);

    /// Returns null unless the terms are known and are the same in the whole tensor.
    KnownTerms terms_of(int rank, const Tensor& tensor) const;

    void executing(int rank, const DeviceOperation& operation) override;
    void collective_begins(const Team& team, const Meeting& meeting) override;
    void message_ended(Posted& send, Posted& recv) override;

  private:
    void add_own(int rank, const DeviceOperation& operation);
    void add(int rank, const DeviceOperation& operation);
    Ranges summed(const Meeting& meeting) const;

    KnownTerms nothing_;
    std::vector<KnownTerms> own_;  ///< by rank
};

/// A gradient for messages: the ranks that hold it, and its terms.
struct HeldTerms {
    std::vector<int> ranks;
    KnownTerms terms;
};

/// Returns "the gradient on ranks 12, 14 lacks the terms of ranks 0, 2, which
/// all_reduce(…) of tied at train.cpp:12 has added on ranks 8, 10". Empty if both have
/// the same terms, or if the terms of one gradient are not known.
std::string terms_text(const HeldTerms& usual, const HeldTerms& odd);

}  // namespace lockstep::sim
