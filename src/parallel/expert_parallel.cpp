#include "src/parallel/expert_parallel.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/parallel/arriving.hpp"
#include "src/parallel/exchange_counts.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

namespace {

using Counts = std::vector<std::int64_t>;

/// Cuts the counts into `blocks` blocks of equal length; returns the sum of each.
Counts sums_of_blocks(const Counts& counts, int blocks) {
    const auto block = static_cast<std::ptrdiff_t>(counts.size()) / blocks;
    Counts sums;
    for (int i = 0; i < blocks; ++i)
        sums.push_back(std::accumulate(counts.begin() + i * block,
                                       counts.begin() + (i + 1) * block,
                                       std::int64_t{0}));
    return sums;
}

/// Converts between two orders of rows: by source and then by expert, and by expert and
/// then by source. Costs a copy each way, unless both orders are the same.
class ExpertOrder {
  public:
    /// counts[s * experts + e] is the number of rows from source s for expert e.
    ExpertOrder(Device& device, const Counts& counts, std::int64_t experts, SourceLine at)
        : device_(device) {
        const auto sources = static_cast<std::int64_t>(counts.size()) / experts;
        if (sources == 1 || experts == 1) return;
        std::vector<std::int64_t> begins(counts.size() + 1);
        std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
        HostTensor from({begins.back()}, DType::i32), to(from.shape(), DType::i32);
        std::int64_t place = 0;
        for (std::int64_t e = 0; e < experts; ++e)
            for (std::int64_t s = 0; s < sources; ++s) {
                const auto block = static_cast<std::size_t>(s * experts + e);
                for (std::int64_t i = begins[block]; i < begins[block + 1]; ++i) {
                    from.set(place, static_cast<double>(i));
                    to.set(i, static_cast<double>(place++));
                }
            }
        from_ = device.upload(from, at);
        to_ = device.upload(to, at);
    }

    Tensor by_expert(const Tensor& by_source, SourceLine at) const {
        return taken(by_source, from_, at);
    }
    Tensor by_source(const Tensor& by_expert, SourceLine at) const {
        return taken(by_expert, to_, at);
    }

  private:
    Tensor taken(const Tensor& rows, const Tensor& places, SourceLine at) const {
        if (!places) return rows;
        Tensor taken = device_.empty(rows.shape(), rows.dtype(), at);
        device_.take_rows(taken, rows, places, at);
        return taken;
    }

    Device& device_;
    Tensor from_;  ///< empty if no row moves
    Tensor to_;
};

/// A micro-batch's numbers of rows, after the ranks have exchanged them.
struct Plan {
    Counts sent;      ///< rows for each rank of the group
    Counts received;  ///< rows from each rank of the group
    /// Rows that each rank of the tensor group received, if the group shards columns and
    /// its ranks bring different tokens; else only this rank's rows.
    Counts of_tensor_ranks;
    Counts by_source;  ///< rows from each source for each own expert
    Counts rows;       ///< of each own expert
};

Plan make_plan(Device& device, Communicator& group, Communicator* tensor_ranks,
               const Counts& counts, SourceLine at) {
    Plan plan;
    const auto experts = static_cast<std::int64_t>(counts.size()) / group.size();
    const Counts received = exchange_counts(device, group, counts, at);
    plan.sent = sums_of_blocks(counts, group.size());
    plan.received = sums_of_blocks(received, group.size());
    plan.by_source = received;
    plan.of_tensor_ranks = {total(received)};
    if (tensor_ranks) {
        plan.by_source.clear();
        plan.of_tensor_ranks.clear();
        for (const Counts& of_rank : gather_counts(device, *tensor_ranks, received, at)) {
            plan.by_source.insert(plan.by_source.end(), of_rank.begin(), of_rank.end());
            plan.of_tensor_ranks.push_back(total(of_rank));
        }
    }
    plan.rows.assign(static_cast<std::size_t>(experts), 0);
    for (std::size_t i = 0; i < plan.by_source.size(); ++i)
        plan.rows[i % plan.rows.size()] += plan.by_source[i];
    return plan;
}

/// Says whether a tensor group shards columns, and whether its ranks have all tokens.
enum class Columns { are_whole, gather_tokens, have_all_tokens };

class ExpertDelivery : public Delivery {
  public:
    ExpertDelivery(Device& device, Communicator& group, Communicator* tensor_ranks,
                   Columns columns, Plan plan, SourceLine at)
        : Delivery(plan.rows),
          device_(device),
          group_(group),
          tensor_ranks_(tensor_ranks),
          columns_(columns),
          plan_(std::move(plan)),
          order_(device, plan_.by_source, static_cast<std::int64_t>(plan_.rows.size()),
                 at) {}

