// Trains a GPT for some steps on data-parallel virtual devices, for peers.py. Prints one
// line of JSON with the cost of a step and the losses. Writes the initial weights to a
// file, one parameter after another, in the GPT's order.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <thread>

#include "sim/cluster.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/placement.hpp"

namespace {

using namespace lockstep;

/// The arguments of the command line, in this order; gpt_step.py has the same arguments.
struct Task {
    std::int64_t ranks, hidden, tokens, sequences, layers, heads, vocabulary;
    int untimed, steps;
    const char* weights;
};

Task read_task(char** word) {
    const auto number = [&] { return std::atoll(*++word); };
    Task task{};
    for (std::int64_t* size : {&task.ranks, &task.hidden, &task.tokens, &task.sequences,
                               &task.layers, &task.heads, &task.vocabulary})
        *size = number();
    task.untimed = static_cast<int>(number());
    task.steps = static_cast<int>(number());
    task.weights = *++word;
    return task;
}

/// Returns token `position` of a sequence; its target is the next token.
std::int64_t token(const Task& task, std::int64_t sequence, std::int64_t position) {
    const std::int64_t number = sequence * (task.tokens + 1) + position;
    return number * number % 7919 % task.vocabulary;
}

MicroBatch batch_of(Rank& rank, const Task& task) {
    HostTensor ids({task.tokens, task.sequences}, DType::i32);
    HostTensor next({task.tokens, task.sequences}, DType::i32);
    for (std::int64_t position = 0; position < task.tokens; ++position)
        for (std::int64_t i = 0; i < task.sequences; ++i) {
            const std::int64_t sequence = rank.index() * task.sequences + i;
            const std::int64_t at = position * task.sequences + i;
            ids.set(at, static_cast<double>(token(task, sequence, position)));
            next.set(at, static_cast<double>(token(task, sequence, position + 1)));
        }
    return {rank.device().upload(ids), rank.device().upload(next),
            1.0 / static_cast<double>(task.ranks)};
}

void write_weights(Device& device, Module& model, const char* path) {
    std::ofstream file(path, std::ios::binary);
    for (const Parameter* parameter : model.parameters()) {
        const HostTensor values = device.peek(parameter->value);
        file.write(reinterpret_cast<const char*>(values.data()), values.bytes());
    }
}

/// The CPU time, wall time and page faults of this process so far.
struct Used {
    double cpu, wall;
    std::int64_t faults;

    static Used now() {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        const auto seconds = [](const timeval& time) {
            return static_cast<double>(time.tv_sec) +
                   1e-6 * static_cast<double>(time.tv_usec);
        };
        const std::chrono::duration<double> wall =
            std::chrono::steady_clock::now().time_since_epoch();
        return {seconds(usage.ru_utime) + seconds(usage.ru_stime), wall.count(),
                usage.ru_minflt};
    }
};

}  // namespace

int main(int count, char** words) try {
    constexpr int kWords = 11;
    if (count != kWords) {
        std::cerr << "peers.py shows the expected arguments\n";
        return 2;
    }
    const Task task = read_task(words);
    GptSizes sizes;
    sizes.vocabulary = task.vocabulary;
    sizes.context = task.tokens;
    sizes.layers = task.layers;
    sizes.block.hidden = task.hidden;
    sizes.block.heads = task.heads;

    sim::ClusterOptions options;
    options.ranks = static_cast<int>(task.ranks);
    options.spec = load_cluster("classroom");
    options.spec.memory_bytes = 0;
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    if (task.ranks > 1) options.workers = std::clamp(cores, 1, options.ranks);
    Used begin{}, end{};
    std::vector<double> losses(static_cast<std::size_t>(task.untimed + task.steps));
    sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = make_gpt({device, DType::f32, 1, ""}, sizes);
        if (rank.index() == 0) write_weights(device, *model, task.weights);
        declare_replicas_of(rank.world(), *model);
        AdamW optimizer(model->parameters());
        BucketedDataParallel sync(device, rank.world(), model->parameters());
        const std::vector<MicroBatch> batches{batch_of(rank, task)};
        for (int step = 0; step < task.untimed + task.steps; ++step) {
            if (step == task.untimed) {
                rank.world().barrier().wait();
                if (rank.index() == 0) begin = Used::now();
            }
            const Tensor loss =
                train_step(device, *model, cross_entropy_loss, batches, sync, optimizer);
            rank.world().all_reduce(loss).wait();
            if (rank.index() == 0)
                losses[static_cast<std::size_t>(step)] = device.download(loss).at(0);
        }
        rank.world().barrier().wait();
        if (rank.index() == 0) end = Used::now();
    });
    const nlohmann::json found{{"cpu", (end.cpu - begin.cpu) / task.steps},
                               {"wall", (end.wall - begin.wall) / task.steps},
                               {"faults", (end.faults - begin.faults) / task.steps},
                               {"losses", losses}};
    std::cout << found << '\n';
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
