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

/// The way of a micro-batch's copies of tokens to their experts, and of what these make
/// of them back. Gradients go the same way: those of what came back go there, and those
/// of what came there go back. So backward makes the same calls as forward.
///
///     way.start_there(copies);   (M, h), expert by expert
///     made = … way.there() …     (the sum of rows(), h), this rank's experts'
///     way.start_back(made);
///     way.back()                 (M, h), as they were started
///
/// By itself, what one device does: nothing. What is started may run beside what the
/// device does until it is asked for; the tensors that come belong to the caller.
class Delivery {
  public:
    /// `rows` of each expert.
    explicit Delivery(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {}
    virtual ~Delivery() = default;
    Delivery(const Delivery&) = delete;
    Delivery& operator=(const Delivery&) = delete;

    /// The rows that each of this rank's experts gets.
    const std::vector<std::int64_t>& rows() const { return rows_; }

    virtual void start_there(const Tensor& copies, SourceLine /*at*/) { moved_ = copies; }
    virtual Tensor there(SourceLine /*at*/) { return std::move(moved_); }
    virtual void start_back(const Tensor& made, SourceLine /*at*/) { moved_ = made; }
    virtual Tensor back(SourceLine /*at*/) { return std::move(moved_); }

  private:
    std::vector<std::int64_t> rows_;
    Tensor moved_;
};

/// How ranks share out the experts of a layer, and its tokens. By itself, what one device
/// does alone; src/parallel/expert_parallel.hpp has what several do.
class ExpertExchange {
  public:
    using Counts = std::vector<std::int64_t>;

    ExpertExchange() = default;
    virtual ~ExpertExchange() = default;
    ExpertExchange(const ExpertExchange&) = delete;
    ExpertExchange& operator=(const ExpertExchange&) = delete;

    /// A rank holds some experts, and of each some of its inner columns.
    struct Share {
        std::int64_t first = 0;
        std::int64_t count = 0;
        int column_ranks =
            1;  ///< ranks among which the columns of an expert are shared out
        int column_rank = 0;
    };
    /// Throws UsageError, which begins with `layer`, unless all get as many.
    virtual Share share(const std::string& /*layer*/, std::int64_t experts) const {
        return {0, experts};
    }
    /// Says which tokens ranks that share out the layers around experts hold outside of
    /// them; nothing if it does not know such ranks.
    virtual std::optional<TokenDeal> of_tensor_group() const { return {}; }
    /// Says where the parameters lie: of the gate, and of this rank's experts.
    virtual void place(const std::vector<Parameter*>& /*gate*/,
                       const std::vector<Parameter*>& /*experts*/) {}

    /// Of the layer's tokens x (N, h), those that this rank brings to experts; and back,
    /// from what each rank has of its own, to all. Each is the other's gradient.
    virtual Tensor own_tokens(const Tensor& x, SourceLine /*at*/) { return x; }
    virtual Tensor all_tokens(const Tensor& own, SourceLine /*at*/) { return own; }

    /// The place of the first of N own tokens among all of the micro-batch.
    virtual std::int64_t first_token(std::int64_t /*own*/) const { return 0; }
    /// The part of the micro-batch's tokens that this rank has of its own, if several
    /// ranks report the same loss of it.
    virtual double token_share() const { return 1; }
    /// Adds up a loss (1) of such ranks, each of which has its tokens' terms.
    virtual void add_up_loss(const Tensor& /*loss*/, SourceLine /*at*/) {}

    /// The counts of every rank whose tokens are of the batch.
    virtual CountsOfRanks all_counts(Device& /*device*/, const Counts& own,
                                     SourceLine /*at*/) {
        return {{own}, 0};
    }

    /// Prepares to deliver so many copies for each of all experts.
    virtual std::unique_ptr<Delivery> deliver(Device& /*device*/, const Counts& counts,
                                              SourceLine /*at*/) {
        return std::make_unique<Delivery>(counts);
    }
};

}  // namespace lockstep