    // The rows of `copies` (M, h) are sorted by expert, and so by the experts' ranks.
    // Received rows are written directly to their place among the tensor group's rows.
    void start_there(const Tensor& copies, SourceLine at) override {
        const std::int64_t all = total(plan_.of_tensor_ranks);
        Tensor arriving = device_.empty({all, copies.shape()[1]}, copies.dtype(), at);
        Work work =
            group_.all_to_all_v(own_of(arriving), plan_.received, copies, plan_.sent, at);
        under_way_ = {std::move(arriving), copies, std::move(work)};
    }

    // Returns (rows of all own experts, h), expert by expert.
    Tensor there(SourceLine at) override {
        const Tensor arrived = under_way_.wait(at);
        if (columns_ == Columns::gather_tokens) gather(arrived, at);
        return order_.by_expert(arrived, at);
    }

    void start_back(const Tensor& made, SourceLine at) override {
        const Tensor by_source = order_.by_source(made, at);
        if (columns_ == Columns::gather_tokens) scatter(by_source, at);
        if (columns_ == Columns::have_all_tokens)
            tensor_ranks_->all_reduce(by_source, Reduction::sum, at).wait(at);
        Tensor arriving =
            device_.empty({total(plan_.sent), made.shape()[1]}, made.dtype(), at);
        Work work = group_.all_to_all_v(arriving, plan_.sent, own_of(by_source),
                                        plan_.received, at);
        under_way_ = {std::move(arriving), by_source, std::move(work)};
    }

    Tensor back(SourceLine at) override { return under_way_.wait(at); }

  private:
    // lesson: expert-columns
    // Every rank of the tensor group gets the rows of all ranks of the group.
    void gather(const Tensor& rows, SourceLine at) {
        Group messages = tensor_ranks_->group(at);
        each_part(rows, [&](const Tensor& part, int rank) {
            messages.broadcast(part, rank, at);
        });
        messages.start(at).wait(at);
    }
    // For its own rows, every rank gets the sum of all ranks' results.
    void scatter(const Tensor& rows, SourceLine at) {
        Group messages = tensor_ranks_->group(at);
        each_part(rows, [&](const Tensor& part, int rank) {
            messages.reduce(part, rank, Reduction::sum, at);
        });
        messages.start(at).wait(at);
    }
    // lesson: end

    template <typename Visit>
    void each_part(const Tensor& rows, Visit&& visit) const {
        std::int64_t first = 0;
        for (std::size_t rank = 0; rank < plan_.of_tensor_ranks.size(); ++rank) {
            const std::int64_t count = plan_.of_tensor_ranks[rank];
            if (count > 0) visit(rows.rows(first, count), static_cast<int>(rank));
            first += count;
        }
    }
    /// Returns this rank's part of the rows.
    Tensor own_of(const Tensor& rows) const {
        if (columns_ != Columns::gather_tokens) return rows;
        const Counts& counts = plan_.of_tensor_ranks;
        const auto own = static_cast<std::size_t>(tensor_ranks_->rank());
        const std::int64_t first = std::accumulate(
            counts.begin(), counts.begin() + tensor_ranks_->rank(), std::int64_t{0});
        return rows.rows(first, counts[own]);
    }

