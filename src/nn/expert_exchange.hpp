#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/nn/parameter.hpp"
#include "src/nn/routing.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

/// Sends a micro-batch's copies of tokens to their experts, and the experts' results
/// back. Gradients go the same way: the results' gradients go to the experts, and the
/// copies' gradients come back. So backward makes the same calls as forward.
///
///     way.start_there(copies);   (M, h), expert by expert
///     made = … way.there() …     (the sum of rows(), h), of this rank's experts
///     way.start_back(made);
///     way.back()                 (M, h), in the order of the copies
///
/// This class is for one device: it sends nothing. A started message may overlap with
/// other work of the device until the caller asks for its result. The caller owns the
/// tensors that arrive.
class Delivery {
  public:
    /// `rows` are the numbers of rows for each of this rank's experts.
    explicit Delivery(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {}
    virtual ~Delivery() = default;
    Delivery(const Delivery&) = delete;
    Delivery& operator=(const Delivery&) = delete;

    const std::vector<std::int64_t>& rows() const { return rows_; }

    virtual void start_there(const Tensor& copies, SourceLine /*at*/) { moved_ = copies; }
    virtual Tensor there(SourceLine /*at*/) { return std::move(moved_); }
    virtual void start_back(const Tensor& made, SourceLine /*at*/) { moved_ = made; }
    virtual Tensor back(SourceLine /*at*/) { return std::move(moved_); }

  private:
    std::vector<std::int64_t> rows_;
    Tensor moved_;
};

/// Says how ranks shard a layer's experts and tokens. This class is for a single device;
/// exchange_experts() (src/parallel/expert_parallel.hpp) makes one for several devices.
class ExpertExchange {
  public:
    using Counts = std::vector<std::int64_t>;

    ExpertExchange() = default;
    virtual ~ExpertExchange() = default;
    ExpertExchange(const ExpertExchange&) = delete;
    ExpertExchange& operator=(const ExpertExchange&) = delete;

    /// A rank's share: some experts, and some of the inner columns of each of them.
    struct Share {
        std::int64_t first = 0;
        std::int64_t count = 0;
        int column_ranks = 1;  ///< ranks that shard the columns of an expert
        int column_rank = 0;
    };
    /// Returns this rank's share. Throws a UsageError that begins with `layer` unless all
    /// ranks get the same number of experts.
    virtual Share share(const std::string& /*layer*/, std::int64_t experts) const {
        return {0, experts};
    }
    /// If ranks shard the layers around the experts, returns which tokens each rank has
    /// outside those layers; otherwise returns nothing.
    virtual std::optional<TokenDeal> of_tensor_group() const { return {}; }
    /// Declares the placements of the parameters of the gate and of this rank's experts.
    virtual void place(const std::vector<Parameter*>& /*gate*/,
                       const std::vector<Parameter*>& /*experts*/) {}

    /// own_tokens returns the tokens of x (N, h) that this rank sends to experts;
    /// all_tokens joins all ranks' own tokens. Each is the other function's backward.
    virtual Tensor own_tokens(const Tensor& x, SourceLine /*at*/) { return x; }
    virtual Tensor all_tokens(const Tensor& own, SourceLine /*at*/) { return own; }

    /// Returns the index in the micro-batch of the first of this rank's `own` tokens.
    virtual std::int64_t first_token(std::int64_t /*own*/) const { return 0; }
    /// If several ranks report the same loss for a micro-batch, returns this rank's
    /// fraction of the micro-batch's tokens; else 1.
    virtual double token_share() const { return 1; }
    /// Sums a loss (1) over the ranks that report the same loss.
    virtual void add_up_loss(const Tensor& /*loss*/, SourceLine /*at*/) {}

    /// Returns the counts of copies on all ranks of the batch; `own` is this rank's part.
    virtual CountsOfRanks all_counts(Device& /*device*/, const Counts& own,
                                     SourceLine /*at*/) {
        return {{own}, 0};
    }

    /// Prepares to deliver copies: `counts` has the number of copies for each expert.
    virtual std::unique_ptr<Delivery> deliver(Device& /*device*/, const Counts& counts,
                                              SourceLine /*at*/) {
        return std::make_unique<Delivery>(counts);
    }
};

}  // namespace lockstep
