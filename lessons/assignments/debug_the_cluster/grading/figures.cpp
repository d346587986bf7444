#include "lessons/assignments/debug_the_cluster/grading/figures.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "lessons/assignments/cost_of.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"

namespace lockstep::lessons {

namespace {

using Of = Figure::Of;

constexpr std::int64_t kElementBytes = 8;
constexpr std::int64_t kNumberBytes = 8;

std::int64_t with_percent(std::int64_t value, int percent) {
    return value + (value * percent + 99) / 100;
}

/// A rank sends as many messages in an all-reduce.
std::int64_t hops(int ranks) {
    return 2 * (std::int64_t{ranks} - 1);
}

/// All ranks together send these bytes in an all-reduce.
std::int64_t reduced_bytes(int ranks, std::int64_t elements) {
    return hops(ranks) * elements * kElementBytes;
}

/// A rank sends these bytes at most, as chunks differ by an element.
std::int64_t most_reduced_bytes(int ranks, std::int64_t elements) {
    return hops(ranks) * ((elements + ranks - 1) / ranks) * kElementBytes;
}

}  // namespace

/// Ranks that first agree whether any has a document send a number more a step, and may
/// leave out what follows. Gradients may go in one message or in two.
Figures filter_figures(const FilterSizes& sizes) {
    const std::int64_t a_step =
        reduced_bytes(sizes.ranks, sizes.in * sizes.out + sizes.out);
    const std::int64_t number = hops(sizes.ranks) * kNumberBytes;
    const std::int64_t of_rank = most_reduced_bytes(sizes.ranks, sizes.in * sizes.out) +
                                 most_reduced_bytes(sizes.ranks, sizes.out);
    Figures figures{{Of::bytes, Figure::kAllRanks,
                     (sizes.steps - sizes.empty_steps) * a_step,
                     sizes.steps * (a_step + sizes.ranks * number)}};
    for (int rank = 0; rank < sizes.ranks; ++rank) {
        figures.push_back({Of::bytes, rank, 0, sizes.steps * (of_rank + number)});
        figures.push_back({Of::messages, rank, 0, 3 * hops(sizes.ranks) * sizes.steps});
    }
    return figures;
}

namespace {

/// A stage that follows a schedule with messages: the layer y = tanh(x W) of each stage,
/// and the squared error.
class StageWork {
  public:
    StageWork(Rank& rank, const PipelineSizes& sizes)
        : rank_(rank),
          device_(rank.device()),
          sizes_(sizes),
          weight_(empty(sizes.width)),
          gradient_(empty(sizes.width)) {
        device_.fill(gradient_, 0);
    }

    void follow(const Schedule& schedule) {
        const int stage = rank_.index();
        const int count = static_cast<int>(schedule.of(stage).size());
        for (int i = 0; i < count;) {
            const Positions together = schedule.together({stage, i});
            if (is_message(schedule.at({stage, i}).kind)) {
                Group group = rank_.world().group();
                for (int each = i; each < together.last; ++each)
                    add_to(group, schedule.at({stage, each}));
                group.start().wait();
            } else {
                compute(schedule.at({stage, i}));
            }
            i = together.last;
        }
    }

  private:
    Tensor empty(std::int64_t rows) const {
        return device_.empty({rows, sizes_.width}, DType::f64);
    }
    void add_to(Group& group, const Instruction& message) {
        using enum InstructionKind;
        const int i = message.micro_batch, stage = rank_.index();
        if (message.kind == send_activation) group.send(y_.at(i), stage + 1);
        if (message.kind == recv_activation)
            group.recv(x_[i] = empty(sizes_.rows), stage - 1);
        if (message.kind == send_gradient) group.send(dx_.at(i), stage - 1);
        if (message.kind == recv_gradient)
            group.recv(dy_[i] = empty(sizes_.rows), stage + 1);
    }
    void compute(const Instruction& work) {
        const int i = work.micro_batch;
        if (work.kind == InstructionKind::forward) {
            if (rank_.index() == 0) x_[i] = empty(sizes_.rows);
            y_[i] = device_.tanh(device_.matmul(x_[i], weight_));
        } else if (work.kind == InstructionKind::backward) {
            if (rank_.index() + 1 == sizes_.ranks)
                dy_[i] = device_.squared_error_backward(y_[i], empty(sizes_.rows), 1);
            const Tensor d_product = device_.tanh_backward(y_[i], dy_[i]);
            device_.matmul_into(gradient_, x_[i], d_product,
                                {.transpose_a = true, .accumulate = true});
            dx_[i] = device_.matmul(d_product, weight_, {.transpose_b = true});
        }
    }