    Device& device_;
    Communicator& group_;
    Communicator* tensor_ranks_;  ///< null if columns are whole
    Columns columns_;
    Plan plan_;
    ExpertOrder order_;
    Arriving under_way_;
};

std::string axis_of(const Mesh& mesh, const Communicator& tensor_group) {
    for (const Mesh::Axis& axis : mesh.axes())
        if (&mesh[axis.name] == &tensor_group) return axis.name;
    throw UsageError(
        fmt::format("expert_parallel: the tensor group {} is not a line of this mesh",
                    tensor_group.name()));
}

class ExpertParallel : public ExpertExchange {
  public:
    ExpertParallel(Mesh& mesh, const std::vector<std::string>& axes,
                   const ExpertParallelOptions& options)
        : group_(mesh.plane(axes)), options_(options) {
        std::string tensor_axis;
        if (options.tp) {
            tensor_axis = axis_of(mesh, options.tp->group());
            holds_other_experts_ = std::ranges::count(axes, tensor_axis) > 0;
            require(
                !has_same_tokens() || !holds_other_experts_,
                "expert_parallel: ranks of a tensor group hold the same tokens, but "
                "different experts. If all of them brought all tokens, each expert would "
                "get each token, and its gradient, {} times; leave drop_copies on",
                options.tp->size());
        }
        if (options.batch.empty()) return;
        std::vector<std::string> batch = options.batch;
        const bool is_named = std::ranges::count(batch, tensor_axis) > 0;
        require(!has_same_tokens() || !is_named,
                "expert_parallel: ranks of a tensor group hold the same tokens. If their "
                "axis, {}, were one of the batch, each token would count {} times",
                tensor_axis, options.tp ? options.tp->size() : 1);
        if (has_own_tokens() && !is_named) batch.push_back(tensor_axis);
        batch_ = &mesh.plane(batch);
    }

    std::optional<TokenDeal> of_tensor_group() const override {
        return options_.tp ? std::optional(options_.tp->token_deal()) : std::nullopt;
    }

    Share share(const std::string& layer, std::int64_t experts) const override {
        require(experts % group_.size() == 0,
                "{}: {} experts cannot be sharded over {} ranks; a multiple of {} is "
                "expected",
                layer, experts, group_.size(), group_.size());
        const std::int64_t own = experts / group_.size();
        if (!shares_columns()) return {group_.rank() * own, own, 1, 0};
        return {group_.rank() * own, own, options_.tp->size(), options_.tp->rank()};
    }

    // lesson: expert-places
    void place(const std::vector<Parameter*>& gate,
               const std::vector<Parameter*>& experts) override {
        const auto of_tokens =
            has_same_tokens() ? Placement::Kind::replicated : Placement::Kind::partial;
        for (Parameter* parameter : experts)
            parameter->placements.push_back({&group_, Placement::Kind::sharded});
        if (!options_.tp) return;
        replicate_over(options_.tp->group(), gate, of_tokens);
        if (shares_columns())
            for (Parameter* parameter : experts)
                options_.tp->shard(*parameter);
        else if (!holds_other_experts_)
            replicate_over(options_.tp->group(), experts, of_tokens);
    }
    // lesson: end

    // lesson: expert-tokens
    Tensor own_tokens(const Tensor& x, SourceLine at) override {
        if (!drops()) return x;
        const std::int64_t tokens = x.shape()[0], ranks = options_.tp->size();
        require(tokens % ranks == 0, at,
                "experts: {} tokens cannot be sharded over the {} ranks of a tensor "
                "group; a multiple of {} is expected",
                tokens, ranks, ranks);
        return x.rows(options_.tp->rank() * (tokens / ranks), tokens / ranks);
    }
    Tensor all_tokens(const Tensor& own, SourceLine at) override {
        if (!drops()) return own;
        const Shape& shape = own.shape();
        Tensor all = own.device()->empty(shape.with_first(shape[0] * options_.tp->size()),
                                         own.dtype(), at);
        options_.tp->group().all_gather(all, own, at).wait(at);
        return all;
    }
    // lesson: end

    std::int64_t first_token(std::int64_t own) const override {
        return has_own_tokens() ? options_.tp->rank() * own : 0;
    }
    // If each rank has its own tokens, its loss has weight 1/t; the t losses are summed.
    double token_share() const override {
        return has_own_tokens() ? 1.0 / options_.tp->size() : 1;
    }
    void add_up_loss(const Tensor& loss, SourceLine at) override {
        if (has_own_tokens())
            options_.tp->group().all_reduce(loss, Reduction::sum, at).wait(at);
    }

