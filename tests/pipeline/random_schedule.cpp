#include "tests/pipeline/random_schedule.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::test {

namespace {

using Kind = InstructionKind;

struct Home {
    int stage = 0;
    int chunk = 0;
};

struct Task {
    Kind kind = Kind::forward;
    int part = 0;
    int micro_batch = 0;
};

/// Draws, for each chunk of each stage, which part of the model it is.
std::vector<std::vector<int>> random_parts(Random& random, int stages, int chunks) {
    const int style = random.below(4);
    std::vector<std::vector<int>> parts(
        static_cast<std::size_t>(stages),
        std::vector<int>(static_cast<std::size_t>(chunks)));
    const auto part = [&](int stage, int chunk) -> int& {
        return parts[static_cast<std::size_t>(stage)][static_cast<std::size_t>(chunk)];
    };
    for (int chunk = 0; chunk < chunks; ++chunk)
        for (int stage = 0; stage < stages; ++stage) {
            const int turned = chunk % 2 == 0 ? stage : stages - 1 - stage;
            part(stage, chunk) = chunk * stages + (style == 1 ? turned : stage);
            // As in bidirectional pipelines, chunk 1 has the same parts, reversed.
            if (style == 3 && chunks == 2 && stages % 2 == 0) part(stage, chunk) = turned;
        }
    if (style == 2)
        for (int i = stages * chunks - 1; i > 0; --i) {
            const int j = random.below(i + 1);
            std::swap(part(i % stages, i / stages), part(j % stages, j / stages));
        }
    return parts;
}

/// Draws tasks that wait for nothing, until all tasks are drawn.
class Draw {
  public:
    Draw(Random& random, Schedule& schedule, const RandomScheduleOptions& options)
        : random_(random),
          schedule_(schedule),
          options_(options),
          parts_(schedule.part_count()),
          homes_(slots()),
          read_(slots()),
          newest_(static_cast<std::size_t>(schedule.stages) * schedule.chunks, 0),
          unreduced_(newest_.size(), 0),
          gradients_(newest_.size(), 0) {
        for (int part = 0; part < parts_; ++part)
            for (int micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch)
                homes_[slot(part, micro_batch)] = random_home(part);
        for (int micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch)
            open_.push_back({Kind::forward, 0, micro_batch});
    }

    void run() {
        while (!open_.empty()) {
            if (options_.weight_versions && random_.one_in(8))
                end_of_step(random_.below(parts_));
            std::swap(open_[static_cast<std::size_t>(
                          random_.below(static_cast<int>(open_.size())))],
                      open_.back());
            const Task task = open_.back();
            open_.pop_back();
            if (is_message(task.kind))
                message(task);
            else
                compute(task);
        }
    }

    /// Reduces and updates all chunks that have gradients.
    void end() {
        for (int part = 0; part < parts_; ++part) {
            const std::vector<Home> homes = homes_of(part);
            if (std::ranges::any_of(
                    homes, [&](Home home) { return unreduced_[number(home)] != 0; }))
                for (const Home home : homes) {
                    append(home, Kind::reduce_gradients, -1);
                    gradients_[number(home)] = 1;
                }
            for (const Home home : homes)
                if (gradients_[number(home)] != 0) append(home, Kind::optimizer_step, -1);
        }
    }

  private:
    std::size_t slots() const {
        return static_cast<std::size_t>(parts_) * schedule_.micro_batches;
    }
    std::size_t slot(int part, int micro_batch) const {
        return static_cast<std::size_t>(part) * schedule_.micro_batches + micro_batch;
    }
    int& newest(Home home) { return newest_[number(home)]; }

    Home random_home(int part) {
        const std::vector<Home> homes = homes_of(part);
        return homes[static_cast<std::size_t>(
            random_.below(static_cast<int>(homes.size())))];
    }

    void append(Home home, Kind kind, int micro_batch, int version = -1) {
        schedule_.work[static_cast<std::size_t>(home.stage)].push_back(
            {kind, micro_batch, home.chunk, version});
    }

    /// Returns the stages and chunks that hold a part.
    std::vector<Home> homes_of(int part) const {
        std::vector<Home> homes;
        for (int stage = 0; stage < schedule_.stages; ++stage)
            for (int chunk = 0; chunk < schedule_.chunks; ++chunk)
                if (schedule_.part(stage, chunk) == part) homes.push_back({stage, chunk});
        return homes;
    }
    std::size_t number(Home home) const {
        return static_cast<std::size_t>(home.stage) * schedule_.chunks + home.chunk;
    }

    /// Adds a reduction or an update, on all stages that hold a part. Several copies are
    /// updated only after a reduction. Without gradients, adds nothing.
    void end_of_step(int part) {
        const std::vector<Home> homes = homes_of(part);
        if (random_.one_in(3)) {
            if (std::ranges::none_of(
                    homes, [&](Home home) { return unreduced_[number(home)] != 0; }))
                return;
            for (const Home home : homes) {
                append(home, Kind::reduce_gradients, -1);
                unreduced_[number(home)] = 0;
                gradients_[number(home)] = 1;
            }
            return;
        }
        for (const Home home : homes)
            if (gradients_[number(home)] == 0 ||
                (homes.size() > 1 && unreduced_[number(home)] != 0))
                return;
        for (const Home home : homes) {
            unreduced_[number(home)] = gradients_[number(home)] = 0;
            append(home, Kind::optimizer_step, -1);
            ++newest(home);
        }
    }

