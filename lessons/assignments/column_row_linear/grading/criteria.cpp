#include "lessons/assignments/column_row_linear/grading/criteria.hpp"

#include "lessons/assignments/column_row_linear/grading/given.hpp"

namespace lockstep::lessons {

namespace {

using namespace column_row;

/// Rank by rank, what a run left against what it must.
class Comparison {
  public:
    Comparison(Judge& judge, const Ran& ran) : judge_(judge), ran_(ran) {}

    /// `expected(rank)`.
    void close(const std::string& name, const std::function<HostTensor(int)>& expected) {
        for (int rank = 0; rank < ran_.sizes.ranks; ++rank)
            judge_.close(fmt::format("{}: {} on rank {}", ran_.name, name, rank),
                         left(rank, name), expected(rank));
    }
    void whole(const std::string& name, const HostTensor& expected) {
        close(name, [&](int) { return expected; });
    }
    /// The rows that belong to each rank's share of `count`.
    void rows(const std::string& name, std::int64_t count, const HostTensor& expected) {
        close(name, [&](int rank) {
            const Chunk own = chunk(count, ran_.sizes.ranks, rank);
            return expected.rows(own.begin, own.count);
        });
    }
    void columns(const std::string& name, std::int64_t count,
                 const HostTensor& expected) {
        close(name, [&](int rank) {
            return one_device::columns(expected, chunk(count, ran_.sizes.ranks, rank));
        });
    }
    /// All that ranks were given is as it was.
    void given() {
        for (int rank = 0; rank < ran_.sizes.ranks; ++rank)
            for (const auto& [name, tensor] : ran_.given[at(rank)].tensors)
                judge_.close(fmt::format("{}: {} of rank {} after {}", ran_.name, name,
                                         rank, ran_.given[at(rank)].task),
                             left(rank, "given " + name), tensor.values, 0);
    }
    void none(const std::string& name) {
        for (int rank = 0; rank < ran_.sizes.ranks; ++rank)
            judge_.ask(!ran_.left.ranks[at(rank)].tensors.contains(name),
                       fmt::format("{}: no {} on rank {}", ran_.name, name, rank),
                       "a tensor");
    }

  private:
    static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
    const HostTensor& left(int rank, const std::string& name) {
        return judge_.left(ran_.left.ranks[at(rank)], name);
    }

    Judge& judge_;
    const Ran& ran_;
};

// Runs whose values are right. Bytes, time and memory count of no others: doing nothing
// is fast.

Ran column_forward(Judge& judge, const Sizes& sizes) {
    Ran ran = run_column(judge, "column_forward", sizes);
    Comparison(judge, ran).columns("y", sizes.out, linear_of(judge, sizes).y());
    return ran;
}

Ran column_backward(Judge& judge, const Sizes& sizes, Dx dx) {
    const one_device::Linear whole = linear_of(judge, sizes);
    Ran ran = run_column(judge, "column_backward", sizes, dx);
    Comparison left(judge, ran);
    if (dx == Dx::wanted) left.whole("dx", whole.dx());
    left.rows("d_weight", sizes.out, whole.d_weight());
    left.rows("d_bias", sizes.out, whole.d_bias());
    return ran;
}

Ran row_forward(Judge& judge, const Sizes& sizes) {
    Ran ran = run_row(judge, "row_forward", sizes);
    Comparison(judge, ran).whole("y", linear_of(judge, sizes).y());
    return ran;
}

Ran row_backward(Judge& judge, const Sizes& sizes) {
    const one_device::Linear whole = linear_of(judge, sizes);
    Ran ran = run_row(judge, "row_backward", sizes);
    Comparison left(judge, ran);
    left.columns("dx", sizes.in, whole.dx());
    left.columns("d_weight", sizes.in, whole.d_weight());
    left.whole("d_bias", whole.d_bias());
    return ran;
}

Ran mlp_forward(Judge& judge, const Sizes& sizes) {
    Ran ran = run_mlp(judge, "mlp_forward", sizes);
    Comparison(judge, ran).whole("y", mlp_of(judge, sizes).second.y());
    return ran;
}

Ran mlp_both_ways(Judge& judge, const Sizes& sizes, Dx dx) {
    const one_device::Mlp whole = mlp_of(judge, sizes);
    Ran ran = run_mlp(judge, "mlp", sizes, dx);
    Comparison left(judge, ran);
    left.whole("y", whole.second.y());
    if (dx == Dx::wanted) left.whole("dx", whole.first.dx());
    left.rows("d_weight1", sizes.out, whole.first.d_weight());
    left.rows("d_bias1", sizes.out, whole.first.d_bias());
    left.columns("d_weight2", sizes.out, whole.second.d_weight());
    left.whole("d_bias2", whole.second.d_bias());
    return ran;
}

void judge_given(Judge& judge, const Ran& ran) {
    Comparison(judge, ran).given();
}

void judge_column(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_given(judge, column_forward(judge, sizes));
        judge_given(judge, column_backward(judge, sizes, Dx::wanted));
        judge_given(judge, column_backward(judge, sizes, Dx::unwanted));
    }
}

void judge_row(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_given(judge, row_forward(judge, sizes));
        judge_given(judge, row_backward(judge, sizes));
    }
}