    Rank& rank_;
    Device& device_;
    PipelineSizes sizes_;
    Tensor weight_, gradient_;
    std::map<int, Tensor> x_, y_, dy_, dx_;  // by micro-batch
};

std::int64_t pipeline_time(const PipelineSizes& sizes) {
    const Schedule schedule = with_grouped_messages(
        one_forward_one_backward_schedule({sizes.ranks, sizes.micro_batches}));
    return cost_of(sizes.ranks,
                   [&](Rank& rank) { StageWork(rank, sizes).follow(schedule); })
        .makespan();
}

/// A stage holds its weight and gradient, the whole input or target if it has it, x (if
/// it was sent) and y of each micro-batch in flight, and three tensors that a layer
/// works with.
std::int64_t pipeline_peak(const PipelineSizes& sizes, int stage, int in_flight) {
    const bool first = stage == 0, last = stage + 1 == sizes.ranks;
    const std::int64_t given =
        std::int64_t{sizes.micro_batches} * (int{first} + int{last});
    const std::int64_t kept = std::int64_t{in_flight} * (first ? 1 : 2);
    return (2 * sizes.width + (given + kept + 3) * sizes.rows) * sizes.width *
           kElementBytes;
}

}  // namespace

Figures pipeline_figures(const PipelineSizes& sizes) {
    const std::int64_t message = sizes.rows * sizes.width * kElementBytes;
    Figures figures;
    for (int stage = 0; stage < sizes.ranks; ++stage) {
        const std::int64_t ways = int{stage > 0} + int{stage + 1 < sizes.ranks};
        const std::int64_t messages = ways * sizes.micro_batches;
        figures.push_back({Of::bytes, stage, messages * message, messages * message});
        figures.push_back({Of::messages, stage, messages, messages});
        const int in_flight = std::min(sizes.ranks - stage, sizes.micro_batches);
        const std::string all = fmt::format(
            "that is what the stage takes if all {} micro-batches are in flight; in 1F1B "
            "these are {} at most",
            sizes.micro_batches, in_flight);
        figures.push_back({Of::peak,
                           stage,
                           0,
                           with_percent(pipeline_peak(sizes, stage, in_flight), 15),
                           {{pipeline_peak(sizes, stage, sizes.micro_batches), all}}});
    }
    figures.push_back(
        {Of::time, Figure::kAllRanks, 0, with_percent(pipeline_time(sizes), 5)});
    return figures;
}

namespace {

/// x, two whole layers, and y and the product of this layer beside those of the one
/// before.
std::int64_t prefetch_peak(const PrefetchSizes& sizes, std::int64_t whole) {
    const std::int64_t rows = sizes.rows * std::min(4, sizes.layers + 2);
    return (sizes.layers * sizes.part + whole * sizes.width() + rows) * sizes.width() *
           kElementBytes;
}

struct PrefetchTimes {
    std::int64_t gather = 0, compute = 0;  ///< of a layer
};

PrefetchTimes prefetch_times(const PrefetchSizes& sizes) {
    const auto empty = [&](Rank& rank, std::int64_t rows) {
        return rank.device().empty({rows, sizes.width()}, DType::f64);
    };
    const auto gather = [&](Rank& rank) {
        rank.world()
            .all_gather(empty(rank, sizes.width()), empty(rank, sizes.part))
            .wait();
    };
    const auto compute = [&](Rank& rank) {
        rank.device().tanh(
            rank.device().matmul(empty(rank, sizes.rows), empty(rank, sizes.width())));
    };
    return {cost_of(sizes.ranks, gather).makespan(), cost_of(1, compute).makespan()};
}

}  // namespace

/// The first layer's way is not hidden, nor is the last one's work; in between, the
/// longer of the two counts.
Figures prefetch_figures(const PrefetchSizes& sizes) {
    const std::int64_t messages =
        (std::int64_t{sizes.ranks} - 1) * std::int64_t{sizes.layers};
    const std::int64_t bytes = messages * sizes.part * sizes.width() * kElementBytes;
    Figures figures;
    for (int rank = 0; rank < sizes.ranks; ++rank) {
        figures.push_back({Of::bytes, rank, bytes, bytes});
        figures.push_back({Of::messages, rank, messages, messages});
        figures.push_back(
            {Of::peak,
             rank,
             0,
             with_percent(prefetch_peak(sizes, 2), 5),
             {{prefetch_peak(sizes, sizes.layers),
               fmt::format("that is the room of all {} layers whole at once",
                           sizes.layers)},
              {prefetch_peak(sizes, sizes.layers + std::int64_t{2}),
               fmt::format("that is the room of all {} layers whole at once, beside the "
                           "two that take turns",
                           sizes.layers)}}});
    }
    const PrefetchTimes of = prefetch_times(sizes);
    const std::int64_t between = sizes.layers - 1;
    const std::int64_t right =
        of.gather + between * std::max(of.gather, of.compute) + of.compute;
    figures.push_back({Of::time,
                       Figure::kAllRanks,
                       0,
                       with_percent(right, 5),
                       {{sizes.layers * (of.gather + of.compute),
                         "that is how long it takes if no layer is gathered while "
                         "another computes"}}});
    return figures;
}

Figures sum_figures(int ranks) {
    const std::int64_t bytes = hops(ranks) * kNumberBytes;
    return {{Of::bytes, Figure::kAllRanks, bytes, 2 * bytes},
            {Of::messages, Figure::kAllRanks, 0, 2 * hops(ranks) * ranks}};
}

namespace {

/// Each rank's micro-batches forward and back, and one all-reduce of each gradient.
void accumulate(Rank& rank, const AccumulateSizes& sizes) {
    Device& device = rank.device();
    const auto empty = [&](std::int64_t rows, std::int64_t columns) {
        return device.empty({rows, columns}, DType::f64);
    };
    const Tensor w1 = empty(sizes.in, sizes.hidden), w2 = empty(sizes.hidden, sizes.out);
    const Tensor d_w1 = empty(sizes.in, sizes.hidden);
    const Tensor d_w2 = empty(sizes.hidden, sizes.out);
    device.fill(d_w1, 0);
    device.fill(d_w2, 0);
    for (int batch = 0; batch < sizes.micro_batches; ++batch) {
        const Tensor x = empty(sizes.rows, sizes.in);
        const Tensor between = device.tanh(device.matmul(x, w1));
        const Tensor dy = device.squared_error_backward(device.matmul(between, w2),
                                                        empty(sizes.rows, sizes.out), 1);
        const Tensor d_between =
            device.tanh_backward(between, device.matmul(dy, w2, {.transpose_b = true}));
        device.add(d_w1, device.matmul(x, d_between, {.transpose_a = true}));
        device.add(d_w2, device.matmul(between, dy, {.transpose_a = true}));
    }
    for (const Tensor& gradient : {d_w1, d_w2})
        rank.world().all_reduce(gradient).wait();
}

/// Counts what is given, three tensors as wide as the hidden layer, two as the output,
/// and the gradients of as many micro-batches as are kept.
std::int64_t accumulate_peak(const AccumulateSizes& sizes, int kept) {
    const std::int64_t weights = (sizes.in + sizes.out) * sizes.hidden;
    const std::int64_t given =
        2 * weights + sizes.micro_batches * sizes.rows * (sizes.in + sizes.out);
    const std::int64_t layer = sizes.rows * (3 * sizes.hidden + 2 * sizes.out);
    return (given + layer + kept * weights) * kElementBytes;
}

}  // namespace

/// Gradients may go in one message or in two.
Figures accumulate_figures(const AccumulateSizes& sizes) {
    const std::int64_t elements = (sizes.in + sizes.out) * sizes.hidden;
    const std::int64_t all = reduced_bytes(sizes.ranks, elements);
    Figures figures{{Of::bytes,
                     Figure::kAllRanks,
                     all,
                     with_percent(all, 5),
                     {{sizes.micro_batches * all,
                       fmt::format("that is an all-reduce of the gradients for each of "
                                   "the {} micro-batches",
                                   sizes.micro_batches)}}}};
    const std::int64_t of_rank =
        most_reduced_bytes(sizes.ranks, sizes.in * sizes.hidden) +
        most_reduced_bytes(sizes.ranks, sizes.hidden * sizes.out);
    for (int rank = 0; rank < sizes.ranks; ++rank) {
        figures.push_back({Of::bytes, rank, 0, with_percent(of_rank, 5)});
        figures.push_back({Of::messages, rank, 0, 2 * hops(sizes.ranks)});
        figures.push_back(
            {Of::peak,
             rank,
             0,
             with_percent(accumulate_peak(sizes, 1), 20),
             {{accumulate_peak(sizes, sizes.micro_batches),
               fmt::format("that is the room of the gradients of all {} micro-batches, "
                           "kept to the end",
                           sizes.micro_batches)}}});
    }
    const std::int64_t time =
        cost_of(sizes.ranks, [&](Rank& rank) { accumulate(rank, sizes); }).makespan();
    figures.push_back({Of::time, Figure::kAllRanks, 0, with_percent(time, 15)});
    return figures;
}

}  // namespace lockstep::lessons