    CountsOfRanks all_counts(Device& device, const Counts& own, SourceLine at) override {
        if (!batch_) return {{own}, 0};
        auto all = gather_counts(device, *batch_, own, at);
        // In a run of shapes only, all ranks are assumed to have the same counts.
        if (!device.has_numbers()) return {{own}, 0};
        return {std::move(all), static_cast<std::size_t>(batch_->rank())};
    }

    std::unique_ptr<Delivery> deliver(Device& device, const Counts& counts,
                                      SourceLine at) override {
        Columns columns = Columns::are_whole;
        if (shares_columns())
            columns =
                has_same_tokens() ? Columns::have_all_tokens : Columns::gather_tokens;
        Communicator* tensor_ranks = shares_columns() ? &options_.tp->group() : nullptr;
        Plan plan = make_plan(device, group_,
                              columns == Columns::gather_tokens ? tensor_ranks : nullptr,
                              counts, at);
        return std::make_unique<ExpertDelivery>(device, group_, tensor_ranks, columns,
                                                std::move(plan), at);
    }

  private:
    bool shares_columns() const {
        return options_.tp && !holds_other_experts_ && options_.share_columns;
    }
    /// True if the tensor group's ranks hold the same tokens, and each sends a share.
    bool drops() const {
        return options_.tp && !options_.tp->splits_sequence() && options_.drop_copies;
    }
    bool has_same_tokens() const { return options_.tp && !has_own_tokens(); }
    bool has_own_tokens() const {
        return options_.tp && (options_.tp->splits_sequence() || options_.drop_copies);
    }

    Communicator& group_;
    ExpertParallelOptions options_;
    Communicator* batch_ = nullptr;     ///< null: each rank's own tokens are a batch
    bool holds_other_experts_ = false;  ///< tensor ranks hold different experts
};

}  // namespace

std::shared_ptr<ExpertExchange> exchange_experts(Mesh& mesh,
                                                 const std::vector<std::string>& axes,
                                                 const ExpertParallelOptions& options) {
    return std::make_shared<ExpertParallel>(mesh, axes, options);
}

// lesson: expert-parallel
GptKit expert_parallel(GptKit kit, Mesh& mesh, const std::vector<std::string>& axes,
                       const ExpertParallelOptions& options) {
    require(!kit.exchange, "expert_parallel(): the kit's experts are sharded already");
    kit.exchange = [exchange = exchange_experts(mesh, axes, options)](
                       const ParameterInit&) { return exchange; };
    return kit;
}
// lesson: end

namespace {

// lesson: balance-by-bias
/// Adds `rate` to the bias of an expert below the mean load; subtracts it above the mean.
void move_bias(const Tensor& bias, const Counts& load, double rate, SourceLine at) {
    const auto experts = static_cast<std::int64_t>(load.size());
    HostTensor steps({experts}, bias.dtype());
    for (std::int64_t e = 0; e < experts; ++e) {
        const std::int64_t own = experts * load[static_cast<std::size_t>(e)];
        const std::int64_t mean = total(load);  // both times `experts`: integers
        steps.set(e, own < mean ? rate : own > mean ? -rate : 0);
    }
    Device& device = *bias.device();
    device.add(bias, device.upload(steps, at), 1, at);
}
// lesson: end

}  // namespace

std::vector<Counts> balance_by_bias(Device& device, Communicator& ranks,
                                    const std::vector<MixtureOfExperts*>& layers,
                                    double rate, SourceLine at) {
    require(std::isfinite(rate), at,
            "balance_by_bias: the rate is {}; a number is expected", rate);
    if (layers.empty()) return {};
    Counts own;
    std::vector<Counts> loads;
    for (MixtureOfExperts* layer : layers) {
        loads.push_back(layer->take_load());
        own.insert(own.end(), loads.back().begin(), loads.back().end());
    }
    const Counts all = add_up_counts(device, ranks, own, at);
    for (std::size_t i = 0, first = 0; i < layers.size(); first += loads[i++].size()) {
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), loads[i].size(),
                    loads[i].begin());
        const Tensor& bias = layers[i]->gate().bias();
        if (bias && device.has_numbers()) move_bias(bias, loads[i], rate, at);
    }
    return loads;
}

}  // namespace lockstep