    void compute(const Task& task) {
        const Home home = homes_[slot(task.part, task.micro_batch)];
        int& read = read_[slot(task.part, task.micro_batch)];
        int version = -1;
        if (task.kind == Kind::forward) {
            read = newest(home);
            if (options_.weight_versions && random_.one_in(3))
                version = read = random_.below(newest(home) + 1);
        } else if (read != newest(home) ||
                   (options_.weight_versions && random_.one_in(4))) {
            version = read;
        }
        append(home, task.kind, task.micro_batch, version);
        if (task.kind == Kind::backward || task.kind == Kind::backward_weight)
            unreduced_[number(home)] = gradients_[number(home)] = 1;
        if (task.kind == Kind::forward) {
            if (task.part + 1 < parts_)
                pass_on(task, task.part + 1);
            else
                open_backward(task.part, task.micro_batch);
        } else if (task.kind != Kind::backward_weight) {
            if (task.part > 0) pass_on(task, task.part - 1);
            if (task.kind == Kind::backward_input)
                open_.push_back({Kind::backward_weight, task.part, task.micro_batch});
        }
    }

    /// After a task, the next part's task can begin, or the message to the next part.
    void pass_on(const Task& task, int next) {
        const Home from = homes_[slot(task.part, task.micro_batch)];
        const Home to = homes_[slot(next, task.micro_batch)];
        const bool forward = task.kind == Kind::forward;
        if (options_.messages && from.stage != to.stage)
            open_.push_back({forward ? Kind::send_activation : Kind::send_gradient,
                             task.part, task.micro_batch});
        else if (forward)
            open_.push_back({Kind::forward, next, task.micro_batch});
        else
            open_backward(next, task.micro_batch);
    }

    void message(const Task& send) {
        const bool forward = send.kind == Kind::send_activation;
        const int next = forward ? send.part + 1 : send.part - 1;
        append(homes_[slot(send.part, send.micro_batch)], send.kind, send.micro_batch);
        append(homes_[slot(next, send.micro_batch)],
               forward ? Kind::recv_activation : Kind::recv_gradient, send.micro_batch);
        if (forward)
            open_.push_back({Kind::forward, next, send.micro_batch});
        else
            open_backward(next, send.micro_batch);
    }

    void open_backward(int part, int micro_batch) {
        open_.push_back({random_.one_in(2) ? Kind::backward : Kind::backward_input, part,
                         micro_batch});
    }

    Random& random_;
    Schedule& schedule_;
    const RandomScheduleOptions& options_;
    int parts_;
    std::vector<Home> homes_;      ///< by part and micro-batch
    std::vector<int> read_;        ///< the version that the forward read
    std::vector<int> newest_;      ///< by stage and chunk
    std::vector<char> unreduced_;  ///< by stage and chunk: has unreduced gradients
    std::vector<char> gradients_;  ///< by stage and chunk: has gradients
    std::vector<Task> open_;
};

bool is_pair(const Instruction& a, const Instruction& b) {
    return is_computation(a.kind) && is_computation(b.kind) &&
           a.kind != Kind::backward_weight && b.kind != Kind::backward_weight &&
           (a.kind == Kind::forward) != (b.kind == Kind::forward);
}

/// Lets some neighbouring instructions begin together.
void join(Random& random, Schedule& schedule) {
    for (auto& list : schedule.work)
        for (std::size_t i = 1; i < list.size(); ++i) {
            const bool messages =
                is_message(list[i].kind) && is_message(list[i - 1].kind);
            // A backward cannot begin together with its own forward.
            const bool pair = is_pair(list[i - 1], list[i]) && !list[i - 1].together &&
                              (list[i].micro_batch != list[i - 1].micro_batch ||
                               list[i].chunk != list[i - 1].chunk);
            list[i].together = (messages || pair) && random.one_in(2);
        }
}

bool has_groups(const Schedule& schedule) {
    for (const auto& list : schedule.work)
        for (const Instruction& each : list)
            if (each.together && is_message(each.kind)) return true;
    return false;
}

}  // namespace

Schedule random_schedule(Random& random, const RandomScheduleOptions& options) {
    const int stages = random.between(1, 6);
    const int micro_batches = random.between(1, 8);
    const int chunks = random.between(1, 3);
    Schedule schedule = empty_schedule("random", {stages, micro_batches, chunks});
    schedule.parts = random_parts(random, stages, chunks);
    Draw draw(random, schedule, options);
    draw.run();
    if (random.one_in(2)) draw.end();
    if (options.together) join(random, schedule);
    if (options.by_direction && !has_groups(schedule))
        schedule.queues = MessageQueues::by_direction;
    return schedule;
}

std::vector<Durations> random_durations(Random& random, int stages, bool messages) {
    std::vector<Durations> durations(static_cast<std::size_t>(stages));
    for (Durations& own : durations) {
        own.forward = random.below(7);
        own.backward_input = random.below(7);
        own.backward_weight = random.below(5);
        own.message = messages ? random.below(6) : 0;
    }
    return durations;
}

ScheduleTimes random_times(Random& random, const Schedule& schedule) {
    ScheduleTimes times;
    times.by_part = random.one_in(2);
    const int entries = random.one_in(4) ? 1
                        : times.by_part  ? schedule.part_count()
                                         : schedule.stages;
    times.each = random_durations(random, entries, /*messages=*/true);
    for (Durations& own : times.each) {
        own.recompute = random.below(3);
        own.reduce = random.below(6);
        own.update = random.below(4);
        own.overlapped = random.one_in(2) ? -1 : random.below(9);
    }
    for (int a = 0; a < schedule.stages; ++a)
        for (int b = a + 1; b < schedule.stages; ++b)
            if (random.one_in(5)) times.links[{a, b}] = random.below(12);
    return times;
}

}  // namespace lockstep::test
