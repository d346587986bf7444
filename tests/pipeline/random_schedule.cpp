#include "tests/pipeline/random_schedule.hpp"

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

/// Which part of the model each chunk of each stage is.
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
            // The same parts from both ends, as bidirectional pipelines have them.
            if (style == 3 && chunks == 2 && stages % 2 == 0) part(stage, chunk) = turned;
        }
    if (style == 2)
        for (int i = stages * chunks - 1; i > 0; --i) {
            const int j = random.below(i + 1);
            std::swap(part(i % stages, i / stages), part(j % stages, j / stages));
        }
    return parts;
}

/// Draws tasks from those that wait for nothing, until all are done.
class Draw {
  public:
    Draw(Random& random, Schedule& schedule, const RandomScheduleOptions& options)
        : random_(random),
          schedule_(schedule),
          options_(options),
          parts_(schedule.part_count()),
          homes_(slots()),
          read_(slots()),
          newest_(static_cast<std::size_t>(schedule.stages * schedule.chunks), 0) {
        for (int part = 0; part < parts_; ++part)
            for (int it = 0; it < schedule.micro_batches; ++it)
                homes_[slot(part, it)] = random_home(part);
        for (int it = 0; it < schedule.micro_batches; ++it)
            open_.push_back({Kind::forward, 0, it});
    }

    void run() {
        while (!open_.empty()) {
            if (options_.weight_versions && random_.one_in(8)) end_of_step();
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

  private:
    std::size_t slots() const {
        return static_cast<std::size_t>(parts_ * schedule_.micro_batches);
    }
    std::size_t slot(int part, int micro_batch) const {
        return static_cast<std::size_t>(part * schedule_.micro_batches + micro_batch);
    }
    int& newest(Home home) {
        return newest_[static_cast<std::size_t>(home.stage * schedule_.chunks +
                                                home.chunk)];
    }

    Home random_home(int part) {
        std::vector<Home> homes;
        for (int stage = 0; stage < schedule_.stages; ++stage)
            for (int chunk = 0; chunk < schedule_.chunks; ++chunk)
                if (schedule_.part(stage, chunk) == part) homes.push_back({stage, chunk});
        return homes[static_cast<std::size_t>(
            random_.below(static_cast<int>(homes.size())))];
    }

    void append(Home home, Kind kind, int micro_batch, int version = -1) {
        schedule_.work[static_cast<std::size_t>(home.stage)].push_back(
            {kind, micro_batch, home.chunk, version});
    }

    void end_of_step() {
        const Home home{random_.below(schedule_.stages), random_.below(schedule_.chunks)};
        if (random_.one_in(3)) return append(home, Kind::reduce_gradients, -1);
        append(home, Kind::optimizer_step, -1);
        ++newest(home);
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

    /// What a task made lets the next part begin, or its message.
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
    std::vector<Home> homes_;  ///< of each part and micro-batch
    std::vector<int> read_;    ///< the weights that its forward read
    std::vector<int> newest_;  ///< of each stage's chunk
    std::vector<Task> open_;
};

}  // namespace

Schedule random_schedule(Random& random, const RandomScheduleOptions& options) {
    const int stages = random.between(1, 6);
    const int micro_batches = random.between(1, 8);
    const int chunks = random.between(1, 3);
    Schedule schedule = empty_schedule("random", {stages, micro_batches, chunks});
    schedule.parts = random_parts(random, stages, chunks);
    Draw(random, schedule, options).run();
    if (random.one_in(2)) end_step(schedule);
    return schedule;
}

std::vector<StageDurations> random_durations(Random& random, int stages, bool messages) {
    std::vector<StageDurations> durations(static_cast<std::size_t>(stages));
    for (StageDurations& own : durations) {
        own.forward = random.below(7);
        own.backward_input = random.below(7);
        own.backward_weight = random.below(5);
        own.message = messages ? random.below(6) : 0;
    }
    return durations;
}

}  // namespace lockstep::test