void judge_mlp(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_given(judge, mlp_forward(judge, sizes));
        judge_given(judge, mlp_both_ways(judge, sizes, Dx::wanted));
        judge_given(judge, mlp_both_ways(judge, sizes, Dx::unwanted));
    }
}

/// What each rank sends. Another ring may hand other chunks on, and other all-reduces
/// need fewer messages.
void judge_sent(Judge& judge, const std::string& part, const std::string& what,
                const Ran& ran) {
    for (std::size_t rank = 0; rank < ran.left.report.ranks.size(); ++rank) {
        const RankReport& left = ran.left.report.ranks[rank];
        const std::string name =
            fmt::format("{}: {}: {}: rank {}", part, ran.sizes.name(), what, rank);
        judge.as_reference(name + ": sent", "bytes", left.bytes_sent(), {4, 4});
        judge.as_reference(name + ": messages", "messages", left.messages_sent(),
                           {100, 0});
    }
}

void judge_unwanted(Judge& judge, const std::string& part, const std::string& what,
                    const Ran& ran) {
    Comparison(judge, ran).none("dx");
    judge_sent(judge, part, what, ran);
}

void judge_column_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_sent(judge, "a3.1", "forward", column_forward(judge, sizes));
        judge_sent(judge, "a3.1", "backward", column_backward(judge, sizes, Dx::wanted));
        judge_unwanted(judge, "a3.1", "backward, dx unwanted",
                       column_backward(judge, sizes, Dx::unwanted));
    }
}

void judge_row_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_sent(judge, "a3.2", "forward", row_forward(judge, sizes));
        judge_sent(judge, "a3.2", "backward", row_backward(judge, sizes));
    }
}

void judge_mlp_bytes(Judge& judge) {
    for (const Sizes& sizes : layers(judge)) {
        judge_sent(judge, "a3.3", "forward", mlp_forward(judge, sizes));
        judge_sent(judge, "a3.3", "both ways", mlp_both_ways(judge, sizes, Dx::wanted));
        judge_unwanted(judge, "a3.3", "both ways, dx unwanted",
                       mlp_both_ways(judge, sizes, Dx::unwanted));
    }
}

void judge_time(Judge& judge, const std::string& what, const Ran& ran, int percent_more) {
    judge.as_reference(fmt::format("{}: {}: time", what, ran.sizes.name()), kPicoseconds,
                       ran.left.report.makespan(), {100, percent_more});
}

void judge_column_time(Judge& judge) {
    judge_time(judge, "a3.1: backward", column_backward(judge, kSlow, Dx::wanted), 25);
    judge_time(judge, "a3.1: backward, dx unwanted",
               column_backward(judge, kSlow, Dx::unwanted), 25);
}

/// A product more, or a dx that is waited for at once, takes 13 % more.
void judge_mlp_time(Judge& judge) {
    judge_time(judge, "a3.3: both ways", mlp_both_ways(judge, kSlow, Dx::wanted), 10);
}

void judge_mlp_memory(Judge& judge) {
    const Ran ran = mlp_both_ways(judge, kLarge, Dx::wanted);
    for (std::size_t rank = 0; rank < ran.left.report.ranks.size(); ++rank)
        judge.as_reference(fmt::format("a3.3: {}: rank {}: peak", kLarge.name(), rank),
                           "bytes of memory", ran.left.report.ranks[rank].memory.peak,
                           {100, 30});
}

}  // namespace

Assignment column_row_linear_assignment() {
    return {
        "column-row-linear",
        "A linear layer by columns and by rows",
        "Forward and backward of a layer shared out to any number of ranks, by columns "
        "and by rows, and of an MLP with one all-reduce each way.",
        {"layers.hpp", "layers.cpp", "adapters.cpp"},
        {{"a3.1-values", "by columns: each rank's y and gradients, and dx on all", 15,
          "column-linear, step 3", judge_column},
         {"a3.1-bytes", "by columns: one all-reduce backward, none forward", 10,
          "column-linear, step 3", judge_column_bytes},
         {"a3.1-time", "by columns: dx is on its way while the weight's gradient is made",
          10, "column-linear, step 3", judge_column_time},
         {"a3.2-values", "by rows: y on all ranks, and each rank's gradients", 15,
          "column-linear, step 4", judge_row},
         {"a3.2-bytes", "by rows: one all-reduce forward, none backward", 10,
          "column-linear, step 4", judge_row_bytes},
         {"a3.3-values", "the MLP's y, dx and gradients are one device's", 15,
          "column-linear, step 5", judge_mlp},
         {"a3.3-bytes", "the MLP makes one all-reduce each way, and sends nothing else",
          10, "column-linear, step 5", judge_mlp_bytes},
         {"a3.3-time", "the MLP takes no rank longer than its share of the work", 5,
          "column-linear, step 6", judge_mlp_time},
         {"a3.3-memory", "no rank of the MLP has room for a whole weight", 10,
          "column-linear, step 6", judge_mlp_memory}}};
}

}  // namespace lockstep::lessons
